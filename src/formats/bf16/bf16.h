// BF16: the upper half of a binary32 per element.  Source: quantization.md 2.
#pragma once
#include <stdint.h>

namespace tandem {

struct BlockBf16 {
  uint16_t bits;
};
static_assert(sizeof(BlockBf16) == 2);

}  // namespace tandem
