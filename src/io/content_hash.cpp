#include "io/content_hash.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <cstring>

#include "base/error.h"

namespace tandem {

void ContentHash::FreeState::operator()(XXH3_state_s* state) const { XXH3_freeState(state); }

ContentHash::ContentHash() : state_(XXH3_createState()) {
  TANDEM_CHECK(state_ && XXH3_128bits_reset(state_.get()) == XXH_OK);
}

void ContentHash::add(std::span<const std::byte> bytes) {
  TANDEM_CHECK(XXH3_128bits_update(state_.get(), bytes.data(), bytes.size()) == XXH_OK);
}

void ContentHash::add_u64(uint64_t value) {
  std::array<std::byte, 8> bytes;
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(value >> (8 * i));
  add(bytes);
}

void ContentHash::add_text(std::string_view text) {
  add_u64(text.size());
  add(std::as_bytes(std::span(text.data(), text.size())));
}

ContentHash::Digest ContentHash::digest() const {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state_.get()));
  static_assert(sizeof canonical.digest == kBytes);
  Digest bytes;
  std::memcpy(bytes.data(), canonical.digest, kBytes);
  return bytes;
}

std::string ContentHash::hex() const {
  std::string text;
  for (const std::byte b : digest()) text += fmt::format("{:02x}", std::to_integer<unsigned>(b));
  return text;
}

}  // namespace tandem
