// Q5_1: 32 elements d * q + m, q in [0, 31].  Source: quantization.md 3.
#pragma once
#include <stdint.h>

namespace tandem {

struct BlockQ5_1 {
  uint16_t d;      // binary16
  uint16_t m;      // binary16
  uint8_t qh[4];   // a little-endian word, whose bit i is the fifth bit of element i
  uint8_t qs[16];  // the low four bits; byte j: element j in the low nibble, element j + 16 in the high one
};
static_assert(sizeof(BlockQ5_1) == 24);

}  // namespace tandem
