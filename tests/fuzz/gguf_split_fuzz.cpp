// Any bytes, cut into up to four files, are either read as the shards of one model or refused with an Error.
// Input: for each shard but the last its length (u16, little-endian) in front of it; a length beyond the rest
// makes it the last.
#include <vector>

#include "tests/fuzz/fuzz.h"

using namespace tandem;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr size_t kMaxShards = 4;
  std::span<const uint8_t> rest(data, size);
  std::vector<std::vector<std::byte>> parts;  // copies, so that a read past the end of one is seen
  while (parts.size() + 1 < kMaxShards && rest.size() >= 2) {
    const size_t n = rest[0] | static_cast<size_t>(rest[1]) << 8;
    if (n > rest.size() - 2) break;
    const auto bytes = std::as_bytes(rest.subspan(2, n));
    parts.emplace_back(bytes.begin(), bytes.end());
    rest = rest.subspan(2 + n);
  }
  const auto last = std::as_bytes(rest);
  parts.emplace_back(last.begin(), last.end());
  std::vector<GgufBytes> shards;
  for (const auto& part : parts) shards.push_back({part, "fuzz " + std::to_string(shards.size() + 1)});
  try {
    const GgufFile file = GgufFile::parse(shards);
    fuzz::require(file.shards().size() == parts.size());
    fuzz::read_all(file);
    size_t n_tensors = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
      fuzz::require_inside(file, i, parts[i]);
      n_tensors += file.shards()[i].n_tensors;
    }
    fuzz::require(file.tensors().size() == n_tensors);
  } catch (const Error& e) {
    fuzz::require_refusal(e);
  }
  return 0;
}
