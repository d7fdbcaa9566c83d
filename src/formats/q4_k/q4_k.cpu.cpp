#include "formats/q4_k/q4_k.h"

#include "base/int8.h"
#include "base/kernel.h"
#include "base/simd.h"

namespace tandem::TANDEM_ISA {

namespace {

// Scale and offset of each sub-block: those of sub-block j are out[j % 4][j / 4] = d * sc and out[j % 4][2 +
// j / 4] = dmin * mn.  The bytes of the four unpacked words are sc[0..3], sc[4..7], mn[0..3], mn[4..7].
TANDEM_INLINE void unpack_scales(const BlockQ4_K* block, float out[4][4]) {
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
  const BlockQ4_K* __restrict block = (const BlockQ4_K*)blocks;
  for (int64_t i = 0; i < n; i += 256, ++block) {
    float scales[4][4];
    unpack_scales(block, scales);
    for (int j = 0; j < 8; j += 2) {
      const Vec step = set1(scales[j % 4][j / 4]), step_odd = set1(scales[j % 4 + 1][j / 4]);
      const Vec offset = set1(scales[j % 4][2 + j / 4]), offset_odd = set1(scales[j % 4 + 1][2 + j / 4]);
      float* __restrict y = dst + i + 32 * j;
      for (int l = 0; l < 32; l += kLanes) {
        const IVec packed = load_u8(block->qs + 16 * j + l);
        store(y + l, step * to_float(packed & 15) - offset);
        store(y + 32 + l, step_odd * to_float(packed >> 4) - offset_odd);
      }
    }
  }
}

#if defined(__AVX512BF16__)
void to_bf16(const void* blocks, uint16_t* __restrict dst, int64_t n) {
  const BlockQ4_K* __restrict block = (const BlockQ4_K*)blocks;
  for (int64_t i = 0; i < n; i += 256, ++block) {
    float scales[4][4];
    unpack_scales(block, scales);
    const auto table = [&](int j) {  // of sub-block j
      return table_of_16(set1(scales[j % 4][j / 4]) * iota() - set1(scales[j % 4][2 + j / 4]));
    };
    for (int j = 0; j < 8; j += 2) {
      const __m512i packed = load_u8x32(block->qs + 16 * j);
      store_bf16(dst + i + 32 * j, look_up(table(j), packed));
      store_bf16(dst + i + 32 * j + 32, look_up(table(j + 1), _mm512_srli_epi16(packed, 4)));
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
    const int64_t block = k / 256 * (int64_t)sizeof(BlockQ4_K);
    k_scale_columns(at, block, panel.scales + k / 32 * kI8Rows, panel.offsets + k / 32 * kI8Rows);
    for (int c = 0; c < 2; ++c) {
      __m512i columns[16];
      columns_of(at, block + 16 + 64 * c, columns);
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) {
        const int64_t element = k + 128 * c + 64 * (i / 8) + 4 * (i % 8);
        store_codes(panel, element, low_nibbles(columns[i]));
        store_codes(panel, element + 32, high_nibbles(columns[i]));
      }
    }
  }
}

void dot_i8(const void* blocks, int64_t row_bytes, int rows, int64_t n, const Int8Row& x, bool more,
            float* out) {
  const PanelRows at = panel_rows(blocks, row_bytes, rows);
  Vec y = zero();
  for (int64_t k = 0; k < n; k += 256) {
    const int64_t block = k / 256 * (int64_t)sizeof(BlockQ4_K);
    float scales[8 * kI8Rows], offsets[8 * kI8Rows];
    k_scale_columns(at, block, scales, offsets);
    for (int c = 0; c < 2; ++c) {  // four sub-blocks, in the nibbles of 64 bytes
      if (more) fetch_behind(blocks, rows * row_bytes, k / 128 + c, n / 128);
      __m512i columns[16], even[4] = {}, odd[4] = {};
#pragma GCC unroll 16
      for (int r = 0; r < kI8Rows; ++r) columns[r] = _mm512_loadu_si512(at.at[r] + block + 16 + 64 * c);
      transpose_quarters(columns);
      const int8_t* codes = x.codes + k + 128 * c;
      add_dots(columns, two_pieces(codes, codes + 64), even, low_nibbles);
      add_dots(columns, two_pieces(codes + 32, codes + 96), odd, high_nibbles_x16);
      gather_quarters(even);
      gather_quarters(odd);
      const auto sixteenth = [](__m512i a, __m512i b) {
        return _mm512_srai_epi32(_mm512_add_epi32(a, b), 4);
      };
      const __m512i sums[4] = {_mm512_add_epi32(even[0], even[1]), sixteenth(odd[0], odd[1]),
                               _mm512_add_epi32(even[2], even[3]), sixteenth(odd[2], odd[3])};
#pragma GCC unroll 4
      for (int b = 0; b < 4; ++b) {
        y = add_group(y, sums[b], 0, load(scales + (4 * c + b) * kI8Rows), x, k / 32 + 4 * c + b);
        y = add_offsets(y, load(offsets + (4 * c + b) * kI8Rows), x, k / 32 + 4 * c + b);
      }
    }
  }
  store_n(out, y, rows);
}
#else
constexpr decltype(Int8Format::dot) dot_i8 = nullptr;

TANDEM_INLINE void block_i8(const void* at, uint8_t* codes, float* scales, float* offsets) {
  const BlockQ4_K* block = (const BlockQ4_K*)at;
  float unpacked[4][4];
  unpack_scales(block, unpacked);
  for (int j = 0; j < 8; ++j) {
    scales[j] = unpacked[j % 4][j / 4];
    offsets[j] = -unpacked[j % 4][2 + j / 4];
  }
  for (int k = 0; k < 256; ++k) {
    const uint8_t packed = block->qs[k / 64 * 32 + k % 32];
    codes[k] = k / 32 % 2 ? packed >> 4 : packed & 15;
  }
}

void pack_i8(const void* blocks, int64_t row_bytes, int rows, int64_t n, const Int8Panel& panel) {
  pack_blocks<256, 32, sizeof(BlockQ4_K)>(blocks, row_bytes, rows, 0, n, panel, block_i8);
}
#endif

}  // namespace

TANDEM_FORMAT_KERNELS(Q4_K) = {to_f32, to_bf16, {pack_i8, 32, 0, true, dot_i8}};

}  // namespace tandem::TANDEM_ISA
