#include "formats/iq4_nl/iq4_nl.h"

#include "base/half.h"
#include "formats/dtype.h"

namespace tandem {

namespace {

void decode(const void* blocks, float* dst, int64_t n) {
  const auto* block = static_cast<const BlockIQ4_NL*>(blocks);
  for (int64_t i = 0; i < n; i += 32, ++block) {
    const float d = f16_to_f32(block->d);
    for (int j = 0; j < 16; ++j) {
      dst[i + j] = d * static_cast<float>(kIq4NlValues[block->qs[j] & 15]);
      dst[i + j + 16] = d * static_cast<float>(kIq4NlValues[block->qs[j] >> 4]);
    }
  }
}

}  // namespace

extern const Codec IQ4_NL_codec{decode, nullptr};

}  // namespace tandem
