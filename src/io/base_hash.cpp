#include "io/base_hash.h"

#include <algorithm>
#include <vector>

#include "io/content_hash.h"

namespace tandem {
namespace {

constexpr size_t kSampledBytes = 4096;  // at either end of a tensor

}  // namespace

std::string base_hash(std::span<const GgufTensor> tensors) {
  std::vector<const GgufTensor*> by_name;
  for (const GgufTensor& t : tensors) by_name.push_back(&t);
  std::sort(by_name.begin(), by_name.end(),
            [](const GgufTensor* x, const GgufTensor* y) { return x->name < y->name; });
  ContentHash hash;
  for (const GgufTensor* t : by_name) {
    hash.add_text(t->name);
    hash.add_u64(static_cast<uint64_t>(t->type));
    for (const int64_t n : t->ne) hash.add_u64(static_cast<uint64_t>(n));
    const std::span<const std::byte> data(t->data, static_cast<size_t>(t->bytes));
    const size_t sampled = std::min(data.size(), kSampledBytes);
    hash.add(data.first(sampled));
    hash.add(data.last(sampled));
  }
  return hash.hex();
}

}  // namespace tandem
