// For kernel files of types whose elements come in groups of eight from a codebook (formats/codebooks.h). Two
// groups are decoded at a time; the codes of a group stand in one word, element 0 lowest.
#pragma once
#include <stdint.h>

#include "base/simd.h"

namespace tandem::TANDEM_ISA {

// Elements [start, start + kLanes) of two groups, each in `width` bits; the bits above them are anything.
// start: a multiple of kLanes below 16.
TANDEM_INLINE IVec fields(const uint32_t groups[2], int width, int start) {
#if defined(__AVX512F__) && defined(__AVX512DQ__)
  (void)start;
  const IVec lane = {0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7};
  const __m512i words = _mm512_mask_set1_epi32(_mm512_set1_epi32((int)groups[0]), 0xff00, (int)groups[1]);
  return (IVec)_mm512_srlv_epi32(words, (__m512i)(width * lane));
#elif defined(__AVX2__) && defined(__FMA__)
  const IVec lane = {0, 1, 2, 3, 4, 5, 6, 7};
  return (IVec)_mm256_srlv_epi32(_mm256_set1_epi32((int)groups[start / 8]), (__m256i)(width * lane));
#else
  const uint32_t word = groups[start / 8] >> width * (start % 8);
  return IVec{(int32_t)word, (int32_t)(word >> width), (int32_t)(word >> 2 * width),
              (int32_t)(word >> 3 * width)};
#endif
}

// Eight signs, bit j set where element j is negative, from the first seven: their number is even.
TANDEM_INLINE uint32_t even_signs(uint32_t seven) { return seven | (uint32_t)__builtin_parity(seven) << 7; }

// Sixteen elements step * value(code), negative where signs[group] has bit element.  `value` maps an IVec of
// fields, with anything above them, to integers.
template <class Value>
TANDEM_INLINE void store_signed(float* __restrict dst, float step, const uint32_t codes[2], int width,
                                const uint32_t signs[2], Value value) {
  for (int k = 0; k < 16; k += kLanes) {
    const Vec size = set1(step) * to_float(value(fields(codes, width, k)));
    store(dst + k, (Vec)((IVec)size ^ fields(signs, 1, k) << 31));
  }
}

// Sixteen elements step * (code - 1 + delta), codes of two bits, delta = 1/8, or -1/8 where the group is
// lowered.  The step is normal or zero, so that an eighth of it is exact.
TANDEM_INLINE void store_shifted(float* __restrict dst, float step, const uint32_t codes[2],
                                 const bool lowered[2]) {
  const uint32_t lower[2] = {lowered[0] ? 0xffu : 0u, lowered[1] ? 0xffu : 0u};
  for (int k = 0; k < 16; k += kLanes) {
    const IVec eighths = ((fields(codes, 2, k) & 3) << 3) - 7 - ((fields(lower, 1, k) & 1) << 1);
    store(dst + k, set1(0.125f * step) * to_float(eighths));
  }
}

}  // namespace tandem::TANDEM_ISA
