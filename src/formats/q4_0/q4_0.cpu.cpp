#include "formats/q4_0/q4_0.h"

#include "base/int8.h"
#include "base/kernel.h"
#include "base/simd.h"

namespace tandem::TANDEM_ISA {

namespace {

void to_f32(const void* blocks, float* __restrict dst, int64_t n) {
  const BlockQ4_0* __restrict block = (const BlockQ4_0*)blocks;
  for (int64_t i = 0; i < n; i += 32, ++block) {
    const Vec d = set1(f16_to_f32(block->d));
    for (int l = 0; l < 16; l += kLanes) {
      const IVec packed = load_u8(block->qs + l);
      store(dst + i + l, d * to_float((packed & 15) - 8));
      store(dst + i + l + 16, d * to_float((packed >> 4) - 8));
    }
  }
}

#if defined(__AVX512BF16__)
void to_bf16(const void* blocks, uint16_t* __restrict dst, int64_t n) {
  const BlockQ4_0* __restrict block = (const BlockQ4_0*)blocks;
  const Vec codes = iota() - set1(8.f);
  for (int64_t i = 0; i < n; i += 32, ++block) {
    const __m512i table = table_of_16(set1(f16_to_f32(block->d)) * codes);
    store_bf16(dst + i, look_up(table, load_nibbles(block->qs)));
  }
}
#else
constexpr void (*to_bf16)(const void*, uint16_t*, int64_t) = nullptr;
#endif

TANDEM_INLINE void block_i8(const void* at, uint8_t* codes, float* scales, float*) {
  const BlockQ4_0* block = (const BlockQ4_0*)at;
  split_nibbles(block->qs, codes);
  scales[0] = f16_to_f32(block->d);
}

void pack_i8(const void* blocks, int64_t row_bytes, int rows, int64_t n, const Int8Panel& panel) {
  int64_t packed = 0;
#if defined(__AVX512VBMI__)
  const PanelRows at = panel_rows(blocks, row_bytes, rows);
  packed = pack_nibble_blocks<18, 2>(at, n, panel, [](__m512i nibbles) { return nibbles; });
  half_columns(at, 0, 18, packed / 32, panel.scales);
#endif
  pack_blocks<32, 32, 18>(blocks, row_bytes, rows, packed, n, panel, block_i8);
}

#if defined(__AVX512VBMI__)
void dot_i8(const void* blocks, int64_t row_bytes, int rows, int64_t n, const Int8Row& x, bool more,
            float* out) {
  const auto numbers = [](const PanelRows& at, int64_t k, int64_t count, float* scales, float*) {
    half_columns(at, k / 32 * 18, 18, count, scales);
  };
  dot_nibble_blocks<18, 2, 8, false>(
      blocks, row_bytes, rows, n, x, more, out, [](__m512i nibbles) { return nibbles; }, numbers, pack_i8);
}
#else
constexpr decltype(Int8Format::dot) dot_i8 = nullptr;
#endif

}  // namespace

TANDEM_FORMAT_KERNELS(Q4_0) = {to_f32, to_bf16, {pack_i8, 32, 8, false, dot_i8}};

}  // namespace tandem::TANDEM_ISA
