#include "formats/q6_k/q6_k.h"

#include "base/kernel.h"
#include "base/simd.h"

namespace tandem::TANDEM_ISA {

namespace {

void to_f32(const void* blocks, float* __restrict dst, int64_t n) {
  const BlockQ6_K* __restrict block = (const BlockQ6_K*)blocks;
  for (int64_t i = 0; i < n; i += 256, ++block) {
    const Vec d = set1(f16_to_f32(block->d));
    float steps[16];
    for (int s = 0; s < 16; s += kLanes) store(steps + s, d * to_float(load_i8(block->sc + s)));
    for (int h = 0; h < 2; ++h) {
      for (int k = 0; k < 32; k += kLanes) {
        const float* step = steps + 8 * h + k / 16;
        const IVec low = load_u8(block->ql + 64 * h + k);
        const IVec low2 = load_u8(block->ql + 64 * h + 32 + k);
        const IVec high = load_u8(block->qh + 32 * h + k);
        float* __restrict y = dst + i + 128 * h + k;
        store(y, set1(step[0]) * to_float(((low & 15) | (high & 3) << 4) - 32));
        store(y + 32, set1(step[2]) * to_float(((low2 & 15) | (high & 12) << 2) - 32));
        store(y + 64, set1(step[4]) * to_float((low >> 4 | (high & 48)) - 32));
        store(y + 96, set1(step[6]) * to_float((low2 >> 4 | (high & 192) >> 2) - 32));
      }
    }
  }
}

#if defined(__AVX512BF16__)
// 32 signed bytes times the steps of their two sub-blocks.
TANDEM_INLINE __m512i scaled(const float* step, __m256i codes) {
  return round_bf16(set1(step[0]) * to_float((IVec)_mm512_cvtepi8_epi32(_mm256_castsi256_si128(codes))),
                    set1(step[1]) * to_float((IVec)_mm512_cvtepi8_epi32(_mm256_extracti128_si256(codes, 1))));
}

void to_bf16(const void* blocks, uint16_t* __restrict dst, int64_t n) {
  const BlockQ6_K* __restrict block = (const BlockQ6_K*)blocks;
  const __m256i four = _mm256_set1_epi8(15), two = _mm256_set1_epi8(48), middle = _mm256_set1_epi8(32);
  for (int64_t i = 0; i < n; i += 256, ++block) {
    float steps[16];
    store(steps, set1(f16_to_f32(block->d)) * to_float(load_i8(block->sc)));
    for (int h = 0; h < 2; ++h) {
      const __m256i low = _mm256_loadu_si256((const __m256i*)(block->ql + 64 * h));
      const __m256i low2 = _mm256_loadu_si256((const __m256i*)(block->ql + 64 * h + 32));
      const __m256i high = _mm256_loadu_si256((const __m256i*)(block->qh + 32 * h));
      const auto codes = [&](__m256i nibbles, __m256i tops) {
        return _mm256_sub_epi8(_mm256_or_si256(_mm256_and_si256(nibbles, four), _mm256_and_si256(tops, two)),
                               middle);
      };
      uint16_t* __restrict y = dst + i + 128 * h;
      const float* step = steps + 8 * h;
      store_bf16(y, scaled(step, codes(low, _mm256_slli_epi16(high, 4))));
      store_bf16(y + 32, scaled(step + 2, codes(low2, _mm256_slli_epi16(high, 2))));
      store_bf16(y + 64, scaled(step + 4, codes(_mm256_srli_epi16(low, 4), high)));
      store_bf16(y + 96, scaled(step + 6, codes(_mm256_srli_epi16(low2, 4), _mm256_srli_epi16(high, 2))));
    }
  }
}
#else
constexpr void (*to_bf16)(const void*, uint16_t*, int64_t) = nullptr;
#endif

}  // namespace

TANDEM_FORMAT_KERNELS(Q6_K) = {to_f32, to_bf16};

}  // namespace tandem::TANDEM_ISA
