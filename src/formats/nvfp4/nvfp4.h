// NVFP4: 64 elements in 4 sub-blocks of 16, UE4M3 * E2M1.  Source: quantization.md 2, 3.
// The scale tensor that files add per weight is not part of the format.
#pragma once
#include <stdint.h>

namespace tandem {

// Twice the values of the E2M1 codes.  Code 8 is a positive zero.
constexpr int8_t kNvfp4Values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

struct BlockNVFP4 {
  uint8_t scales[4];  // UE4M3: four bits of exponent above three of mantissa; bit 7 is ignored, 0x7f means 0
  uint8_t qs[32];     // byte 8g + j: element 16g + j in the low nibble, element 16g + j + 8 in the high one
};
static_assert(sizeof(BlockNVFP4) == 36);

}  // namespace tandem
