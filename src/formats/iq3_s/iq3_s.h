// IQ3_S: 256 elements in 32 groups of 8, +-(d * (2 sc + 1)) * g, g from two entries of a codebook, sc in [0,
// 15] for 32 elements.  Source: quantization.md 5.
#pragma once
#include <stdint.h>

namespace tandem {

extern const uint16_t kIq3SGrid[512];  // formats/codebooks.cpp: 4 bits an element for 1, 3, .. 15

struct BlockIQ3_S {
  uint16_t d;         // binary16
  uint8_t qs[64];     // low 8 bits of an entry for each four elements
  uint8_t qh[8];      // its high bit: bit m of byte b for elements 32b + 4m .. 32b + 4m + 3
  uint8_t signs[32];  // of each group
  uint8_t scales[4];  // sc of elements 32b ..: nibble b % 2 of byte b / 2
};
static_assert(sizeof(BlockIQ3_S) == 110);

}  // namespace tandem
