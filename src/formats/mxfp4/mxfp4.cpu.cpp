#include "formats/mxfp4/mxfp4.h"

#include "base/int8.h"
#include "base/kernel.h"
#include "base/simd.h"

namespace tandem::TANDEM_ISA {

namespace {

// 2^(e - 128); subnormal for e < 2.
TANDEM_INLINE float half_scale(uint32_t e) { return float_of_bits(e < 2 ? 0x00200000u << e : (e - 1) << 23); }

struct Table {
  Vec v[16 / kLanes];
};

// The values of the sixteen codes at a step.
TANDEM_INLINE Table values_at(Vec step) {
  Table table;
  for (int c = 0; c < 16; c += kLanes) table.v[c / kLanes] = step * to_float(load_i8(kMxfp4Values + c));
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

void to_f32(const void* blocks, float* __restrict dst, int64_t n) {
  const BlockMXFP4* __restrict block = (const BlockMXFP4*)blocks;
  for (int64_t i = 0; i < n; i += 32, ++block) {
    const Table values = values_at(set1(half_scale(block->e)));
    for (int l = 0; l < 16; l += kLanes) {
      const IVec packed = load_u8(block->qs + l);
      store(dst + i + l, choose(values, packed));
      store(dst + i + l + 16, choose(values, packed >> 4));
    }
  }
}

#if defined(__AVX512BF16__)
void to_bf16(const void* blocks, uint16_t* __restrict dst, int64_t n) {
  const BlockMXFP4* __restrict block = (const BlockMXFP4*)blocks;
  for (int64_t i = 0; i < n; i += 32, ++block) {
    const __m512i table = table_of_16(values_at(set1(half_scale(block->e))).v[0]);
    store_bf16(dst + i, look_up(table, load_nibbles(block->qs)));
  }
}
#else
constexpr void (*to_bf16)(const void*, uint16_t*, int64_t) = nullptr;
#endif

#if defined(__AVX512VBMI__)
// The scales of `count` blocks of each row, kI8Rows to a block.
TANDEM_INLINE void exponent_columns(const PanelRows& rows, int64_t at, int64_t count, float* out) {
  for (int64_t j = 0; j < count; ++j) {
    const IVec exponent = (IVec)dword_column(rows, at + j * 17) & 255;
    const IVec normal = (exponent - 1) << 23, subnormal = 0x00200000 << exponent;
    store(out + j * kI8Rows, (Vec)(exponent < 2 ? subnormal : normal));
  }
}
#endif

TANDEM_INLINE void block_i8(const void* at, uint8_t* codes, float* scales, float*) {
  const BlockMXFP4* block = (const BlockMXFP4*)at;
  split_nibbles(block->qs, codes);
  for (int k = 0; k < 32; ++k) codes[k] = (uint8_t)(kMxfp4Values[codes[k]] + 12);
  scales[0] = half_scale(block->e);
}

void pack_i8(const void* blocks, int64_t row_bytes, int rows, int64_t n, const Int8Panel& panel) {
  int64_t packed = 0;
#if defined(__AVX512VBMI__)
  const PanelRows at = panel_rows(blocks, row_bytes, rows);
  const __m512i table = byte_table(kMxfp4Values, 12);
  packed =
      pack_nibble_blocks<17, 1>(at, n, panel, [&](__m512i nibbles) { return look_up_bytes(table, nibbles); });
  exponent_columns(at, 0, packed / 32, panel.scales);
#endif
  pack_blocks<32, 32, 17>(blocks, row_bytes, rows, packed, n, panel, block_i8);
}

#if defined(__AVX512VBMI__)
void dot_i8(const void* blocks, int64_t row_bytes, int rows, int64_t n, const Int8Row& x, bool more,
            float* out) {
  const __m512i table = byte_table(kMxfp4Values, 12);
  const auto numbers = [](const PanelRows& at, int64_t k, int64_t count, float* scales, float*) {
    exponent_columns(at, k / 32 * 17, count, scales);
  };
  dot_nibble_blocks<17, 1, 12, false>(
      blocks, row_bytes, rows, n, x, more, out,
      [&](__m512i nibbles) { return look_up_bytes(table, nibbles); }, numbers, pack_i8);
}
#else
constexpr decltype(Int8Format::dot) dot_i8 = nullptr;
#endif

}  // namespace

TANDEM_FORMAT_KERNELS(MXFP4) = {to_f32, to_bf16, {pack_i8, 32, 12, false, dot_i8}};

}  // namespace tandem::TANDEM_ISA
