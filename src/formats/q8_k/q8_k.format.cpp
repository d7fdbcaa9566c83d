#include "formats/q8_k/q8_k.h"

#include "formats/dtype.h"

namespace tandem {

namespace {

void decode(const void* blocks, float* dst, int64_t n) {
  const auto* block = static_cast<const BlockQ8_K*>(blocks);
  for (int64_t i = 0; i < n; i += 256, ++block) {
    for (int e = 0; e < 256; ++e) dst[i + e] = block->d * static_cast<float>(block->q[e]);
  }
}

}  // namespace

extern const Codec Q8_K_codec{decode, nullptr};

}  // namespace tandem
