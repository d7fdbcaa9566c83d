#include "formats/q8_k/q8_k.h"

#include "base/kernel.h"
#include "base/simd.h"

namespace tandem::TANDEM_ISA {

namespace {

void to_f32(const void* blocks, float* __restrict dst, int64_t n) {
  const BlockQ8_K* __restrict block = (const BlockQ8_K*)blocks;
  for (int64_t i = 0; i < n; i += 256, ++block) {
    const Vec d = set1(block->d);
    for (int l = 0; l < 256; l += kLanes) store(dst + i + l, d * to_float(load_i8(block->q + l)));
  }
}

}  // namespace

TANDEM_FORMAT_KERNELS(Q8_K) = {to_f32, nullptr};

}  // namespace tandem::TANDEM_ISA
