// Which base model a file of ours was made for.
#pragma once
#include <span>
#include <string>

#include "io/gguf.h"

namespace tandem {

// The identity of a model's weights: XXH3-128 over every tensor's name, type, dimensions, and first and last
// 4 KiB of data, in the order of the names, as 32 hexadecimal digits in the algorithm's canonical order.  How
// the tensors are ordered, or spread over shards, does not change it; neither do the keys.  Reads two pages
// of each tensor, so it takes milliseconds.  Source: api.md 9 (base_hash), xxHash's specification.
std::string base_hash(std::span<const GgufTensor> tensors);

}  // namespace tandem
