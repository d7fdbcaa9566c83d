#include "formats/q4_1/q4_1.h"

#include "base/half.h"
#include "formats/dtype.h"

namespace tandem {

namespace {

void decode(const void* blocks, float* dst, int64_t n) {
  const auto* block = static_cast<const BlockQ4_1*>(blocks);
  for (int64_t i = 0; i < n; i += 32, ++block) {
    const float d = f16_to_f32(block->d);
    const float m = f16_to_f32(block->m);
    for (int j = 0; j < 16; ++j) {
      dst[i + j] = d * static_cast<float>(block->qs[j] & 15) + m;
      dst[i + j + 16] = d * static_cast<float>(block->qs[j] >> 4) + m;
    }
  }
}

}  // namespace

extern const Codec Q4_1_codec{decode, nullptr};

}  // namespace tandem
