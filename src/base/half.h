// binary16 and bfloat16 for cold code.  Kernel files have their own copies in base/simd.h.  Source:
// quantization.md 2.
#pragma once
#include <bit>
#include <cstdint>

namespace tandem {

// The value of a binary16.  Exact; a signalling NaN comes out quiet, as from the CPU's own instruction.
constexpr float f16_to_f32(uint16_t h) {
  const uint32_t sign = uint32_t(h & 0x8000u) << 16;
  const uint32_t exponent = (h >> 10) & 31u;
  const uint32_t mantissa = h & 0x3ffu;
  if (exponent == 31) {
    return std::bit_cast<float>(sign | 0x7f800000u | (mantissa ? 0x400000u | mantissa << 13 : 0u));
  }
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | (exponent + 112u) << 23 | mantissa << 13);
}

// The nearest binary16, ties to even; from 65520 on infinite, NaN quiet with the top bits of its payload.
constexpr uint16_t f32_to_f16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return uint16_t(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  if (magnitude >= 0x477ff000u) return uint16_t(sign | 0x7c00u);  // 65520
  if (magnitude <= 0x33000000u) return uint16_t(sign);            // 2^-25, a tie that goes to even
  const uint32_t exponent = magnitude >> 23;
  uint32_t significand = magnitude;
  uint32_t dropped_bits = 13;
  if (exponent < 113) {  // below 2^-14: a subnormal result
    significand = (magnitude & 0x7fffffu) | 0x800000u;
    dropped_bits = 126 - exponent;  // 14 .. 24
  } else {
    significand -= 112u << 23;
  }
  const uint32_t odd = (significand >> dropped_bits) & 1u;
  return uint16_t(sign | ((significand + (1u << (dropped_bits - 1)) - 1u + odd) >> dropped_bits));
}

// The value of a bfloat16.  Exact.
constexpr float bf16_to_f32(uint16_t b) { return std::bit_cast<float>(uint32_t(b) << 16); }

// The nearest bfloat16, ties to even; NaN stays NaN and becomes quiet.
constexpr uint16_t f32_to_bf16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return uint16_t((bits >> 16) | 0x40u);
  return uint16_t((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace tandem
