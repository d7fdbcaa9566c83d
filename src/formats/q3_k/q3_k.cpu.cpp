#include "formats/q3_k/q3_k.h"

#include "base/int8.h"
#include "base/kernel.h"
#include "base/simd.h"

namespace tandem::TANDEM_ISA {

namespace {

// d * sc of each sub-block.  The bytes of the four unpacked words are the 6-bit scales in order.
TANDEM_INLINE void unpack_scales(const BlockQ3_K* block, float out[16]) {
  uint32_t w[3];
  memcpy(w, block->scales, 12);
  const uint32_t words[4] = {
      (w[0] & 0x0f0f0f0fu) | (w[2] & 0x03030303u) << 4,
      (w[1] & 0x0f0f0f0fu) | (w[2] >> 2 & 0x03030303u) << 4,
      (w[0] >> 4 & 0x0f0f0f0fu) | (w[2] >> 4 & 0x03030303u) << 4,
      (w[1] >> 4 & 0x0f0f0f0fu) | (w[2] >> 6 & 0x03030303u) << 4,
  };
  uint8_t scales[16];
  memcpy(scales, words, 16);
  const Vec d = set1(f16_to_f32(block->d));
  for (int s = 0; s < 16; s += kLanes) store(out + s, d * to_float(load_u8(scales + s) - 32));
}

void to_f32(const void* blocks, float* __restrict dst, int64_t n) {
  const BlockQ3_K* __restrict block = (const BlockQ3_K*)blocks;
  for (int64_t i = 0; i < n; i += 256, ++block) {
    float steps[16];
    unpack_scales(block, steps);
    for (int h = 0; h < 2; ++h) {
      for (int k = 0; k < 32; k += kLanes) {
        const float* step = steps + 8 * h + k / 16;
        const IVec low = load_u8(block->qs + 32 * h + k);
        const IVec high = load_u8(block->hmask + k) >> 4 * h;
        float* __restrict y = dst + i + 128 * h + k;
        store(y, set1(step[0]) * to_float(((low & 3) | (high & 1) << 2) - 4));
        store(y + 32, set1(step[2]) * to_float(((low >> 2 & 3) | (high & 2) << 1) - 4));
        store(y + 64, set1(step[4]) * to_float(((low >> 4 & 3) | (high & 4)) - 4));
        store(y + 96, set1(step[6]) * to_float((low >> 6 | (high >> 1 & 4)) - 4));
      }
    }
  }
}

#if defined(__AVX512BF16__)
void to_bf16(const void* blocks, uint16_t* __restrict dst, int64_t n) {
  const BlockQ3_K* __restrict block = (const BlockQ3_K*)blocks;
  // The table of 64 elements: eight values of each of four sub-blocks.  A group of 32 has two of them.
  const Vec codes = {-4.f, -3.f, -2.f, -1.f, 0.f, 1.f, 2.f, 3.f, -4.f, -3.f, -2.f, -1.f, 0.f, 1.f, 2.f, 3.f};
  const IVec owner = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1};
  const __m512i second = _mm512_maskz_set1_epi16(0xffff0000u, 8);
  for (int64_t i = 0; i < n; i += 256, ++block) {
    float steps[16];
    unpack_scales(block, steps);
    const __m512i high = load_u8x32(block->hmask);
    for (int h = 0; h < 2; ++h) {
      const __m512i low = load_u8x32(block->qs + 32 * h);
      const auto values = [&](int first) {  // of two sub-blocks
        return (Vec)_mm512_permutexvar_ps((__m512i)(owner + first), (__m512)load(steps)) * codes;
      };
      __m512i table{};
      for (int j = 0; j < 4; ++j) {
        if (j % 2 == 0) table = round_bf16(values(8 * h + 2 * j), values(8 * h + 2 * j + 2));
        const __m512i two = _mm512_and_si512(_mm512_srli_epi16(low, (unsigned)(2 * j)), _mm512_set1_epi16(3));
        const __mmask32 third = _mm512_test_epi16_mask(high, _mm512_set1_epi16((int16_t)(1 << (4 * h + j))));
        const __m512i code = _mm512_mask_add_epi16(two, third, two, _mm512_set1_epi16(4));
        const __m512i sub_block = _mm512_add_epi16(second, _mm512_set1_epi16((int16_t)(16 * (j % 2))));
        store_bf16(dst + i + 128 * h + 32 * j, look_up(table, _mm512_add_epi16(code, sub_block)));
      }
    }
  }
}
#else
constexpr void (*to_bf16)(const void*, uint16_t*, int64_t) = nullptr;
#endif

#if defined(__AVX512VBMI__)
// Bit j of every byte, as four.
TANDEM_INLINE __m512i third(__m512i bits, int j) {
  const __m512i at2 =
      j < 2 ? _mm512_slli_epi16(bits, (unsigned)(2 - j)) : _mm512_srli_epi16(bits, (unsigned)(j - 2));
  return _mm512_and_si512(at2, _mm512_set1_epi8(4));
}

void pack_i8(const void* blocks, int64_t row_bytes, int rows, int64_t n, const Int8Panel& panel) {
  const PanelRows at = panel_rows(blocks, row_bytes, rows);
  for (int64_t k = 0; k < n; k += 256) {
    const int64_t block = k / 256 * (int64_t)sizeof(BlockQ3_K);
    __m512i columns[16];
    for (int r = 0; r < kI8Rows; ++r) {
      float steps[16];
      unpack_scales((const BlockQ3_K*)(at.at[r] + block), steps);
      columns[r] = (__m512i)load(steps);
    }
    transpose16(columns);
    for (int s = 0; s < 16; ++s) store(panel.scales + (k / 16 + s) * kI8Rows, (Vec)columns[s]);
    __m512i high[8];
    columns_of_32(at, block, high);
    columns_of(at, block + 32, columns);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
#pragma GCC unroll 4
      for (int g = 0; g < 4; ++g) {
        const __m512i low =
            _mm512_and_si512(_mm512_srli_epi16(columns[i], (unsigned)(2 * g)), _mm512_set1_epi8(3));
        const int64_t element = k + 128 * (i / 8) + 32 * g + 4 * (i % 8);
        store_codes(panel, element, _mm512_or_si512(low, third(high[i % 8], 4 * (i / 8) + g)));
      }
    }
  }
}
#else
TANDEM_INLINE void block_i8(const void* at, uint8_t* codes, float* scales, float*) {
  const BlockQ3_K* block = (const BlockQ3_K*)at;
  unpack_scales(block, scales);
  for (int k = 0; k < 256; ++k) {
    const int low = block->qs[k / 128 * 32 + k % 32] >> 2 * (k / 32 % 4) & 3;
    codes[k] = (uint8_t)(low | (block->hmask[k % 32] >> k / 32 & 1) << 2);
  }
}

void pack_i8(const void* blocks, int64_t row_bytes, int rows, int64_t n, const Int8Panel& panel) {
  pack_blocks<256, 16, sizeof(BlockQ3_K)>(blocks, row_bytes, rows, 0, n, panel, block_i8);
}
#endif

}  // namespace

TANDEM_FORMAT_KERNELS(Q3_K) = {to_f32, to_bf16, {pack_i8, 16, 4, false}};

}  // namespace tandem::TANDEM_ISA
