// What the IQ1, IQ2 and IQ3 types share: codebooks (declared by the headers of their types, which kernels
// include), the values of their codes, and signs in seven bits.  Source: quantization.md 5.
#pragma once
#include <bit>
#include <cstdint>

#include "formats/iq1_m/iq1_m.h"
#include "formats/iq1_s/iq1_s.h"
#include "formats/iq2_s/iq2_s.h"
#include "formats/iq2_xs/iq2_xs.h"
#include "formats/iq2_xxs/iq2_xxs.h"
#include "formats/iq3_s/iq3_s.h"
#include "formats/iq3_xxs/iq3_xxs.h"

namespace tandem {

// Element j of an entry; j in [0, 8) for IQ1 and IQ2, in [0, 4) for IQ3.
inline int iq1_element(uint16_t entry, int j) { return ((entry >> 2 * j) & 3) - 1; }
inline int iq2_element(uint16_t entry, int j) {
  constexpr int kValues[4] = {8, 25, 43, 0};  // no entry has code 3
  return kValues[(entry >> 2 * j) & 3];
}
inline int iq3_xxs_element(uint16_t entry, int j) {
  constexpr int kValues[8] = {4, 12, 20, 28, 36, 44, 52, 62};
  return kValues[(entry >> 4 * j) & 7];
}
inline int iq3_s_element(uint16_t entry, int j) { return 2 * ((entry >> 4 * j) & 7) + 1; }

// Eight signs, bit j set where element j is negative, from the first seven: their number is even.
inline uint32_t even_signs(uint32_t seven) {
  return seven | (static_cast<uint32_t>(std::popcount(seven)) & 1) << 7;
}

// x with the sign that bit j of the signs says.
inline float with_sign(float x, uint32_t signs, int j) { return (signs >> j) & 1 ? -x : x; }

}  // namespace tandem
