// F32: one little-endian binary32 per element.  Source: quantization.md 1.
#pragma once
#include <stdint.h>

namespace tandem {

struct BlockF32 {
  float value;
};
static_assert(sizeof(BlockF32) == 4);

}  // namespace tandem
