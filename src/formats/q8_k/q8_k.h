// Q8_K: 256 elements d * q, q in [-128, 127].  A format of activations, rare in files.  Source:
// quantization.md 4.
#pragma once
#include <stdint.h>

namespace tandem {

struct BlockQ8_K {
  float d;
  int8_t q[256];
  int16_t sums[16];  // of each 16 q, for dot products; decoding does not need them
};
static_assert(sizeof(BlockQ8_K) == 292);

}  // namespace tandem
