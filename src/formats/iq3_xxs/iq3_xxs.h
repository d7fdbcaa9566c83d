// IQ3_XXS: 256 elements in 32 groups of 8, +-(d * (sc + 1/2) / 2) * g, g from two entries of a codebook, sc
// in [0, 15] for 32 elements.  Source: quantization.md 5.
#pragma once
#include <stdint.h>

namespace tandem {

extern const uint16_t kIq3XxsGrid[256];  // formats/codebooks.cpp: 4 bits an element for 4, 12, .. 52, 62

struct BlockIQ3_XXS {
  uint16_t d;                  // binary16
  uint8_t qs[64];              // an entry for each four elements
  uint8_t scales_signs[8][4];  // 32 bits for 32 elements: 7l .. 7l + 6 are seven signs of group l, the eighth
                               // making their number even, and 28 .. 31 are sc
};
static_assert(sizeof(BlockIQ3_XXS) == 98);

}  // namespace tandem
