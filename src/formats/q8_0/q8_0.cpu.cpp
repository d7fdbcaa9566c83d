#include "formats/q8_0/q8_0.h"

#include "base/int8.h"
#include "base/kernel.h"
#include "base/simd.h"

namespace tandem::TANDEM_ISA {

namespace {

void to_f32(const void* blocks, float* __restrict dst, int64_t n) {
  const BlockQ8_0* __restrict block = (const BlockQ8_0*)blocks;
  for (int64_t i = 0; i < n; i += 32, ++block) {
    const Vec d = set1(f16_to_f32(block->d));
    for (int l = 0; l < 32; l += kLanes) store(dst + i + l, d * to_float(load_i8(block->q + l)));
  }
}

#if defined(__AVX512BF16__)
void to_bf16(const void* blocks, uint16_t* __restrict dst, int64_t n) {
  const BlockQ8_0* __restrict block = (const BlockQ8_0*)blocks;
  for (int64_t i = 0; i < n; i += 32, ++block) {
    const Vec d = set1(f16_to_f32(block->d));
    store_bf16(dst + i, round_bf16(d * to_float(load_i8(block->q)), d * to_float(load_i8(block->q + 16))));
  }
}
#else
constexpr void (*to_bf16)(const void*, uint16_t*, int64_t) = nullptr;
#endif

TANDEM_INLINE void block_i8(const void* at, uint8_t* codes, float* scales, float*) {
  const BlockQ8_0* block = (const BlockQ8_0*)at;
  for (int k = 0; k < 32; ++k) codes[k] = (uint8_t)(block->q[k] + 128);
  scales[0] = f16_to_f32(block->d);
}

void pack_i8(const void* blocks, int64_t row_bytes, int rows, int64_t n, const Int8Panel& panel) {
  int64_t packed = 0;
#if defined(__AVX512VBMI__)
  const PanelRows at = panel_rows(blocks, row_bytes, rows);
  for (; packed + 64 <= n; packed += 64) {
    pack_64(at, packed / 32 * 34, panel, packed, [](const uint8_t* p) {
      const __m256i first = _mm256_loadu_si256((const __m256i*)(p + 2));
      const __m256i second = _mm256_loadu_si256((const __m256i*)(p + 36));
      const __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1);
      return _mm512_xor_si512(both, _mm512_set1_epi8((char)128));
    });
  }
  half_columns(at, 0, 34, packed / 32, panel.scales);
#endif
  pack_blocks<32, 32, 34>(blocks, row_bytes, rows, packed, n, panel, block_i8);
}

}  // namespace

TANDEM_FORMAT_KERNELS(Q8_0) = {to_f32, to_bf16, {pack_i8, 32, 128, false}};

}  // namespace tandem::TANDEM_ISA
