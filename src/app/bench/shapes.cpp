#include "app/bench/shapes.h"

#include "base/error.h"

namespace tandem {
namespace {

// Source: architectures.md 2.2, 3, 4, 6.
std::span<const NamedMatrix> qwen3_30b() {
  static const NamedMatrix all[] = {
      {"attn_q", {2048, 4096}},
      {"attn_k", {2048, 512}},
      {"attn_output", {4096, 2048}},
      {"ffn_up_exps", {2048, 768, 128}},
      {"ffn_down_exps", {768, 2048, 128}, true},
  };
  return all;
}

std::span<const NamedMatrix> qwen3_6_35b() {
  static const NamedMatrix all[] = {
      {"attn_qkv", {2048, 8192}},
      {"attn_k", {2048, 512}},
      {"attn_gate", {2048, 4096}},
      {"attn_output", {4096, 2048}},
      {"ffn_down_shexp", {512, 2048}},
      {"ffn_up_exps", {2048, 512, 256}},
      {"ffn_down_exps", {512, 2048, 256}, true},
  };
  return all;
}

std::span<const NamedMatrix> gpt_oss_20b() {
  static const NamedMatrix all[] = {
      {"attn_q", {2880, 4096}},
      {"attn_k", {2880, 512}},
      {"attn_output", {4096, 2880}},
      {"ffn_up_exps", {2880, 2880, 32}},
      {"ffn_down_exps", {2880, 2880, 32}, true},
  };
  return all;
}

std::span<const NamedMatrix> mixtral_8x7b() {
  static const NamedMatrix all[] = {
      {"attn_q", {4096, 4096}},
      {"attn_k", {4096, 1024}},
      {"ffn_up_exps", {4096, 14336, 8}},
      {"ffn_down_exps", {14336, 4096, 8}, true},
  };
  return all;
}

std::span<const NamedMatrix> tiny() {
  static const NamedMatrix all[] = {
      {"attn_q", {256, 512}},
      {"ffn_up_exps", {256, 256, 8}},
      {"ffn_down_exps", {256, 256, 8}, true},
  };
  return all;
}

constexpr NamedShape kShapes[] = {
    {"qwen3-30b-a3b", DType::Q4_K, 2048, 32, 4, 128, 128, 8, 768, qwen3_30b, "qwen3moe", ""},
    {"qwen3.6-35b-a3b", DType::Q4_K, 2048, 16, 2, 256, 256, 8, 512, qwen3_6_35b, "qwen35moe", ""},
    {"gpt-oss-20b", DType::MXFP4, 2880, 64, 8, 64, 32, 4, 2880, gpt_oss_20b, "gpt-oss", "", 128},
    {"mixtral-8x7b", DType::Q4_K, 4096, 32, 8, 128, 8, 2, 14336, mixtral_8x7b, "qwen3moe",
     "they also norm queries and keys, which is less than 1 % of the work"},
    {"tiny", DType::Q4_K, 256, 4, 2, 128, 8, 2, 256, tiny, "qwen3moe", ""},
};

}  // namespace

std::span<const NamedShape> all_shapes() { return kShapes; }

const NamedShape& find_shape(const std::string& name) {
  std::vector<std::string> names;
  for (const NamedShape& s : kShapes) {
    if (name == s.name) return s;
    names.emplace_back(s.name);
  }
  fail(Code::Usage, "--synth '{}' is no shape known here; there are {}", name, fmt::join(names, ", "));
}

DType matrix_type(DType wanted, int64_t n_in) {
  const TypeInfo& info = type_info(wanted);
  if (!info.codec || !info.codec->encode) {
    std::vector<std::string> known;
    for (const TypeInfo& t : all_types()) {
      if (t.codec && t.codec->encode) known.emplace_back(t.name);
    }
    fail(Code::Unsupported, "--type {}: this type cannot be written; these can: {}", info.name,
         fmt::join(known, ", "));
  }
  if (n_in % info.block_elements == 0) return wanted;
  return n_in % type_info(DType::Q8_0).block_elements == 0 ? DType::Q8_0 : DType::F16;
}

SynthSettings model_of(const NamedShape& s, int64_t n_layer, int64_t n_vocab, DType type, int64_t n_ctx) {
  SynthSettings made{.n_layer = n_layer,
                     .n_embd = s.n_embd,
                     .n_head = s.n_head,
                     .n_head_kv = s.n_head_kv,
                     .d_head = s.d_head,
                     .n_expert = s.n_expert,
                     .n_expert_used = s.n_expert_used,
                     .n_ff_exp = s.n_ff_exp,
                     .n_vocab = n_vocab,
                     .n_ctx = n_ctx,
                     .type = type};
  if (s.sliding_window > 0) made.sliding_window = s.sliding_window;
  return made;
}

}  // namespace tandem
