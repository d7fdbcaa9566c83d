#include "formats/f16/f16.h"

#include "base/half.h"
#include "formats/dtype.h"

namespace tandem {

namespace {

void decode(const void* blocks, float* dst, int64_t n) {
  const auto* values = static_cast<const BlockF16*>(blocks);
  for (int64_t i = 0; i < n; ++i) dst[i] = f16_to_f32(values[i].bits);
}

void encode(const float* src, void* blocks, int64_t n) {
  auto* values = static_cast<BlockF16*>(blocks);
  for (int64_t i = 0; i < n; ++i) values[i].bits = f32_to_f16(src[i]);
}

}  // namespace

extern const Codec F16_codec{decode, encode};

}  // namespace tandem
