#include "formats/f32/f32.h"

#include "base/kernel.h"
#include "base/simd.h"

namespace tandem::TANDEM_ISA {

namespace {

void to_f32(const void* blocks, float* dst, int64_t n) {
  if (n > 0) memcpy(dst, blocks, (size_t)n * sizeof(BlockF32));
}

}  // namespace

TANDEM_FORMAT_KERNELS(F32) = {to_f32};

}  // namespace tandem::TANDEM_ISA
