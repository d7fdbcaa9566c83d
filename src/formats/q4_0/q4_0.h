// Q4_0: 32 elements d * (q - 8), q in [0, 15].  Source: quantization.md 3.
#pragma once
#include <stdint.h>

namespace tandem {

struct BlockQ4_0 {
  uint16_t d;      // binary16
  uint8_t qs[16];  // byte j: element j in the low nibble, element j + 16 in the high one
};
static_assert(sizeof(BlockQ4_0) == 18);

}  // namespace tandem
