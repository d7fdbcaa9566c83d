// What Q4_K and Q5_K share: 8 sub-blocks of 32 elements, each with a 6-bit scale and a 6-bit minimum.
// Source: quantization.md 4, 7.
#pragma once
#include <cstdint>

namespace tandem {

// Scale and minimum of each sub-block, in [0, 63].
struct KScales {
  uint8_t sc[8];
  uint8_t mn[8];
};

KScales unpack_k_scales(const uint8_t packed[12]);
void pack_k_scales(const KScales& scales, uint8_t packed[12]);

// A block before its codes are packed: x is about (d * sc) * q - dmin * mn, with d and dmin in binary16.
struct KAffineBlock {
  uint16_t d;
  uint16_t dmin;
  KScales scales;
  uint8_t q[256];
};

// Quantizes 256 finite values to codes in [0, n_max].  Source: quantization.md 7 (Q4_K: 15, Q5_K: 31).
KAffineBlock quantize_k_affine(const float* x, int n_max);

}  // namespace tandem
