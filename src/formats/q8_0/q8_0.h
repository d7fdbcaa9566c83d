// Q8_0: 32 elements d * q, q in [-127, 127] as written (-128 is read too).  Source: quantization.md 3.
#pragma once
#include <stdint.h>

namespace tandem {

struct BlockQ8_0 {
  uint16_t d;  // binary16
  int8_t q[32];
};
static_assert(sizeof(BlockQ8_0) == 34);

}  // namespace tandem
