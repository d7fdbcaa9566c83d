#include "formats/bf16/bf16.h"

#include "base/kernel.h"
#include "base/simd.h"

namespace tandem::TANDEM_ISA {

namespace {

void to_f32(const void* blocks, float* __restrict dst, int64_t n) {
  const BlockBf16* __restrict values = (const BlockBf16*)blocks;
  for (int64_t i = 0; i < n; ++i) dst[i] = bf16_to_f32(values[i].bits);
}

#if defined(__AVX512BF16__)
void to_bf16(const void* blocks, uint16_t* dst, int64_t n) {
  if (n > 0) memcpy(dst, blocks, (size_t)n * sizeof(BlockBf16));
}
#else
constexpr void (*to_bf16)(const void*, uint16_t*, int64_t) = nullptr;
#endif

}  // namespace

TANDEM_FORMAT_KERNELS(BF16) = {to_f32, to_bf16};

}  // namespace tandem::TANDEM_ISA
