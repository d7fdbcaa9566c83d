#include "formats/q6_k/q6_k.h"

#include "base/int8.h"
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

#if defined(__AVX512VBMI__)
void pack_i8(const void* blocks, int64_t row_bytes, int rows, int64_t n, const Int8Panel& panel) {
  const PanelRows at = panel_rows(blocks, row_bytes, rows);
  for (int64_t k = 0; k < n; k += 256) {
    const int64_t block = k / 256 * (int64_t)sizeof(BlockQ6_K);
    const Vec d = halves_to_float(_mm512_srli_epi32(dword_column(at, block + 206), 16));
    __m512i sc[4];
    columns_of_16(at, block + 192, sc);
#pragma GCC unroll 16
    for (int s = 0; s < 16; ++s) {
      const IVec scale = ((IVec)sc[s / 4] << (24 - 8 * (s % 4))) >> 24;
      store(panel.scales + (k / 16 + s) * kI8Rows, d * to_float(scale));
    }
    __m512i high[16];
    columns_of(at, block + 128, high);
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      __m512i low[16];
      columns_of(at, block + 64 * h, low);
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) {
        const __m512i tops = high[8 * h + i];
        const auto code = [&](__m512i nibbles, __m512i two) {
          return _mm512_or_si512(nibbles, _mm512_and_si512(two, _mm512_set1_epi8(48)));
        };
        const int64_t element = k + 128 * h + 4 * i;
        store_codes(panel, element, code(low_nibbles(low[i]), _mm512_slli_epi16(tops, 4)));
        store_codes(panel, element + 32, code(low_nibbles(low[8 + i]), _mm512_slli_epi16(tops, 2)));
        store_codes(panel, element + 64, code(high_nibbles(low[i]), tops));
        store_codes(panel, element + 96, code(high_nibbles(low[8 + i]), _mm512_srli_epi16(tops, 2)));
      }
    }
  }
}
#else
TANDEM_INLINE void block_i8(const void* at, uint8_t* codes, float* scales, float*) {
  const BlockQ6_K* block = (const BlockQ6_K*)at;
  const float d = f16_to_f32(block->d);
  for (int s = 0; s < 16; ++s) scales[s] = d * (float)block->sc[s];
  for (int h = 0; h < 2; ++h) {
    for (int g = 0; g < 4; ++g) {
      for (int k = 0; k < 32; ++k) {
        const uint8_t low = block->ql[64 * h + 32 * (g & 1) + k], high = block->qh[32 * h + k];
        codes[128 * h + 32 * g + k] = (uint8_t)((low >> 4 * (g >> 1) & 15) | (high >> 2 * g & 3) << 4);
      }
    }
  }
}

void pack_i8(const void* blocks, int64_t row_bytes, int rows, int64_t n, const Int8Panel& panel) {
  pack_blocks<256, 16, sizeof(BlockQ6_K)>(blocks, row_bytes, rows, 0, n, panel, block_i8);
}
#endif

}  // namespace

TANDEM_FORMAT_KERNELS(Q6_K) = {to_f32, to_bf16, {pack_i8, 16, 32, false}};

}  // namespace tandem::TANDEM_ISA
