// Split models for tests, right ones and wrong ones.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "io/gguf.h"
#include "io/gguf_writer.h"

namespace tandem {

// One shard to be written; a test changes what is to be wrong.
struct ShardPlan {
  std::string name;
  std::optional<uint16_t> no, count;  // split.no, split.count
  std::optional<int32_t> n_tensors;   // split.tensors.count
  bool with_keys = false;             // the keys of the model
  std::vector<const GgufTensor*> tensors;
  std::function<void(GgufWriter&)> more;  // keys and tensors beside those; may be empty
};

// The shards `prefix`-00001-of-0000N.gguf of a model, as split tools write them: all keys in the first,
// sizes[i] tensors in shard i, in their order; together all of them.
std::vector<ShardPlan> plan_split(const GgufFile& model, const std::string& prefix,
                                  const std::vector<size_t>& sizes);

std::vector<std::byte> shard_bytes(const GgufFile& model, const ShardPlan& plan);

// Writes the shards into the directory and gives the path of the first.
std::string write_split(const GgufFile& model, const std::string& directory,
                        const std::vector<ShardPlan>& shards);

}  // namespace tandem
