#include "formats/q2_k/q2_k.h"

#include "base/int8.h"
#include "base/kernel.h"
#include "base/simd.h"

namespace tandem::TANDEM_ISA {

namespace {

void to_f32(const void* blocks, float* __restrict dst, int64_t n) {
  const BlockQ2_K* __restrict block = (const BlockQ2_K*)blocks;
  for (int64_t i = 0; i < n; i += 256, ++block) {
    const Vec d = set1(f16_to_f32(block->d)), dmin = set1(f16_to_f32(block->dmin));
    float steps[16], offsets[16];
    for (int s = 0; s < 16; s += kLanes) {
      const IVec packed = load_u8(block->scales + s);
      store(steps + s, d * to_float(packed & 15));
      store(offsets + s, dmin * to_float(packed >> 4));
    }
    for (int h = 0; h < 2; ++h) {
      for (int k = 0; k < 32; k += kLanes) {
        const float* step = steps + 8 * h + k / 16;
        const float* offset = offsets + 8 * h + k / 16;
        const IVec packed = load_u8(block->qs + 32 * h + k);
        float* __restrict y = dst + i + 128 * h + k;
        store(y, set1(step[0]) * to_float(packed & 3) - set1(offset[0]));
        store(y + 32, set1(step[2]) * to_float(packed >> 2 & 3) - set1(offset[2]));
        store(y + 64, set1(step[4]) * to_float(packed >> 4 & 3) - set1(offset[4]));
        store(y + 96, set1(step[6]) * to_float(packed >> 6) - set1(offset[6]));
      }
    }
  }
}

#if defined(__AVX512BF16__)
void to_bf16(const void* blocks, uint16_t* __restrict dst, int64_t n) {
  const BlockQ2_K* __restrict block = (const BlockQ2_K*)blocks;
  // The table of 128 elements: four values of each of eight sub-blocks.  A group of 32 has two of them.
  const Vec codes = {0.f, 1.f, 2.f, 3.f, 0.f, 1.f, 2.f, 3.f, 0.f, 1.f, 2.f, 3.f, 0.f, 1.f, 2.f, 3.f};
  const IVec owner = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3};
  const __m512i second = _mm512_maskz_set1_epi16(0xffff0000u, 4);
  for (int64_t i = 0; i < n; i += 256, ++block) {
    const IVec packed_scales = load_u8(block->scales);
    const Vec steps = set1(f16_to_f32(block->d)) * to_float(packed_scales & 15);
    const Vec offsets = set1(f16_to_f32(block->dmin)) * to_float(packed_scales >> 4);
    for (int h = 0; h < 2; ++h) {
      const auto values = [&](int first) {  // of four sub-blocks
        const __m512i from = (__m512i)(owner + first);
        return (Vec)_mm512_permutexvar_ps(from, (__m512)steps) * codes -
               (Vec)_mm512_permutexvar_ps(from, (__m512)offsets);
      };
      const __m512i table = round_bf16(values(8 * h), values(8 * h + 4));
      __m512i packed = load_u8x32(block->qs + 32 * h);
      for (int j = 0; j < 4; ++j) {
        const __m512i code = _mm512_and_si512(packed, _mm512_set1_epi16(3));
        const __m512i sub_block = _mm512_add_epi16(second, _mm512_set1_epi16((int16_t)(8 * j)));
        store_bf16(dst + i + 128 * h + 32 * j, look_up(table, _mm512_add_epi16(code, sub_block)));
        packed = _mm512_srli_epi16(packed, 2);
      }
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
    const int64_t block = k / 256 * (int64_t)sizeof(BlockQ2_K);
    const __m512i both_d = dword_column(at, block + 80);
    const Vec d = halves_to_float(both_d), dmin = halves_to_float(_mm512_srli_epi32(both_d, 16));
    __m512i packed_scales[4];
    columns_of_16(at, block, packed_scales);
#pragma GCC unroll 16
    for (int s = 0; s < 16; ++s) {
      const IVec both = (IVec)packed_scales[s / 4] >> 8 * (s % 4);
      store(panel.scales + (k / 16 + s) * kI8Rows, d * to_float(both & 15));
      store(panel.offsets + (k / 16 + s) * kI8Rows, zero() - dmin * to_float(both >> 4 & 15));
    }
    __m512i columns[16];
    columns_of(at, block + 16, columns);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
#pragma GCC unroll 4
      for (int g = 0; g < 4; ++g) {
        const __m512i code =
            _mm512_and_si512(_mm512_srli_epi16(columns[i], (unsigned)(2 * g)), _mm512_set1_epi8(3));
        store_codes(panel, k + 128 * (i / 8) + 32 * g + 4 * (i % 8), code);
      }
    }
  }
}
#else
TANDEM_INLINE void block_i8(const void* at, uint8_t* codes, float* scales, float* offsets) {
  const BlockQ2_K* block = (const BlockQ2_K*)at;
  const float d = f16_to_f32(block->d), dmin = f16_to_f32(block->dmin);
  for (int s = 0; s < 16; ++s) {
    scales[s] = d * (float)(block->scales[s] & 15);
    offsets[s] = -(dmin * (float)(block->scales[s] >> 4));
  }
  for (int k = 0; k < 256; ++k) codes[k] = block->qs[k / 128 * 32 + k % 32] >> 2 * (k / 32 % 4) & 3;
}

void pack_i8(const void* blocks, int64_t row_bytes, int rows, int64_t n, const Int8Panel& panel) {
  pack_blocks<256, 16, sizeof(BlockQ2_K)>(blocks, row_bytes, rows, 0, n, panel, block_i8);
}
#endif

}  // namespace

TANDEM_FORMAT_KERNELS(Q2_K) = {to_f32, to_bf16, {pack_i8, 16, 0, true}};

}  // namespace tandem::TANDEM_ISA
