#include "formats/q2_k/q2_k.h"

#include "base/kernel.h"
#include "base/simd.h"

namespace tandem::TANDEM_ISA {

namespace {

void to_f32(const void* blocks, float* __restrict dst, int64_t n) {
  const BlockQ2_K* __restrict block = (const BlockQ2_K*)blocks;
  for (int64_t i = 0; i < n; i += 256, ++block) {
    const Vec d = set1(f16_to_f32(block->d)), dmin = set1(f16_to_f32(block->dmin));
    float steps[16], offsets[16];
    for (int s = 0; s < 16; s += kLanes) {
      const IVec packed = load_u8(block->scales + s);
      store(steps + s, d * to_float(packed & 15));
      store(offsets + s, dmin * to_float(packed >> 4));
    }
    for (int h = 0; h < 2; ++h) {
      for (int k = 0; k < 32; k += kLanes) {
        const float* step = steps + 8 * h + k / 16;
        const float* offset = offsets + 8 * h + k / 16;
        const IVec packed = load_u8(block->qs + 32 * h + k);
        float* __restrict y = dst + i + 128 * h + k;
        store(y, set1(step[0]) * to_float(packed & 3) - set1(offset[0]));
        store(y + 32, set1(step[2]) * to_float(packed >> 2 & 3) - set1(offset[2]));
        store(y + 64, set1(step[4]) * to_float(packed >> 4 & 3) - set1(offset[4]));
        store(y + 96, set1(step[6]) * to_float(packed >> 6) - set1(offset[6]));
      }
    }
  }
}

}  // namespace

TANDEM_FORMAT_KERNELS(Q2_K) = {to_f32};

}  // namespace tandem::TANDEM_ISA
