#include "tests/op/blocks.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "models/build.h"
#include "models/qwen3/qwen3.h"
#include "models/synth.h"
#include "tests/op/case_builder.h"

namespace tandem {
namespace {

// Tokens of two packed sequences, so that a mask and a restart of the positions take part.
const std::vector<int32_t> kPositions = {0, 1, 2, 3, 0, 1}, kFirstKey = {0, 0, 0, 0, 4, 4};
constexpr int64_t kTokens = 6, kRank = 2;

// The first key of each token where no more than `window` keys are seen; 0: all.
std::vector<int32_t> first_keys_in(int64_t window) {
  std::vector<int32_t> first = kFirstKey;
  for (size_t i = 0; window > 0 && i < first.size(); ++i)
    first[i] = std::max(first[i], static_cast<int32_t>(static_cast<int64_t>(i) - window + 1));
  return first;
}

// Sizes at which a mistake shows: heads together as wide as no other tensor, 5 experts of which 2 are used.
SynthSettings sizes_for(DType type) {
  SynthSettings s;
  s.type = type;
  s.n_layer = 2;
  s.n_embd = 96;
  s.n_head = 4;
  s.n_head_kv = 2;
  s.d_head = 16;
  s.n_ff = 160;
  s.n_expert = 5;
  s.n_expert_used = 2;
  s.n_ff_exp = 32;
  s.n_vocab = synth_min_vocab();
  s.sliding_window = 3;
  if (type_info(type).block_elements == 256) {
    s.n_embd = s.n_ff = s.n_ff_exp = 256;
    s.d_head = 64;
  }
  return s;
}

// A model of random weights in a file that is gone as soon as it is mapped.
Model open_random(const char* arch, const SynthSettings& settings) {
  std::string folder = (std::filesystem::temp_directory_path() / "tandem-ops-XXXXXX").string();
  if (!mkdtemp(folder.data())) fail(Code::Io, "{}: no temporary folder could be made", folder);
  struct Remove {
    const std::string& path;
    ~Remove() {
      std::error_code ignored;
      std::filesystem::remove_all(path, ignored);
    }
  } remove{folder};
  ThreadPool pool(1);
  const std::string path = folder + "/random.gguf";
  write_synthetic(find_arch(arch), settings, pool, path);
  return Model::open(path);
}

// A tiny random model with an adapter, and the builder of its layers in the graph of a case.
class TinyPart final : public Kept {
 public:
  // `targets` as of --lora-targets; empty: no adapter.
  TinyPart(CaseBuilder& c, const char* arch, const SynthSettings& settings, const std::string& targets)
      : model_(open_random(arch, settings)) {
    if (!targets.empty()) {
      adapter_ = AdapterSet::create(resolve_targets(model_, targets), kRank, 2.f * kRank, false, 1);
      adapter_.allocate_gradients();
      // At the usual B = 0 no A has a gradient.
      for (const AdapterPair& p : adapter_.pairs()) {
        KeyedRandom random(p.weight->name + "/lora_b");
        for (int64_t i = 0; i < p.b_shape.elements(); ++i)
          adapter_.b(p)[i] = static_cast<float>(random.uniform(-0.2, 0.2));
      }
      sets_ = {&adapter_};
    }
    const auto ids = [&](const char* name, const std::vector<int32_t>& values) {
      return static_cast<int32_t*>(c.ids_of(name, {kTokens}, values).node->data);
    };
    BuildInputs in;
    in.n_tokens = kTokens;
    in.positions = ids("positions of the model", kPositions);
    in.first_key = ids("first keys of the model", kFirstKey);
    in.first_key_sliding =
        ids("first keys of sliding layers", first_keys_in(model_.hparams().sliding_window));
    no_state_.resize(static_cast<size_t>(model_.hparams().state_elements()));
    in.state.before = no_state_.data();
    build_ = std::make_unique<Build>(c.graph(), model_, sets_, in);
  }

  Build& build() { return *build_; }
  const Model& model() const { return model_; }

  // Calls make(build, weights) for one layer and adopts its trained tensors as inputs.
  template <class Make>
  Tensor layer(CaseBuilder& c, int il, Make make) {
    build_->begin_layer(il, c.wants_gradients());
    const Tensor y = make(*build_, model_.layer(il));
    int n = 0;
    for (const Build::Trained& t : build_->trained())
      c.adopt(t.leaf, fmt::format("{}.{}", t.leaf.node->name, n++ % 2 ? "lora_b" : "lora_a"));
    return y;
  }

