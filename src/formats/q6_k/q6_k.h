// Q6_K: 256 elements in 16 sub-blocks of 16, (d * sc) * (q - 32), q in [0, 63].  Source: quantization.md 4.
#pragma once
#include <stdint.h>

namespace tandem {

// Element 128h + 32g + k, with h in 0..1, g in 0..3, k in 0..31.
struct BlockQ6_K {
  uint8_t ql[128];  // low four bits: byte 64h + 32(g & 1) + k, the high nibble where g >= 2
  uint8_t qh[64];   // high two bits: byte 32h + k, from bit 2g
  int8_t sc[16];    // entry 8h + 2g + k / 16
  uint16_t d;       // binary16
};
static_assert(sizeof(BlockQ6_K) == 210);

}  // namespace tandem
