#include "formats/tq2_0/tq2_0.h"

#include "base/half.h"
#include "formats/dtype.h"

namespace tandem {

namespace {

void decode(const void* blocks, float* dst, int64_t n) {
  const auto* block = static_cast<const BlockTQ2_0*>(blocks);
  for (int64_t i = 0; i < n; i += 256, ++block) {
    const float d = f16_to_f32(block->d);
    for (int e = 0; e < 256; ++e) {
      const int q = (block->qs[32 * (e / 128) + e % 32] >> 2 * (e / 32 % 4)) & 3;
      dst[i + e] = d * static_cast<float>(q - 1);
    }
  }
}

}  // namespace

extern const Codec TQ2_0_codec{decode, nullptr};

}  // namespace tandem
