#include "formats/tq1_0/tq1_0.h"

#include "base/kernel.h"
#include "base/simd.h"

namespace tandem::TANDEM_ISA {

namespace {

// 3^t of elements 240 + 4t + j.
constexpr int32_t kTailPowers[16] = {1, 1, 1, 1, 3, 3, 3, 3, 9, 9, 9, 9, 27, 27, 27, 27};

// The digits of bytes less one, -1, 0 or 1; powers are 3^t of digit t.
TANDEM_INLINE Vec digits(IVec bytes, IVec powers) {
  const IVec fractions = (bytes * powers) & 255;
  return to_float((((fractions << 1) + fractions) >> 8) - 1);
}

void to_f32(const void* blocks, float* __restrict dst, int64_t n) {
  const BlockTQ1_0* __restrict block = (const BlockTQ1_0*)blocks;
  for (int64_t i = 0; i < n; i += 256, ++block) {
    const Vec d = set1(f16_to_f32(block->d));
    float* __restrict y = dst + i;
    int power = 1;
    for (int t = 0; t < 5; ++t, power *= 3) {
      const IVec powers = power + IVec{};
      for (int m = 0; m < 32; m += kLanes) store(y + 32 * t + m, d * digits(load_u8(block->qs + m), powers));
      for (int m = 0; m < 16; m += kLanes) {
        store(y + 160 + 16 * t + m, d * digits(load_u8(block->qs + 32 + m), powers));
      }
    }
    uint8_t tail[16];
    for (int m = 0; m < 16; m += 4) memcpy(tail + m, block->qh, 4);
    for (int m = 0; m < 16; m += kLanes) {
      IVec powers;
      memcpy(&powers, kTailPowers + m, sizeof powers);
      store(y + 240 + m, d * digits(load_u8(tail + m), powers));
    }
  }
}

}  // namespace

TANDEM_FORMAT_KERNELS(TQ1_0) = {to_f32, nullptr};

}  // namespace tandem::TANDEM_ISA
