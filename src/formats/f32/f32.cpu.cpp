#include "formats/f32/f32.h"

#include "base/kernel.h"
#include "base/simd.h"

namespace tandem::TANDEM_ISA {

namespace {

void to_f32(const void* blocks, float* dst, int64_t n) {
  if (n > 0) memcpy(dst, blocks, (size_t)n * sizeof(BlockF32));
}

#if defined(__AVX512BF16__)
void to_bf16(const void* blocks, uint16_t* __restrict dst, int64_t n) {
  const float* __restrict values = (const float*)blocks;
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) store_bf16(dst + i, round_bf16(load(values + i), load(values + i + 16)));
  for (; i < n; i += 16) {
    const int rest = n - i < 16 ? (int)(n - i) : 16;
    store_bf16_n(dst + i, load_n(values + i, rest), rest);
  }
}
#else
constexpr void (*to_bf16)(const void*, uint16_t*, int64_t) = nullptr;
#endif

}  // namespace

TANDEM_FORMAT_KERNELS(F32) = {to_f32, to_bf16};

}  // namespace tandem::TANDEM_ISA
