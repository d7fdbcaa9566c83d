// Q3_K: 256 elements in 16 sub-blocks of 16, (d * sc) * q, q in [-4, 3], sc in [-32, 31].  Source:
// quantization.md 4.
#pragma once
#include <stdint.h>

namespace tandem {

// Element 128h + 32g + k, with h in 0..1, g in 0..3, k in 0..31.
struct BlockQ3_K {
  uint8_t hmask[32];   // bit 4h + g of byte k: 0 where 4 is to be subtracted
  uint8_t qs[64];      // the low two bits: byte 32h + k, from bit 2g
  uint8_t scales[12];  // scale j = 8h + 2g + k / 16, plus 32, in 6 bits: the low four in nibble j / 8 of byte
                       // j % 8, the high two in byte 8 + j % 4, from bit 2(j / 4)
  uint16_t d;          // binary16
};
static_assert(sizeof(BlockQ3_K) == 110);

}  // namespace tandem
