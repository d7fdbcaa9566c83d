// Q4_1: 32 elements d * q + m, q in [0, 15].  Source: quantization.md 3.
#pragma once
#include <stdint.h>

namespace tandem {

struct BlockQ4_1 {
  uint16_t d;      // binary16
  uint16_t m;      // binary16
  uint8_t qs[16];  // byte j: element j in the low nibble, element j + 16 in the high one
};
static_assert(sizeof(BlockQ4_1) == 20);

}  // namespace tandem
