// Which elements DROPOUT keeps: a pure function of numbers, the same in the reference and in every kernel.
#pragma once
#include <stdint.h>

namespace tandem {

// Parameters of DROPOUT as its kernels see them.
struct DropoutMask {
  uint64_t key;         // of (seed, step, layer, stream)
  int64_t first_token;  // of the tensor's first row
  uint32_t threshold;   // an element whose 32 random bits are below it is dropped: p 2^32
  float scale;          // of the elements kept: 1 / (1 - p)
};

// A bijection of 64 bits in which every input bit flips about half of the output.
// Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators" (2014), the finalizer of
// SplitMix64.
static inline uint64_t dropout_mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

constexpr uint64_t kDropoutGamma =
    0x9e3779b97f4a7c15u;  // odd, 2^64 / golden ratio: neighbours end up far apart

static inline uint64_t dropout_key(uint64_t seed, int64_t step, int32_t layer, int32_t stream) {
  const uint64_t place = (uint64_t)(uint32_t)layer << 32 | (uint32_t)stream;
  const uint64_t a = dropout_mix(seed + kDropoutGamma);
  const uint64_t b = dropout_mix(a ^ ((uint64_t)step + 1) * kDropoutGamma);
  return dropout_mix(b ^ (place + 1) * kDropoutGamma);
}

static inline uint64_t dropout_row_key(uint64_t key, int64_t token) {
  return dropout_mix(key ^ ((uint64_t)token + 1) * kDropoutGamma);
}

// 64 random bits for channels 2 pair (the low half) and 2 pair + 1 (the high half) of a token.
static inline uint64_t dropout_bits(uint64_t row_key, int64_t pair) {
  return dropout_mix(row_key + ((uint64_t)pair + 1) * kDropoutGamma);
}

static inline bool dropout_keeps(const DropoutMask& mask, uint64_t row_key, int64_t channel) {
  const uint64_t bits = dropout_bits(row_key, channel >> 1);
  return (uint32_t)(bits >> (channel & 1 ? 32 : 0)) >= mask.threshold;
}

}  // namespace tandem
