#include "formats/k_affine.h"

#include <algorithm>
#include <cmath>

#include "base/half.h"

namespace tandem {

KScales unpack_k_scales(const uint8_t packed[12]) {
  KScales s;
  for (int j = 0; j < 4; ++j) {
    s.sc[j] = packed[j] & 63;
    s.mn[j] = packed[j + 4] & 63;
  }
  for (int j = 4; j < 8; ++j) {
    s.sc[j] = static_cast<uint8_t>((packed[j + 4] & 15) | (packed[j - 4] >> 6) << 4);
    s.mn[j] = static_cast<uint8_t>((packed[j + 4] >> 4) | (packed[j] >> 6) << 4);
  }
  return s;
}

void pack_k_scales(const KScales& s, uint8_t packed[12]) {
  for (int j = 0; j < 4; ++j) {
    packed[j] = static_cast<uint8_t>(s.sc[j] | (s.sc[j + 4] >> 4) << 6);
    packed[j + 4] = static_cast<uint8_t>(s.mn[j] | (s.mn[j + 4] >> 4) << 6);
    packed[j + 8] = static_cast<uint8_t>((s.sc[j + 4] & 15) | (s.mn[j + 4] & 15) << 4);
  }
}

KAffineBlock quantize_k_affine(const float* x, int n_max) {
  float scale[8];
  float minimum[8];  // how far below zero a sub-block reaches, >= 0
  for (int j = 0; j < 8; ++j) {
    const auto [low, high] = std::minmax_element(x + 32 * j, x + 32 * j + 32);
    const float lo = std::min(0.0f, *low);
    scale[j] = (*high - lo) / static_cast<float>(n_max);
    minimum[j] = 0.0f - lo;  // not -lo: zero stays positive
  }
  const float largest_scale = *std::max_element(scale, scale + 8);
  const float largest_minimum = *std::max_element(minimum, minimum + 8);

  KAffineBlock block;
  block.d = f32_to_f16(largest_scale / 63.0f);
  block.dmin = f32_to_f16(largest_minimum / 63.0f);
  const float d = f16_to_f32(block.d);
  const float dmin = f16_to_f32(block.dmin);
  for (int j = 0; j < 8; ++j) {
    const auto six_bits = [](float part, float whole) {
      return static_cast<uint8_t>(whole > 0.0f ? std::min(63.0f, std::round(63.0f * part / whole)) : 0.0f);
    };
    block.scales.sc[j] = six_bits(scale[j], largest_scale);
    block.scales.mn[j] = six_bits(minimum[j], largest_minimum);
    // The stored scales are used from here on, so that their rounding does not add to that of the codes.
    const float step = d * block.scales.sc[j];
    const float offset = dmin * block.scales.mn[j];
    for (int l = 32 * j; l < 32 * j + 32; ++l) {
      const float code = step > 0.0f ? std::round((x[l] + offset) / step) : 0.0f;
      block.q[l] = static_cast<uint8_t>(std::clamp(code, 0.0f, static_cast<float>(n_max)));
    }
  }
  return block;
}

}  // namespace tandem
