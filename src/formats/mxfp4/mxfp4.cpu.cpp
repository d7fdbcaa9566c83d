#include "formats/mxfp4/mxfp4.h"

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

}  // namespace

TANDEM_FORMAT_KERNELS(MXFP4) = {to_f32, to_bf16};

}  // namespace tandem::TANDEM_ISA
