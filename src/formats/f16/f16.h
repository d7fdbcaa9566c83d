// F16: one binary16 per element.  Source: quantization.md 2.
#pragma once
#include <stdint.h>

namespace tandem {

struct BlockF16 {
  uint16_t bits;
};
static_assert(sizeof(BlockF16) == 2);

}  // namespace tandem
