// The loops of peak_loops.h at each level: independent chains, as many as hide the latency of their
// instruction (4 to 8 cycles at two a cycle) and fit the registers.  Each chain begins with another number:
// the compiler keeps one of those that are equal.
#include "exec/cpu/peak_loops.h"

#include "base/simd.h"

namespace tandem::TANDEM_ISA {
namespace {

#if defined(__AVX512F__)
constexpr int kChains = 24;
#else
constexpr int kChains = 12;
#endif

float fma_f32(int64_t steps) {
  Vec sum[kChains];
#pragma GCC unroll 24
  for (int i = 0; i < kChains; ++i) sum[i] = set1((float)i);
  const Vec a = set1(0.999f), b = set1(1e-3f);
  for (int64_t s = 0; s < steps; ++s) {
#pragma GCC unroll 24
    for (int i = 0; i < kChains; ++i) sum[i] = fma(sum[i], a, b);
  }
#pragma GCC unroll 24
  for (int i = 1; i < kChains; ++i) sum[0] = sum[0] + sum[i];
  return reduce_add(sum[0]);
}

#if defined(__AVX512BF16__)
float dot_bf16(int64_t steps) {
  __m512 sum[kChains];
#pragma GCC unroll 24
  for (int i = 0; i < kChains; ++i) sum[i] = (__m512)set1((float)i);  // else all are one
  const __m512bh a = (__m512bh)_mm512_set1_epi16(0x3f80), b = (__m512bh)_mm512_set1_epi16(0x3a83);  // 1, 1e-3
  for (int64_t s = 0; s < steps; ++s) {
#pragma GCC unroll 24
    for (int i = 0; i < kChains; ++i) sum[i] = _mm512_dpbf16_ps(sum[i], a, b);
  }
#pragma GCC unroll 24
  for (int i = 1; i < kChains; ++i) sum[0] = _mm512_add_ps(sum[0], sum[i]);
  return reduce_add((Vec)sum[0]);
}
#endif

#if defined(__AVX512VNNI__)
float dot_int8(int64_t steps) {
  IVec sum[kChains];
#pragma GCC unroll 24
  for (int i = 0; i < kChains; ++i) sum[i] = IVec{} + i;
  const __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(-1);
  for (int64_t s = 0; s < steps; ++s) {
#pragma GCC unroll 24
    for (int i = 0; i < kChains; ++i) sum[i] = (IVec)_mm512_dpbusd_epi32((__m512i)sum[i], a, b);
  }
#pragma GCC unroll 24
  for (int i = 1; i < kChains; ++i) sum[0] = sum[0] + sum[i];
  return reduce_add(to_float(sum[0]));
}
#elif defined(__AVX2__)
// Without VNNI: products added in pairs into int16, those in pairs into int32, then the sum.
float dot_int8(int64_t steps) {
  IVec sum[kChains];
#pragma GCC unroll 12
  for (int i = 0; i < kChains; ++i) sum[i] = IVec{} + i;
  __m256i a = _mm256_set1_epi8(3);
  const __m256i b = _mm256_set1_epi8(-1), ones = _mm256_set1_epi16(1);
  for (int64_t s = 0; s < steps; ++s) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) {
      asm volatile("" : "+x"(a));  // else the products, always the same, leave the loop
      sum[i] = sum[i] + (IVec)_mm256_madd_epi16(_mm256_maddubs_epi16(a, b), ones);
    }
  }
#pragma GCC unroll 12
  for (int i = 1; i < kChains; ++i) sum[0] = sum[0] + sum[i];
  return reduce_add(to_float(sum[0]));
}
#endif

}  // namespace

extern const PeakLoops peak_loops;
const PeakLoops peak_loops = {
    {fma_f32, 2 * kChains* kLanes},
#if defined(__AVX512BF16__)
    {dot_bf16, 4 * kChains* kLanes},
#else
    {nullptr, 0},
#endif
#if defined(__AVX512VNNI__) || defined(__AVX2__)
    {dot_int8, 8 * kChains* kLanes},
#else
    {nullptr, 0},
#endif
};

}  // namespace tandem::TANDEM_ISA
