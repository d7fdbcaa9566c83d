#include "formats/q4_1/q4_1.h"

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

}  // namespace

TANDEM_FORMAT_KERNELS(Q4_1) = {to_f32, to_bf16};

}  // namespace tandem::TANDEM_ISA
