#include "formats/f16/f16.h"

#include "base/kernel.h"
#include "base/simd.h"

namespace tandem::TANDEM_ISA {

namespace {

void to_f32(const void* blocks, float* __restrict dst, int64_t n) {
  const BlockF16* __restrict values = (const BlockF16*)blocks;
  int64_t i = 0;
#if defined(__AVX512F__)
  for (; i + 16 <= n; i += 16)
    _mm512_storeu_ps(dst + i, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)(values + i))));
#elif defined(__F16C__)
  for (; i + 8 <= n; i += 8)
    _mm256_storeu_ps(dst + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)(values + i))));
#endif
  for (; i < n; ++i) dst[i] = f16_to_f32(values[i].bits);
}

#if defined(__AVX512BF16__)
void to_bf16(const void* blocks, uint16_t* __restrict dst, int64_t n) {
  const uint16_t* __restrict values = (const uint16_t*)blocks;
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    const __m512i halves = _mm512_loadu_si512(values + i);
    store_bf16(dst + i, round_bf16((Vec)_mm512_cvtph_ps(_mm512_castsi512_si256(halves)),
                                   (Vec)_mm512_cvtph_ps(_mm512_extracti64x4_epi64(halves, 1))));
  }
  for (; i < n; i += 16) {
    const int rest = n - i < 16 ? (int)(n - i) : 16;
    const __m256i halves = _mm256_maskz_loadu_epi16((__mmask16)((1u << rest) - 1u), values + i);
    store_bf16_n(dst + i, (Vec)_mm512_cvtph_ps(halves), rest);
  }
}
#else
constexpr void (*to_bf16)(const void*, uint16_t*, int64_t) = nullptr;
#endif

}  // namespace

TANDEM_FORMAT_KERNELS(F16) = {to_f32, to_bf16};

}  // namespace tandem::TANDEM_ISA
