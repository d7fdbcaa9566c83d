// IQ2_XS: 256 elements in 32 groups of 8, +-(d * (sc + 1/2) / 4) * g, g from a codebook, sc in [0, 15] for 16
// elements.  Source: quantization.md 5.
#pragma once
#include <stdint.h>

namespace tandem {

extern const uint16_t kIq2XsGrid[512];  // formats/codebooks.cpp: 2 bits an element for 8, 25, 43

struct BlockIQ2_XS {
  uint16_t d;       // binary16
  uint16_t qs[32];  // of each group: the entry in the low 9 bits, seven signs above, the eighth making their
                    // number even
  uint8_t scales[8];  // sc of elements 32b .. 32b + 15 in the low nibble of byte b, of the next 16 in the
                      // high one
};
static_assert(sizeof(BlockIQ2_XS) == 74);

}  // namespace tandem
