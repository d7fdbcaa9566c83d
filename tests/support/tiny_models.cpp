#include "tests/support/tiny_models.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/rng.h"
#include "graph/autodiff.h"

namespace tandem {

TempDir::TempDir() {
  std::string pattern = (std::filesystem::temp_directory_path() / "tandem-test-XXXXXX").string();
  TANDEM_CHECK(mkdtemp(pattern.data()) != nullptr);
  path_ = pattern;
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

SynthSettings awkward_sizes(DType type) {
  SynthSettings s;
  s.type = type;
  s.n_layer = 3;
  s.n_embd = 96;
  s.n_head = 4;
  s.n_head_kv = 2;
  s.d_head = 40;
  s.n_ff = 160;
  s.n_expert = 7;
  s.n_expert_used = 3;
  s.n_ff_exp = 64;
  s.n_vocab = synth_min_vocab();
  s.sliding_window = 3;
  return s;
}

namespace {

// A kind of model within an architecture.
struct Variant {
  std::string_view name;
  const char* arch;
  void (*alter)(SynthSettings& s);
};

constexpr Variant kVariants[] = {
    {"llama_dense", "llama", [](SynthSettings& s) { s.n_expert = 0; }},
    {"deepseek2_joint_kv_b", "deepseek2", [](SynthSettings& s) { s.joint_kv_b = true; }},
    {"deepseek2_v3", "deepseek2",
     [](SynthSettings& s) {
       s.q_lora_rank = 40;
       s.sigmoid_router = true;
       s.n_expert = 8;  // four groups
     }},
};

}  // namespace

Model tiny_model(const TempDir& dir, const char* name, SynthSettings settings) {
  ThreadPool pool(1);
  const char* arch = name;
  for (const Variant& v : kVariants) {
    if (v.name != name) continue;
    arch = v.arch;
    v.alter(settings);
  }
  const std::string path = dir.file(fmt::format("{}-{}.gguf", name, name_of(settings.type)));
  write_synthetic(find_arch(arch), settings, pool, path);
  return Model::open(path);
}

AdapterSet random_adapter(const Model& model, const std::string& targets, int64_t rank, uint64_t seed) {
  AdapterSet set =
      AdapterSet::create(resolve_targets(model, targets), rank, 2.f * static_cast<float>(rank), false, seed);
  Rng rng(seed + 1);
  for (const AdapterPair& p : set.pairs()) {
    float* b = set.b(p);
    for (int64_t i = 0; i < p.b_shape.elements(); ++i) b[i] = 0.1f * static_cast<float>(rng.next_normal());
  }
  return set;
}

Window random_window(const Model& model, const std::vector<int64_t>& lengths, int64_t n_prompt,
                     uint64_t seed) {
  Window window;
  Rng rng(seed);
  for (int64_t length : lengths) {
    std::vector<int32_t> tokens;
    std::vector<uint8_t> trained;
    for (int64_t i = 0; i < length; ++i) {
      tokens.push_back(static_cast<int32_t>(rng.below(static_cast<uint64_t>(model.hparams().n_vocab))));
      trained.push_back(i > 0 && i >= n_prompt);
    }
    window.append(tokens, trained);
  }
  return window;
}

WholeModel::WholeModel(const Model& model, const AdapterSet& adapter, Window w) : window(std::move(w)) {
  const AdapterSet* sets[] = {&adapter};
  const HParams& h = model.hparams();
  BuildInputs in;
  in.n_tokens = window.n_tokens();
  in.positions = window.positions.data();
  in.first_key = window.first_key.data();
  const int64_t sliding = h.sliding_window;
  for (size_t i = 0; i < window.first_key.size(); ++i) {
    const auto back = static_cast<int32_t>(static_cast<int64_t>(i) - sliding + 1);
    first_key_sliding_.push_back(sliding ? std::max(window.first_key[i], back) : window.first_key[i]);
  }
  in.first_key_sliding = first_key_sliding_.data();
  no_state_.resize(static_cast<size_t>(h.state_elements()));
  in.state.before = no_state_.data();
  Build b(graph, model, sets, in);
  const Tensor ids = graph.leaf(DType::I32, {in.n_tokens}, Home::Persistent, window.tokens.data(), "tokens");
  Tensor x = get_rows(b.weight(model.global().token_embd), ids);
  for (int64_t il = 0; il < h.n_layer; ++il) {
    b.begin_layer(static_cast<int>(il), true);
    x = model.arch().layer(b, model.layer(il), x);
    trained.insert(trained.end(), b.trained().begin(), b.trained().end());
  }
  for (size_t i = 0; i < trained.size(); ++i) {
    names.push_back(std::string(trained[i].leaf.node->name) + (i % 2 ? ".lora_b" : ".lora_a"));
  }
  b.begin_layer(static_cast<int>(h.n_layer), false);
  const Tensor labels =
      graph.leaf(DType::I32, {in.n_tokens}, Home::Persistent, window.labels.data(), "labels");
  loss = cross_entropy_loss(b.lin(model.output(), b.norm(model.global().output_norm, x)), labels);
}

void WholeModel::differentiate(float weight) {
  cotangent_.assign(static_cast<size_t>(2 * window.n_tokens()), 0.f);
  std::fill_n(cotangent_.begin(), window.n_tokens(), weight);
  const Seed seed{loss,
                  graph.leaf(DType::F32, loss.shape(), Home::Persistent, cotangent_.data(), "cotangent")};
  std::vector<Tensor> leaves;
  for (const Build::Trained& t : trained) leaves.push_back(t.leaf);
  gradients = backward(graph, {&seed, 1}, leaves);
}

std::vector<std::vector<float>> runner_gradients(const AdapterSet& adapter) {
  std::vector<std::vector<float>> result;
  for (const AdapterPair& p : adapter.pairs()) {
    if (!p.trainable) continue;
    result.emplace_back(adapter.a_gradient(p), adapter.a_gradient(p) + p.a_shape.elements());
    result.emplace_back(adapter.b_gradient(p), adapter.b_gradient(p) + p.b_shape.elements());
  }
  return result;
}

}  // namespace tandem
