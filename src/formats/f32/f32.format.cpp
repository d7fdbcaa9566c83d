#include "formats/f32/f32.h"

#include <cstring>

#include "formats/dtype.h"

namespace tandem {

namespace {

void decode(const void* blocks, float* dst, int64_t n) {
  if (n > 0) std::memcpy(dst, blocks, static_cast<size_t>(n) * sizeof(BlockF32));
}

void encode(const float* src, void* blocks, int64_t n) {
  if (n > 0) std::memcpy(blocks, src, static_cast<size_t>(n) * sizeof(BlockF32));
}

}  // namespace

extern const Codec F32_codec{decode, encode};

}  // namespace tandem
