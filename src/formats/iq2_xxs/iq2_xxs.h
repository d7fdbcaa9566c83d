// IQ2_XXS: 256 elements in 32 groups of 8, +-(d * (sc + 1/2) / 4) * g, g from a codebook, sc in [0, 15] for
// 32 elements.  Source: quantization.md 5.
#pragma once
#include <stdint.h>

namespace tandem {

extern const uint16_t kIq2XxsGrid[256];  // formats/codebooks.cpp: 2 bits an element for 8, 25, 43

struct BlockIQ2_XXS {
  uint16_t d;      // binary16
  uint8_t qs[64];  // 8 bytes for 32 elements: the entries of four groups, then 32 bits of which 7l .. 7l + 6
                   // are seven signs of group l, the eighth making their number even, and 28 .. 31 are sc
};
static_assert(sizeof(BlockIQ2_XXS) == 66);

}  // namespace tandem
