#include "formats/q8_0/q8_0.h"

#include "base/kernel.h"
#include "base/simd.h"

namespace tandem::TANDEM_ISA {

namespace {

void to_f32(const void* blocks, float* __restrict dst, int64_t n) {
  const BlockQ8_0* __restrict block = (const BlockQ8_0*)blocks;
  for (int64_t i = 0; i < n; i += 32, ++block) {
    const Vec d = set1(f16_to_f32(block->d));
    for (int l = 0; l < 32; l += kLanes) store(dst + i + l, d * to_float(load_i8(block->q + l)));
  }
}

#if defined(__AVX512BF16__)
void to_bf16(const void* blocks, uint16_t* __restrict dst, int64_t n) {
  const BlockQ8_0* __restrict block = (const BlockQ8_0*)blocks;
  for (int64_t i = 0; i < n; i += 32, ++block) {
    const Vec d = set1(f16_to_f32(block->d));
    store_bf16(dst + i, round_bf16(d * to_float(load_i8(block->q)), d * to_float(load_i8(block->q + 16))));
  }
}
#else
constexpr void (*to_bf16)(const void*, uint16_t*, int64_t) = nullptr;
#endif

}  // namespace

TANDEM_FORMAT_KERNELS(Q8_0) = {to_f32, to_bf16};

}  // namespace tandem::TANDEM_ISA
