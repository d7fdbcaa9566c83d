// MXFP4: 32 elements 2^(e - 127) * E2M1.  Source: quantization.md 2, 3.
#pragma once
#include <stdint.h>

namespace tandem {

// Twice the values of the E2M1 codes.  Code 8 is a positive zero.
constexpr int8_t kMxfp4Values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

struct BlockMXFP4 {
  // The exponent.  255 would be NaN by the OCP standard; it is decoded as an ordinary exponent, as ggml does.
  uint8_t e;
  uint8_t qs[16];  // byte j: element j in the low nibble, element j + 16 in the high one
};
static_assert(sizeof(BlockMXFP4) == 17);

}  // namespace tandem
