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

void to_f32(const void* blocks, float* __restrict dst, int64_t n) {
  const BlockIQ4_XS* __restrict block = (const BlockIQ4_XS*)blocks;
  for (int64_t i = 0; i < n; i += 256, ++block) {
    const float d = f16_to_f32(block->d);
    uint32_t scales_l;
    memcpy(&scales_l, block->scales_l, 4);
    for (int b = 0; b < 8; ++b) {
      const uint32_t scale = (scales_l >> 4 * b & 15) | ((uint32_t)block->scales_h >> 2 * b & 3) << 4;
      const Table values = values_at(set1(d * (float)((int32_t)scale - 32)));
      for (int l = 0; l < 16; l += kLanes) {
        const IVec packed = load_u8(block->qs + 16 * b + l);
        store(dst + i + 32 * b + l, choose(values, packed));
        store(dst + i + 32 * b + 16 + l, choose(values, packed >> 4));
      }
    }
  }
}

}  // namespace

TANDEM_FORMAT_KERNELS(IQ4_XS) = {to_f32};

}  // namespace tandem::TANDEM_ISA
