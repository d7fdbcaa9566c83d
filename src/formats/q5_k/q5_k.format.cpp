#include "formats/q5_k/q5_k.h"

#include "base/half.h"
#include "formats/dtype.h"
#include "formats/k_affine.h"

namespace tandem {

namespace {

void decode(const void* blocks, float* dst, int64_t n) {
  const auto* block = static_cast<const BlockQ5_K*>(blocks);
  for (int64_t i = 0; i < n; i += 256, ++block) {
    const float d = f16_to_f32(block->d);
    const float dmin = f16_to_f32(block->dmin);
    const KScales s = unpack_k_scales(block->scales);
    for (int e = 0; e < 256; ++e) {
      const int j = e / 32;
      const int low = (block->qs[32 * (j / 2) + e % 32] >> 4 * (j % 2)) & 15;
      const int high = (block->qh[e % 32] >> j) & 1;
      dst[i + e] = (d * s.sc[j]) * static_cast<float>(low | high << 4) - dmin * s.mn[j];
    }
  }
}

void encode(const float* src, void* blocks, int64_t n) {
  auto* block = static_cast<BlockQ5_K*>(blocks);
  for (int64_t i = 0; i < n; i += 256, ++block) {
    const KAffineBlock k = quantize_k_affine(src + i, 31);
    block->d = k.d;
    block->dmin = k.dmin;
    pack_k_scales(k.scales, block->scales);
    for (int b = 0; b < 128; ++b) {
      const uint8_t* q = k.q + 64 * (b / 32) + b % 32;
      block->qs[b] = static_cast<uint8_t>((q[0] & 15) | (q[32] & 15) << 4);
    }
    for (int l = 0; l < 32; ++l) {
      int bits = 0;
      for (int j = 0; j < 8; ++j) bits |= (k.q[32 * j + l] >> 4) << j;
      block->qh[l] = static_cast<uint8_t>(bits);
    }
  }
}

}  // namespace

extern const Codec Q5_K_codec{decode, encode};

}  // namespace tandem
