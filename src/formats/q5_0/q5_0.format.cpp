#include "formats/q5_0/q5_0.h"

#include "base/half.h"
#include "formats/dtype.h"

namespace tandem {

namespace {

void decode(const void* blocks, float* dst, int64_t n) {
  const auto* block = static_cast<const BlockQ5_0*>(blocks);
  for (int64_t i = 0; i < n; i += 32, ++block) {
    const float d = f16_to_f32(block->d);
    for (int e = 0; e < 32; ++e) {
      const int low = (block->qs[e % 16] >> 4 * (e / 16)) & 15;
      const int high = (block->qh[e / 8] >> e % 8) & 1;
      dst[i + e] = d * static_cast<float>((low | high << 4) - 16);
    }
  }
}

}  // namespace

extern const Codec Q5_0_codec{decode, nullptr};

}  // namespace tandem
