// Hashes that identify contents: of weights, of rows, of files.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

struct XXH3_state_s;

namespace tandem {

// XXH3-128, fed piece by piece.  It finds damage and mix-ups, not forgery.  Source: xxHash's specification.
class ContentHash {
 public:
  static constexpr size_t kBytes = 16;
  using Digest = std::array<std::byte, kBytes>;

  ContentHash();
  void add(std::span<const std::byte> bytes);
  void add_u64(uint64_t value);          // as 8 bytes, little-endian
  void add_text(std::string_view text);  // its length, then its bytes

  // Of all that was added so far, in the algorithm's canonical byte order.
  Digest digest() const;
  std::string hex() const;  // the same as 32 hexadecimal digits

 private:
  struct FreeState {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, FreeState> state_;
};

}  // namespace tandem
