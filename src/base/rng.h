// Counter-based randomness: a number is a function of its key, so nothing depends on order, threads or
// restarts.
#pragma once
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace tandem {

// The finalizer of SplitMix64: every input bit reaches every output bit.  Source: Steele, Lea, Flood 2014,
// "Fast splittable pseudorandom number generators".
constexpr uint64_t mix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// 64 random bits for a key of any length.
constexpr uint64_t random_bits(std::initializer_list<uint64_t> key) {
  uint64_t x = 0;
  for (uint64_t k : key) x = mix64(x ^ k);
  return x;
}

// A number for a name, to be used in a key.
constexpr uint64_t key_of(std::string_view name) {
  uint64_t x = name.size();
  for (char c : name) x = mix64(x ^ static_cast<unsigned char>(c));
  return x;
}

// Uniform in [0, 1), 53 bits.
constexpr double uniform(uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

// A stream of numbers under one key.
class Rng {
 public:
  constexpr explicit Rng(uint64_t key) : key_(key) {}
  constexpr uint64_t next() { return random_bits({key_, counter_++}); }
  constexpr double next_uniform() { return uniform(next()); }
  // Uniform in [0, n), n > 0.  The bias is below n / 2^64.
  constexpr uint64_t below(uint64_t n) {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(next()) * n) >> 64);
  }
  // Normal with mean 0 and deviation 1 (Box and Muller).
  double next_normal() {
    const double u = 1.0 - next_uniform(), v = next_uniform();
    return std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586 * v);
  }

 private:
  uint64_t key_;
  uint64_t counter_ = 0;
};

}  // namespace tandem
