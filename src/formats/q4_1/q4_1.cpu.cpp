#include "formats/q4_1/q4_1.h"

#include "base/int8.h"
#include "base/kernel.h"
#include "base/simd.h"

namespace tandem::TANDEM_ISA {

namespace {

void to_f32(const void* blocks, float* __restrict dst, int64_t n) {
  const BlockQ4_1* __restrict block = (const BlockQ4_1*)blocks;
  for (int64_t i = 0; i < n; i += 32, ++block) {
    const Vec d = set1(f16_to_f32(block->d)), m = set1(f16_to_f32(block->m));
    for (int l = 0; l < 16; l += kLanes) {
      const IVec packed = load_u8(block->qs + l);
      store(dst + i + l, d * to_float(packed & 15) + m);
      store(dst + i + l + 16, d * to_float(packed >> 4) + m);
    }
  }
}

#if defined(__AVX512BF16__)
void to_bf16(const void* blocks, uint16_t* __restrict dst, int64_t n) {
  const BlockQ4_1* __restrict block = (const BlockQ4_1*)blocks;
  for (int64_t i = 0; i < n; i += 32, ++block) {
    const __m512i table = table_of_16(set1(f16_to_f32(block->d)) * iota() + set1(f16_to_f32(block->m)));
    store_bf16(dst + i, look_up(table, load_nibbles(block->qs)));
  }
}
#else
constexpr void (*to_bf16)(const void*, uint16_t*, int64_t) = nullptr;
#endif

TANDEM_INLINE void block_i8(const void* at, uint8_t* codes, float* scales, float* offsets) {
  const BlockQ4_1* block = (const BlockQ4_1*)at;
  split_nibbles(block->qs, codes);
  scales[0] = f16_to_f32(block->d);
  offsets[0] = f16_to_f32(block->m);
}

void pack_i8(const void* blocks, int64_t row_bytes, int rows, int64_t n, const Int8Panel& panel) {
  int64_t packed = 0;
#if defined(__AVX512VBMI__)
  const PanelRows at = panel_rows(blocks, row_bytes, rows);
  packed = pack_nibble_blocks<20, 4>(at, n, panel, [](__m512i nibbles) { return nibbles; });
  half_columns(at, 0, 20, packed / 32, panel.scales, panel.offsets);
#endif
  pack_blocks<32, 32, 20>(blocks, row_bytes, rows, packed, n, panel, block_i8);
}

#if defined(__AVX512VBMI__)
void dot_i8(const void* blocks, int64_t row_bytes, int rows, int64_t n, const Int8Row& x, bool more,
            float* out) {
  const auto numbers = [](const PanelRows& at, int64_t k, int64_t count, float* scales, float* offsets) {
    half_columns(at, k / 32 * 20, 20, count, scales, offsets);
  };
  dot_nibble_blocks<20, 4, 0, true>(
      blocks, row_bytes, rows, n, x, more, out, [](__m512i nibbles) { return nibbles; }, numbers, pack_i8);
}
#else
constexpr decltype(Int8Format::dot) dot_i8 = nullptr;
#endif

}  // namespace

TANDEM_FORMAT_KERNELS(Q4_1) = {to_f32, to_bf16, {pack_i8, 32, 0, true, dot_i8}};

}  // namespace tandem::TANDEM_ISA
