#include "formats/q5_k/q5_k.h"

#include "base/int8.h"
#include "base/kernel.h"
#include "base/simd.h"

namespace tandem::TANDEM_ISA {

namespace {

// Scale and offset of each sub-block: those of sub-block j are out[j % 4][j / 4] = d * sc and out[j % 4][2 +
// j / 4] = dmin * mn.  The bytes of the four unpacked words are sc[0..3], sc[4..7], mn[0..3], mn[4..7].
TANDEM_INLINE void unpack_scales(const BlockQ5_K* block, float out[4][4]) {
  typedef uint32_t UintQuad __attribute__((vector_size(16)));
  typedef int32_t IntQuad __attribute__((vector_size(16)));
  typedef float FloatQuad __attribute__((vector_size(16)));
  uint32_t w[3];
  memcpy(w, block->scales, 12);
  const UintQuad packed = {
      w[0] & 0x3f3f3f3fu,
      (w[2] & 0x0f0f0f0fu) | ((w[0] >> 2) & 0x30303030u),
      w[1] & 0x3f3f3f3fu,
      ((w[2] >> 4) & 0x0f0f0f0fu) | ((w[1] >> 2) & 0x30303030u),
  };
  const float d = f16_to_f32(block->d), dmin = f16_to_f32(block->dmin);
  const FloatQuad factors = {d, d, dmin, dmin};
  for (int k = 0; k < 4; ++k) {
    const IntQuad integers = (IntQuad)((packed >> 8 * k) & 63u);
    const FloatQuad scaled = factors * __builtin_convertvector(integers, FloatQuad);
    memcpy(out[k], &scaled, 16);
  }
}

void to_f32(const void* blocks, float* __restrict dst, int64_t n) {
  const BlockQ5_K* __restrict block = (const BlockQ5_K*)blocks;
  for (int64_t i = 0; i < n; i += 256, ++block) {
    float scales[4][4];
    unpack_scales(block, scales);
    for (int j = 0; j < 8; j += 2) {
      const Vec step = set1(scales[j % 4][j / 4]), step_odd = set1(scales[j % 4 + 1][j / 4]);
      const Vec offset = set1(scales[j % 4][2 + j / 4]), offset_odd = set1(scales[j % 4 + 1][2 + j / 4]);
      float* __restrict y = dst + i + 32 * j;
      for (int l = 0; l < 32; l += kLanes) {
        const IVec packed = load_u8(block->qs + 16 * j + l);
        const IVec high = load_u8(block->qh + l) >> j;
        store(y + l, step * to_float((packed & 15) | (high & 1) << 4) - offset);
        store(y + 32 + l, step_odd * to_float(packed >> 4 | (high & 2) << 3) - offset_odd);
      }
    }
  }
}

#if defined(__AVX512BF16__)
void to_bf16(const void* blocks, uint16_t* __restrict dst, int64_t n) {
  const BlockQ5_K* __restrict block = (const BlockQ5_K*)blocks;
  const Vec low = iota(), high = iota() + set1(16.f);
  for (int64_t i = 0; i < n; i += 256, ++block) {
    float scales[4][4];
    unpack_scales(block, scales);
    const __m512i fifths = load_u8x32(block->qh);
    for (int j = 0; j < 8; ++j) {
      const Vec step = set1(scales[j % 4][j / 4]), offset = set1(scales[j % 4][2 + j / 4]);
      const __m512i table = round_bf16(step * low - offset, step * high - offset);
      const __m512i packed = _mm512_srli_epi16(load_u8x32(block->qs + 32 * (j / 2)), (unsigned)(4 * (j % 2)));
      const __m512i four = _mm512_and_si512(packed, _mm512_set1_epi16(15));
      const __mmask32 fifth = _mm512_test_epi16_mask(fifths, _mm512_set1_epi16((int16_t)(1 << j)));
      const __m512i codes = _mm512_mask_add_epi16(four, fifth, four, _mm512_set1_epi16(16));
      store_bf16(dst + i + 32 * j, look_up(table, codes));
    }
  }
}
#else
constexpr void (*to_bf16)(const void*, uint16_t*, int64_t) = nullptr;
#endif

#if defined(__AVX512VBMI__)
// Bit j of every byte, as sixteen.
TANDEM_INLINE __m512i fifth(__m512i bits, int j) {
  const __m512i at4 =
      j < 4 ? _mm512_slli_epi16(bits, (unsigned)(4 - j)) : _mm512_srli_epi16(bits, (unsigned)(j - 4));
  return _mm512_and_si512(at4, _mm512_set1_epi8(16));
}

void pack_i8(const void* blocks, int64_t row_bytes, int rows, int64_t n, const Int8Panel& panel) {
  const PanelRows at = panel_rows(blocks, row_bytes, rows);
  for (int64_t k = 0; k < n; k += 256) {
    const int64_t block = k / 256 * (int64_t)sizeof(BlockQ5_K);
    k_scale_columns(at, block, panel.scales + k / 32 * kI8Rows, panel.offsets + k / 32 * kI8Rows);
    __m512i high[8];
    columns_of_32(at, block + 16, high);
#pragma GCC unroll 2
    for (int c = 0; c < 2; ++c) {
      __m512i columns[16];
      columns_of(at, block + 48 + 64 * c, columns);
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) {
        const int j = 4 * c + 2 * (i / 8);
        const int64_t element = k + 32 * j + 4 * (i % 8);
        store_codes(panel, element, _mm512_or_si512(low_nibbles(columns[i]), fifth(high[i % 8], j)));
        store_codes(panel, element + 32,
                    _mm512_or_si512(high_nibbles(columns[i]), fifth(high[i % 8], j + 1)));
      }
    }
  }
}
#else
TANDEM_INLINE void block_i8(const void* at, uint8_t* codes, float* scales, float* offsets) {
  const BlockQ5_K* block = (const BlockQ5_K*)at;
  float unpacked[4][4];
  unpack_scales(block, unpacked);
  for (int j = 0; j < 8; ++j) {
    scales[j] = unpacked[j % 4][j / 4];
    offsets[j] = -unpacked[j % 4][2 + j / 4];
  }
  for (int k = 0; k < 256; ++k) {
    const uint8_t packed = block->qs[k / 64 * 32 + k % 32];
    codes[k] = (uint8_t)((k / 32 % 2 ? packed >> 4 : packed & 15) | (block->qh[k % 32] >> k / 32 & 1) << 4);
  }
}

void pack_i8(const void* blocks, int64_t row_bytes, int rows, int64_t n, const Int8Panel& panel) {
  pack_blocks<256, 32, sizeof(BlockQ5_K)>(blocks, row_bytes, rows, 0, n, panel, block_i8);
}
#endif

}  // namespace

TANDEM_FORMAT_KERNELS(Q5_K) = {to_f32, to_bf16, {pack_i8, 32, 0, true}};

}  // namespace tandem::TANDEM_ISA
