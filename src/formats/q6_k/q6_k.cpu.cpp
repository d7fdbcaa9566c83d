#include "formats/q6_k/q6_k.h"

#include "base/kernel.h"
#include "base/simd.h"

namespace tandem::TANDEM_ISA {

namespace {

void to_f32(const void* blocks, float* __restrict dst, int64_t n) {
  const BlockQ6_K* __restrict block = (const BlockQ6_K*)blocks;
  for (int64_t i = 0; i < n; i += 256, ++block) {
    const Vec d = set1(f16_to_f32(block->d));
    float steps[16];
    for (int s = 0; s < 16; s += kLanes) store(steps + s, d * to_float(load_i8(block->sc + s)));
    for (int h = 0; h < 2; ++h) {
      for (int k = 0; k < 32; k += kLanes) {
        const float* step = steps + 8 * h + k / 16;
        const IVec low = load_u8(block->ql + 64 * h + k);
        const IVec low2 = load_u8(block->ql + 64 * h + 32 + k);
        const IVec high = load_u8(block->qh + 32 * h + k);
        float* __restrict y = dst + i + 128 * h + k;
        store(y, set1(step[0]) * to_float(((low & 15) | (high & 3) << 4) - 32));
        store(y + 32, set1(step[2]) * to_float(((low2 & 15) | (high & 12) << 2) - 32));
        store(y + 64, set1(step[4]) * to_float((low >> 4 | (high & 48)) - 32));
        store(y + 96, set1(step[6]) * to_float((low2 >> 4 | (high & 192) >> 2) - 32));
      }
    }
  }
}

}  // namespace

TANDEM_FORMAT_KERNELS(Q6_K) = {to_f32};

}  // namespace tandem::TANDEM_ISA
