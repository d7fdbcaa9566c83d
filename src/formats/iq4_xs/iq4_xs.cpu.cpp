#include "formats/iq4_xs/iq4_xs.h"

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

}  // namespace

TANDEM_FORMAT_KERNELS(IQ4_XS) = {to_f32, to_bf16};

}  // namespace tandem::TANDEM_ISA
