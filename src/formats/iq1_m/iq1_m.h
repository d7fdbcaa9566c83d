// IQ1_M: 256 elements in 32 groups of 8, (d * (2 sc + 1)) * (g + delta), g in {-1, 0, 1} from the codebook of
// IQ1_S, sc in [0, 7] for 16 elements, delta = +-1/8 for each group.  Source: quantization.md 5.
#pragma once
#include <stdint.h>

namespace tandem {

extern const uint16_t kIq1Grid[2048];  // formats/codebooks.cpp: 2 bits an element for -1, 0, 1

struct BlockIQ1_M {
  uint8_t qs[32];  // low 8 bits of the entry of each group
  uint8_t qh[16];  // byte h for groups 2h (low nibble) and 2h + 1: the high 3 bits of the entry, and bit 3
                   // set where delta is negative
  uint16_t scales[4];  // sc of elements 16h ..: from bit 3 (h % 4) of word h / 4; bits 12 .. 15 of word w are
                       // bits 4w .. 4w + 3 of d, a binary16
};
static_assert(sizeof(BlockIQ1_M) == 56);

}  // namespace tandem
