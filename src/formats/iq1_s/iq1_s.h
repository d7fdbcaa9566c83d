// IQ1_S: 256 elements in 32 groups of 8, (d * (2 sc + 1)) * (g + delta), g in {-1, 0, 1} from a codebook, sc
// in [0, 7] and delta = +-1/8 for 32 elements.  Source: quantization.md 5.
#pragma once
#include <stdint.h>

namespace tandem {

extern const uint16_t kIq1Grid[2048];  // formats/codebooks.cpp: 2 bits an element for -1, 0, 1

struct BlockIQ1_S {
  uint16_t d;      // binary16
  uint8_t qs[32];  // low 8 bits of the entry of each group
  uint16_t qh[8];  // for 32 elements: bits 3l .. 3l + 2 are the high bits of the entry of group l, 12 .. 14
                   // are sc, 15 is set where delta is negative
};
static_assert(sizeof(BlockIQ1_S) == 50);

}  // namespace tandem
