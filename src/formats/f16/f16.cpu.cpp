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

}  // namespace

TANDEM_FORMAT_KERNELS(F16) = {to_f32};

}  // namespace tandem::TANDEM_ISA
