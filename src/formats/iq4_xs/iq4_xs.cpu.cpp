#include "formats/iq4_xs/iq4_xs.h"

#include "base/int8.h"
#include "base/kernel.h"
#include "base/simd.h"

namespace tandem::TANDEM_ISA {

namespace {

struct Table {
  Vec v[16 / kLanes];
};

// The values of the sixteen codes at a step.
TANDEM_INLINE Table values_at(Vec step) {
  Table table;
  for (int c = 0; c < 16; c += kLanes) table.v[c / kLanes] = step * to_float(load_i8(kIq4XsValues + c));
  return table;
}

// The values of the codes in the low four bits of each lane; higher bits are ignored.
TANDEM_INLINE Vec choose(const Table& table, IVec codes) {
#if defined(__AVX512F__) && defined(__AVX512DQ__)
  return _mm512_permutexvar_ps((__m512i)codes, table.v[0]);
#elif defined(__AVX2__) && defined(__FMA__)
  const __m256 low = _mm256_permutevar8x32_ps(table.v[0], (__m256i)codes);
  const __m256 high = _mm256_permutevar8x32_ps(table.v[1], (__m256i)codes);
  return _mm256_blendv_ps(low, high, (__m256)(codes << 28));
#else
  float values[16];
  memcpy(values, &table, sizeof values);
  Vec chosen{};
  for (int lane = 0; lane < kLanes; ++lane) chosen[lane] = values[codes[lane] & 15];
  return chosen;
#endif
}

// d times the scale of sub-block b.
TANDEM_INLINE float step_of(const BlockIQ4_XS* block, int b) {
  uint32_t scales_l;
  memcpy(&scales_l, block->scales_l, 4);
  const uint32_t scale = (scales_l >> 4 * b & 15) | ((uint32_t)block->scales_h >> 2 * b & 3) << 4;
  return f16_to_f32(block->d) * (float)((int32_t)scale - 32);
}

void to_f32(const void* blocks, float* __restrict dst, int64_t n) {
  const BlockIQ4_XS* __restrict block = (const BlockIQ4_XS*)blocks;
  for (int64_t i = 0; i < n; i += 256, ++block) {
    for (int b = 0; b < 8; ++b) {
      const Table values = values_at(set1(step_of(block, b)));
      for (int l = 0; l < 16; l += kLanes) {
        const IVec packed = load_u8(block->qs + 16 * b + l);
        store(dst + i + 32 * b + l, choose(values, packed));
        store(dst + i + 32 * b + 16 + l, choose(values, packed >> 4));
      }
    }
  }
}

#if defined(__AVX512BF16__)
void to_bf16(const void* blocks, uint16_t* __restrict dst, int64_t n) {
  const BlockIQ4_XS* __restrict block = (const BlockIQ4_XS*)blocks;
  for (int64_t i = 0; i < n; i += 256, ++block) {
    for (int b = 0; b < 8; ++b) {
      const __m512i table = table_of_16(values_at(set1(step_of(block, b))).v[0]);
      store_bf16(dst + i + 32 * b, look_up(table, load_nibbles(block->qs + 16 * b)));
    }
  }
}
#else
constexpr void (*to_bf16)(const void*, uint16_t*, int64_t) = nullptr;
#endif

#if defined(__AVX512VBMI__)
void pack_i8(const void* blocks, int64_t row_bytes, int rows, int64_t n, const Int8Panel& panel) {
  const PanelRows at = panel_rows(blocks, row_bytes, rows);
  const __m512i table = byte_table(kIq4XsValues, 128);
  for (int64_t k = 0; k < n; k += 256) {
    const int64_t block = k / 256 * (int64_t)sizeof(BlockIQ4_XS);
    __m512i columns[16];
    for (int r = 0; r < kI8Rows; ++r) {
      const BlockIQ4_XS* of_row = (const BlockIQ4_XS*)(at.at[r] + block);
      uint32_t low;
      memcpy(&low, of_row->scales_l, 4);
      const IVec lanes = {0, 1, 2, 3, 4, 5, 6, 7};
      const IVec tops = (IVec)_mm512_srlv_epi32(_mm512_set1_epi32(of_row->scales_h), (__m512i)(2 * lanes));
      const IVec nibbles = (IVec)_mm512_srlv_epi32(_mm512_set1_epi32((int)low), (__m512i)(4 * lanes));
      columns[r] = (__m512i)(set1(f16_to_f32(of_row->d)) * to_float(((nibbles & 15) | (tops & 3) << 4) - 32));
    }
    transpose16(columns);
    for (int b = 0; b < 8; ++b) store(panel.scales + (k / 32 + b) * kI8Rows, (Vec)columns[b]);
    for (int c = 0; c < 2; ++c) {
      columns_of(at, block + 8 + 64 * c, columns);
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) {
        const int64_t element = k + 128 * c + 32 * (i / 4) + 4 * (i % 4);
        store_codes(panel, element, look_up_bytes(table, low_nibbles(columns[i])));
        store_codes(panel, element + 16, look_up_bytes(table, high_nibbles(columns[i])));
      }
    }
  }
}
#else
TANDEM_INLINE void block_i8(const void* at, uint8_t* codes, float* scales, float*) {
  const BlockIQ4_XS* block = (const BlockIQ4_XS*)at;
  for (int b = 0; b < 8; ++b) {
    scales[b] = step_of(block, b);
    split_nibbles(block->qs + 16 * b, codes + 32 * b);
  }
  for (int k = 0; k < 256; ++k) codes[k] = (uint8_t)(kIq4XsValues[codes[k]] + 128);
}

void pack_i8(const void* blocks, int64_t row_bytes, int rows, int64_t n, const Int8Panel& panel) {
  pack_blocks<256, 32, sizeof(BlockIQ4_XS)>(blocks, row_bytes, rows, 0, n, panel, block_i8);
}
#endif

}  // namespace

TANDEM_FORMAT_KERNELS(IQ4_XS) = {to_f32, to_bf16, {pack_i8, 32, 128, false}};

}  // namespace tandem::TANDEM_ISA
