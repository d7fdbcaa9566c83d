#include "tests/support/split_gguf.h"

#include "base/error.h"

namespace tandem {

std::vector<ShardPlan> plan_split(const GgufFile& model, const std::string& prefix,
                                  const std::vector<size_t>& sizes) {
  std::vector<ShardPlan> shards;
  size_t next = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    ShardPlan s;
    s.name = fmt::format("{}-{:05}-of-{:05}.gguf", prefix, i + 1, sizes.size());
    s.no = static_cast<uint16_t>(i);
    s.count = static_cast<uint16_t>(sizes.size());
    s.n_tensors = static_cast<int32_t>(model.tensors().size());
    s.with_keys = i == 0;
    for (size_t n = 0; n < sizes[i]; ++n) s.tensors.push_back(&model.tensors()[next++]);
    shards.push_back(std::move(s));
  }
  TANDEM_CHECK(next == model.tensors().size());
  return shards;
}

std::vector<std::byte> shard_bytes(const GgufFile& model, const ShardPlan& plan) {
  GgufWriter out;
  if (plan.with_keys) {
    for (const GgufEntry& e : model.entries()) out.add_value(e.key, e.value);
  }
  if (plan.no) out.add_u16("split.no", *plan.no);
  if (plan.count) out.add_u16("split.count", *plan.count);
  if (plan.n_tensors) out.add_i32("split.tensors.count", *plan.n_tensors);
  if (plan.more) plan.more(out);
  for (const GgufTensor* t : plan.tensors) {
    out.add_tensor(t->name, t->type, t->ne, std::span(t->data, static_cast<size_t>(t->bytes)));
  }
  return out.to_bytes();
}

std::string write_split(const GgufFile& model, const std::string& directory,
                        const std::vector<ShardPlan>& shards) {
  for (const ShardPlan& s : shards) write_file_atomic(directory + "/" + s.name, shard_bytes(model, s));
  return directory + "/" + shards.front().name;
}

}  // namespace tandem
