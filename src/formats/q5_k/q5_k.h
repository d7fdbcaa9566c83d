// Q5_K: 256 elements in 8 sub-blocks of 32, (d * sc) * q - dmin * mn, q in [0, 31].  Source:
// quantization.md 4.
#pragma once
#include <stdint.h>

namespace tandem {

struct BlockQ5_K {
  uint16_t d;          // binary16
  uint16_t dmin;       // binary16
  uint8_t scales[12];  // 8 scales and 8 minima of 6 bits, packed as in Q4_K
  uint8_t qh[32];      // bit j of byte l: the fifth bit of element 32j + l
  uint8_t qs[128];     // the low four bits, placed as in Q4_K
};
static_assert(sizeof(BlockQ5_K) == 176);

}  // namespace tandem
