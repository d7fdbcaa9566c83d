#include "formats/q5_1/q5_1.h"

#include "base/int8.h"
#include "base/kernel.h"
#include "base/simd.h"

namespace tandem::TANDEM_ISA {

namespace {

// Sixteen in the lanes whose bit of `word` is set, zero in the others; lane 0 has bit 0.
TANDEM_INLINE IVec fifth_bits(uint32_t word) {
  IVec bits{};
  for (int lane = 0; lane < kLanes; ++lane) bits[lane] = 1 << lane;
  const IVec set = (((int32_t)word + IVec{}) & bits) != 0;
  return set & 16;
}

void to_f32(const void* blocks, float* __restrict dst, int64_t n) {
  const BlockQ5_1* __restrict block = (const BlockQ5_1*)blocks;
  for (int64_t i = 0; i < n; i += 32, ++block) {
    const Vec d = set1(f16_to_f32(block->d)), m = set1(f16_to_f32(block->m));
    uint32_t high;
    memcpy(&high, block->qh, 4);
    for (int l = 0; l < 16; l += kLanes) {
      const IVec packed = load_u8(block->qs + l);
      store(dst + i + l, d * to_float((packed & 15) | fifth_bits(high >> l)) + m);
      store(dst + i + l + 16, d * to_float(packed >> 4 | fifth_bits(high >> (16 + l))) + m);
    }
  }
}

#if defined(__AVX512BF16__)
void to_bf16(const void* blocks, uint16_t* __restrict dst, int64_t n) {
  const BlockQ5_1* __restrict block = (const BlockQ5_1*)blocks;
  const Vec low = iota(), high = iota() + set1(16.f);
  for (int64_t i = 0; i < n; i += 32, ++block) {
    const Vec d = set1(f16_to_f32(block->d)), m = set1(f16_to_f32(block->m));
    __mmask32 fifth;
    memcpy(&fifth, block->qh, 4);
    const __m512i codes = _mm512_and_si512(load_nibbles(block->qs), _mm512_set1_epi16(15));
    store_bf16(dst + i, look_up(round_bf16(d * low + m, d * high + m),
                                _mm512_mask_add_epi16(codes, fifth, codes, _mm512_set1_epi16(16))));
  }
}
#else
constexpr void (*to_bf16)(const void*, uint16_t*, int64_t) = nullptr;
#endif

TANDEM_INLINE void block_i8(const void* at, uint8_t* codes, float* scales, float* offsets) {
  const BlockQ5_1* block = (const BlockQ5_1*)at;
  split_fives(block->qh, block->qs, codes);
  scales[0] = f16_to_f32(block->d);
  offsets[0] = f16_to_f32(block->m);
}

void pack_i8(const void* blocks, int64_t row_bytes, int rows, int64_t n, const Int8Panel& panel) {
  int64_t packed = 0;
#if defined(__AVX512VBMI__)
  const PanelRows at = panel_rows(blocks, row_bytes, rows);
  for (; packed + 64 <= n; packed += 64) {
    pack_64(at, packed / 32 * 24, panel, packed, [](const uint8_t* p) {
      const BlockQ5_1* pair = (const BlockQ5_1*)p;
      const __m256i first = fives_of(pair[0].qh, pair[0].qs), second = fives_of(pair[1].qh, pair[1].qs);
      return _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1);
    });
  }
  half_columns(at, 0, 24, packed / 32, panel.scales, panel.offsets);
#endif
  pack_blocks<32, 32, 24>(blocks, row_bytes, rows, packed, n, panel, block_i8);
}

}  // namespace

TANDEM_FORMAT_KERNELS(Q5_1) = {to_f32, to_bf16, {pack_i8, 32, 0, true}};

}  // namespace tandem::TANDEM_ISA
