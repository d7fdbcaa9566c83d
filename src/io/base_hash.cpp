#include "io/base_hash.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "base/error.h"

namespace tandem {
namespace {

constexpr size_t kSampledBytes = 4096;  // at either end of a tensor

struct FreeState {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};

class Hasher {
 public:
  Hasher() : state_(XXH3_createState()) {
    TANDEM_CHECK(state_ && XXH3_128bits_reset(state_.get()) == XXH_OK);
  }
  void add(const void* data, size_t n_bytes) {
    TANDEM_CHECK(XXH3_128bits_update(state_.get(), data, n_bytes) == XXH_OK);
  }
  // Little-endian, as everything in a GGUF file.
  void add_u64(uint64_t value) {
    unsigned char bytes[8];
    for (int i = 0; i < 8; ++i) bytes[i] = static_cast<unsigned char>(value >> (8 * i));
    add(bytes, sizeof bytes);
  }
  std::string hex() const {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state_.get()));
    std::string text;
    for (const unsigned char byte : canonical.digest) text += fmt::format("{:02x}", byte);
    return text;
  }

 private:
  std::unique_ptr<XXH3_state_t, FreeState> state_;
};

}  // namespace

std::string base_hash(std::span<const GgufTensor> tensors) {
  std::vector<const GgufTensor*> by_name;
  for (const GgufTensor& t : tensors) by_name.push_back(&t);
  std::sort(by_name.begin(), by_name.end(),
            [](const GgufTensor* x, const GgufTensor* y) { return x->name < y->name; });
  Hasher hasher;
  for (const GgufTensor* t : by_name) {
    hasher.add_u64(t->name.size());
    hasher.add(t->name.data(), t->name.size());
    hasher.add_u64(static_cast<uint64_t>(t->type));
    for (const int64_t n : t->ne) hasher.add_u64(static_cast<uint64_t>(n));
    const size_t bytes = static_cast<size_t>(t->bytes), sampled = std::min(bytes, kSampledBytes);
    hasher.add(t->data, sampled);
    hasher.add(t->data + (bytes - sampled), sampled);
  }
  return hasher.hex();
}

}  // namespace tandem