 private:
  Model model_;
  AdapterSet adapter_;
  std::vector<const AdapterSet*> sets_;
  std::vector<float> no_state_;
  std::unique_ptr<Build> build_;
};

TinyPart& tiny_part(CaseBuilder& c, const char* arch, const SynthSettings& settings,
                    const std::string& targets) {
  auto owned = std::make_unique<TinyPart>(c, arch, settings, targets);
  TinyPart& part = *owned;
  c.keep(std::move(owned));
  return part;
}

Tensor hidden_state(CaseBuilder& c, const TinyPart& part) {
  return c.input("x", {part.model().hparams().n_embd, kTokens});
}

OpCase moe_case(const char* name, const Routing& routing, DType type, const char* targets) {
  return {fmt::format("{}, {}", name, name_of(type)), [=](CaseBuilder& c) {
            TinyPart& part = tiny_part(c, "qwen3moe", sizes_for(type), targets);
            const Tensor x = hidden_state(c, part);
            return part.layer(c, 0, [&](Build& b, const LayerWeights& w) { return b.moe(w, x, routing); });
          }};
}

// The first n layers of an architecture.
OpCase layers_case(const std::string& name, const char* arch, int n, DType type, const char* targets) {
  return {name, [=](CaseBuilder& c) {
            TinyPart& part = tiny_part(c, arch, sizes_for(type), targets);
            Tensor x = hidden_state(c, part);
            for (int il = 0; il < n; ++il) {
              x = part.layer(
                  c, il, [&](Build& b, const LayerWeights& w) { return part.model().arch().layer(b, w, x); });
            }
            return x;
          }};
}

// Layer il of a kind of deepseek2 model, everything in it trained.
OpCase deepseek2_case(const char* kind, int il, DType type, void (*alter)(SynthSettings& s)) {
  return {fmt::format("deepseek2, {}, layer {}, {}", kind, il, name_of(type)), [=](CaseBuilder& c) {
            SynthSettings s = sizes_for(type);
            alter(s);
            TinyPart& part = tiny_part(c, "deepseek2", s, "all");
            const Tensor x = hidden_state(c, part);
            return part.layer(
                c, il, [&](Build& b, const LayerWeights& w) { return part.model().arch().layer(b, w, x); });
          }};
}

std::vector<OpCase> deepseek2_cases() {
  const auto plain = [](SynthSettings&) {};
  const auto joint = [](SynthSettings& s) { s.joint_kv_b = true; };
  const auto v3 = [](SynthSettings& s) {
    s.q_lora_rank = 40;
    s.sigmoid_router = true;
    s.n_expert = 8;  // four groups
  };
  return {
      deepseek2_case("plain softmax", 1, DType::Q8_0, plain),
      deepseek2_case("plain softmax", 1, DType::Q4_K, plain),
      deepseek2_case("keys and values from one matrix", 0, DType::Q8_0, joint),
      deepseek2_case("compressed queries, sigmoid in groups", 1, DType::Q8_0, v3),
      deepseek2_case("compressed queries, sigmoid in groups", 1, DType::F32, v3),
  };
}

}  // namespace

std::vector<OpCase> moe_block_cases() {
  // Softmax over the chosen logits alone (as gpt-oss has it) is the renormalized kind, which is computed that
  // way.
  constexpr Routing kRenormalized, kPlain{Gating::Softmax, false, 1.f};
  return {
      moe_case("softmax, renormalized", kRenormalized, DType::F32, ""),
      moe_case("softmax, renormalized", kRenormalized, DType::Q4_K, ""),
      moe_case("softmax, renormalized, trained experts", kRenormalized, DType::Q8_0, "experts"),
      moe_case("softmax as it is", kPlain, DType::F32, ""),
      moe_case("softmax as it is", kPlain, DType::Q4_K, ""),
      moe_case("softmax as it is, trained experts", kPlain, DType::Q8_0, "experts"),
  };
}

std::vector<OpCase> attention_block_cases() {
  return {{"qwen3, trained projections, Q8_0", [](CaseBuilder& c) {
             TinyPart& part = tiny_part(c, "qwen3", sizes_for(DType::Q8_0), "attention");
             const Tensor x = hidden_state(c, part);
             return part.layer(c, 0,
                               [&](Build& b, const LayerWeights& w) { return qwen3_attention(b, w, x); });
           }}};
}

std::vector<OpCase> layer_block_cases() {
  std::vector<OpCase> cases;
  for (const ArchDef* arch : all_archs()) {
    cases.push_back(layers_case(arch->name, arch->name, 1, DType::Q8_0, "all"));
    if (arch->experts == Experts::All) {
      cases.push_back(layers_case(fmt::format("{}, two layers through Q8_0 experts", arch->name), arch->name,
                                  2, DType::Q8_0, "attention"));
    }
  }
  for (OpCase& c : deepseek2_cases()) cases.push_back(std::move(c));
  return cases;
}

}  // namespace tandem
