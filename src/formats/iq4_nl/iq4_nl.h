// IQ4_NL: 32 elements d * v[q], q in [0, 15], v an uneven grid.  Source: quantization.md 2, 3.
#pragma once
#include <stdint.h>

namespace tandem {

constexpr int8_t kIq4NlValues[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                     1,    13,   25,  38,  53,  69,  89,  113};

struct BlockIQ4_NL {
  uint16_t d;      // binary16
  uint8_t qs[16];  // byte j: element j in the low nibble, element j + 16 in the high one
};
static_assert(sizeof(BlockIQ4_NL) == 18);

}  // namespace tandem
