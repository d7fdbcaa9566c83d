// IQ2_S: 256 elements in 32 groups of 8, +-(d * (sc + 1/2) / 4) * g, g from a codebook, sc in [0, 15] for 16
// elements.  Source: quantization.md 5.
#pragma once
#include <stdint.h>

namespace tandem {

extern const uint16_t kIq2SGrid[1024];  // formats/codebooks.cpp: 2 bits an element for 8, 25, 43

struct BlockIQ2_S {
  uint16_t d;         // binary16
  uint8_t qs[32];     // low 8 bits of the entry of each group
  uint8_t signs[32];  // of each group
  uint8_t qh[8];      // high 2 bits of the entry of group 4b + l: from bit 2l of byte b
  uint8_t scales[8];  // sc of elements 32b .. 32b + 15 in the low nibble of byte b, of the next 16 in the
                      // high one
};
static_assert(sizeof(BlockIQ2_S) == 82);

}  // namespace tandem
