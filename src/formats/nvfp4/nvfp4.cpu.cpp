#include "formats/nvfp4/nvfp4.h"

#include "base/kernel.h"
#include "base/simd.h"

namespace tandem::TANDEM_ISA {

namespace {

// Half of a UE4M3 scale.
TANDEM_INLINE float half_scale(uint32_t u) {
  const uint32_t magnitude = u & 127;
  if (magnitude < 8) return (float)magnitude * 0x1p-10f;
  return magnitude == 127 ? 0.0f : float_of_bits((magnitude << 20) + (119u << 23));
}

void to_f32(const void* blocks, float* __restrict dst, int64_t n) {
  const BlockNVFP4* __restrict block = (const BlockNVFP4*)blocks;
  for (int64_t i = 0; i < n; i += 64, ++block) {
    for (int g = 0; g < 4; ++g) {
      const Vec step = set1(half_scale(block->scales[g]));
      float values[16];  // of the codes
      for (int c = 0; c < 16; c += kLanes) store(values + c, step * to_float(load_i8(kNvfp4Values + c)));
      const uint8_t* __restrict qs = block->qs + 8 * g;
      float* __restrict y = dst + i + 16 * g;
      for (int j = 0; j < 8; ++j) {
        y[j] = values[qs[j] & 15];
        y[j + 8] = values[qs[j] >> 4];
      }
    }
  }
}

}  // namespace

TANDEM_FORMAT_KERNELS(NVFP4) = {to_f32, nullptr};

}  // namespace tandem::TANDEM_ISA
