// Q4_K: 256 elements in 8 sub-blocks of 32, (d * sc) * q - dmin * mn, q in [0, 15].  Source:
// quantization.md 4.
#pragma once
#include <stdint.h>

namespace tandem {

struct BlockQ4_K {
  uint16_t d;          // binary16
  uint16_t dmin;       // binary16
  uint8_t scales[12];  // 8 scales and 8 minima of 6 bits, packed
  uint8_t qs[128];     // byte 32c + l: element 64c + l in the low nibble, 64c + 32 + l in the high one
};
static_assert(sizeof(BlockQ4_K) == 144);

}  // namespace tandem
