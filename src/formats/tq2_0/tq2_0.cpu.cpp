#include "formats/tq2_0/tq2_0.h"

#include "base/kernel.h"
#include "base/simd.h"

namespace tandem::TANDEM_ISA {

namespace {

void to_f32(const void* blocks, float* __restrict dst, int64_t n) {
  const BlockTQ2_0* __restrict block = (const BlockTQ2_0*)blocks;
  for (int64_t i = 0; i < n; i += 256, ++block) {
    const Vec d = set1(f16_to_f32(block->d));
    for (int h = 0; h < 2; ++h) {
      for (int m = 0; m < 32; m += kLanes) {
        const IVec packed = load_u8(block->qs + 32 * h + m);
        float* __restrict y = dst + i + 128 * h + m;
        store(y, d * to_float((packed & 3) - 1));
        store(y + 32, d * to_float((packed >> 2 & 3) - 1));
        store(y + 64, d * to_float((packed >> 4 & 3) - 1));
        store(y + 96, d * to_float((packed >> 6) - 1));
      }
    }
  }
}

}  // namespace

TANDEM_FORMAT_KERNELS(TQ2_0) = {to_f32, nullptr};

}  // namespace tandem::TANDEM_ISA
