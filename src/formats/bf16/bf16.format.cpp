#include "formats/bf16/bf16.h"

#include "base/half.h"
#include "formats/dtype.h"

namespace tandem {

namespace {

void decode(const void* blocks, float* dst, int64_t n) {
  const auto* values = static_cast<const BlockBf16*>(blocks);
  for (int64_t i = 0; i < n; ++i) dst[i] = bf16_to_f32(values[i].bits);
}

void encode(const float* src, void* blocks, int64_t n) {
  auto* values = static_cast<BlockBf16*>(blocks);
  for (int64_t i = 0; i < n; ++i) values[i].bits = f32_to_bf16(src[i]);
}

}  // namespace

extern const Codec BF16_codec{decode, encode};

}  // namespace tandem
