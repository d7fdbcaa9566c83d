// IQ4_XS: 256 elements in 8 sub-blocks of 32, (d * sc) * v[q], q in [0, 15], v the grid of IQ4_NL, sc in
// [-32, 31]. Source: quantization.md 2, 5.
#pragma once
#include <stdint.h>

namespace tandem {

constexpr int8_t kIq4XsValues[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                     1,    13,   25,  38,  53,  69,  89,  113};

struct BlockIQ4_XS {
  uint16_t d;           // binary16
  uint16_t scales_h;    // the high two bits of scale b, plus 32: from bit 2b
  uint8_t scales_l[4];  // its low four bits: nibble b % 2 of byte b / 2
  uint8_t qs[128];  // byte 16b + j: element 32b + j in the low nibble, element 32b + 16 + j in the high one
};
static_assert(sizeof(BlockIQ4_XS) == 136);

}  // namespace tandem
