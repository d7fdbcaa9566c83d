// Any bytes are either read as a checkpoint, every section inside of them, or refused with an Error.  What is
// behind the hash is reached by sealing the bytes anew.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "base/error.h"
#include "io/checkpoint.h"
#include "io/content_hash.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

void read_all(std::span<const std::byte> bytes) {
  try {
    size_t n_bytes = 0;
    for (const tandem::CheckpointSection& s : tandem::parse_checkpoint(bytes, "fuzz")) {
      require(!s.name.empty());
      require(s.bytes.data() >= bytes.data() && s.bytes.size() <= bytes.size());
      require(static_cast<size_t>(s.bytes.data() - bytes.data()) <= bytes.size() - s.bytes.size());
      n_bytes += s.bytes.size();
    }
    require(n_bytes + tandem::ContentHash::kBytes <= bytes.size());
  } catch (const tandem::Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  read_all(bytes);
  constexpr size_t kLengthAt = 16;
  if (size < kLengthAt + sizeof(uint64_t) + tandem::ContentHash::kBytes) return 0;
  std::vector<std::byte> sealed(bytes.begin(), bytes.end());
  const uint64_t n_bytes = size;
  std::memcpy(sealed.data() + kLengthAt, &n_bytes, sizeof n_bytes);
  tandem::ContentHash hash;
  hash.add(std::span(sealed).first(size - tandem::ContentHash::kBytes));
  const tandem::ContentHash::Digest digest = hash.digest();
  std::memcpy(sealed.data() + size - digest.size(), digest.data(), digest.size());
  read_all(sealed);
  return 0;
}
