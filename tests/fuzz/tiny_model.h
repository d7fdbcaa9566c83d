// A model of a few kilobytes in memory, made from the schema of its architecture, to load adapters on.
#pragma once
#include <vector>

#include "io/gguf_writer.h"
#include "models/model.h"

namespace tandem::fuzz {

inline std::vector<std::byte> tiny_model_bytes(const ArchDef& arch) {
  HParams h;
  h.n_layer = 1;
  h.n_embd = h.n_ff = h.n_ff_exp = 4;
  h.n_vocab = 8;
  h.n_ctx_train = 32;
  h.n_head = 2;
  h.n_head_kv = 1;
  h.d_head = h.d_head_v = 2;
  h.n_expert = 3;
  h.n_expert_used = 2;
  GgufWriter out;
  const auto u32 = [&](const char* key, int64_t value) {
    out.add_u32(std::string(arch.name) + "." + key, static_cast<uint32_t>(value));
  };
  out.add_str("general.architecture", arch.name);
  u32("block_count", h.n_layer);
  u32("context_length", h.n_ctx_train);
  u32("embedding_length", h.n_embd);
  u32("feed_forward_length", h.n_ff);
  u32("attention.head_count", h.n_head);
  u32("attention.head_count_kv", h.n_head_kv);
  u32("expert_count", h.n_expert);
  u32("expert_used_count", h.n_expert_used);
  u32("expert_feed_forward_length", h.n_ff_exp);
  out.add_f32(std::string(arch.name) + ".attention.layer_norm_rms_epsilon", 1e-6f);
  static const std::vector<std::byte> zeros(4096);
  const auto add = [&](const std::string& name, const Shape& ne) {
    out.add_tensor(name, DType::F32, ne.ne,
                   std::span(zeros).first(static_cast<size_t>(ne.elements()) * sizeof(float)));
  };
  for (const GlobalWeightSpec& spec : global_weights()) {
    if (!spec.optional) add(spec.name, spec.shape(h));
  }
  for (const LayerWeightSpec& spec : arch.layer_weights) {
    add(fmt::format(fmt::runtime(spec.name), 0), spec.shape(h));
  }
  return out.to_bytes();
}

}  // namespace tandem::fuzz
