// Q2_K: 256 elements in 16 sub-blocks of 16, (d * sc) * q - dmin * mn, q in [0, 3], sc and mn in [0, 15].
// Source: quantization.md 4.
#pragma once
#include <stdint.h>

namespace tandem {

// Element 128h + 32g + k, with h in 0..1, g in 0..3, k in 0..31.
struct BlockQ2_K {
  uint8_t scales[16];  // entry 8h + 2g + k / 16: sc in the low nibble, mn in the high one
  uint8_t qs[64];      // byte 32h + k, from bit 2g
  uint16_t d;          // binary16
  uint16_t dmin;       // binary16
};
static_assert(sizeof(BlockQ2_K) == 84);

}  // namespace tandem
