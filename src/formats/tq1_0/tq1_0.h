// TQ1_0: 256 elements d * (t - 1), t in {0, 1, 2}, five digits in a byte.  Source: quantization.md 5.
#pragma once
#include <stdint.h>

namespace tandem {

// Digit n of byte b is ((b * 3^n mod 256) * 3) >> 8.
struct BlockTQ1_0 {
  uint8_t qs[48];  // element 32n + m: digit n of byte m < 32; element 160 + 16n + m: digit n of byte 32 + m
  uint8_t qh[4];   // element 240 + 4n + j: digit n < 4 of byte j
  uint16_t d;      // binary16
};
static_assert(sizeof(BlockTQ1_0) == 54);

}  // namespace tandem
