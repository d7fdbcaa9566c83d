#include "formats/q4_k/q4_k.h"

#include "base/half.h"
#include "formats/dtype.h"
#include "formats/k_affine.h"

namespace tandem {

namespace {

void decode(const void* blocks, float* dst, int64_t n) {
  const auto* block = static_cast<const BlockQ4_K*>(blocks);
  for (int64_t i = 0; i < n; i += 256, ++block) {
    const float d = f16_to_f32(block->d);
    const float dmin = f16_to_f32(block->dmin);
    const KScales s = unpack_k_scales(block->scales);
    for (int e = 0; e < 256; ++e) {
      const int j = e / 32;
      const int q = (block->qs[32 * (j / 2) + e % 32] >> 4 * (j % 2)) & 15;
      dst[i + e] = (d * s.sc[j]) * static_cast<float>(q) - dmin * s.mn[j];
    }
  }
}

void encode(const float* src, void* blocks, int64_t n) {
  auto* block = static_cast<BlockQ4_K*>(blocks);
  for (int64_t i = 0; i < n; i += 256, ++block) {
    const KAffineBlock k = quantize_k_affine(src + i, 15);
    block->d = k.d;
    block->dmin = k.dmin;
    pack_k_scales(k.scales, block->scales);
    for (int b = 0; b < 128; ++b) {
      const uint8_t* q = k.q + 64 * (b / 32) + b % 32;
      block->qs[b] = static_cast<uint8_t>(q[0] | q[32] << 4);
    }
  }
}

}  // namespace

extern const Codec Q4_K_codec{decode, encode};

}  // namespace tandem
