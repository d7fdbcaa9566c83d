// TQ2_0: 256 elements d * (q - 1), q in [0, 3].  Source: quantization.md 5.
#pragma once
#include <stdint.h>

namespace tandem {

struct BlockTQ2_0 {
  uint8_t qs[64];  // element 128h + 32l + m: bits 2l and 2l + 1 of byte 32h + m
  uint16_t d;      // binary16
};
static_assert(sizeof(BlockTQ2_0) == 66);

}  // namespace tandem
