#include "models/runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <complex>
#include <cstring>
#include <numeric>

#include "base/rng.h"
#include "exec/cpu/cpu_backend.h"
#include "exec/ref/ref_exec.h"
#include "graph/autodiff.h"
#include "tests/support/tiny_models.h"

namespace tandem {
namespace {

using Complex = std::complex<double>;

// max |a - b| / max |b|, infinite unless all is finite and b has something in it.
double relative_error(std::span<const float> a, std::span<const double> b) {
  double worst = 0, largest = 0;
  if (a.size() != b.size() || a.empty()) return INFINITY;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(a[i]) || !std::isfinite(b[i])) return INFINITY;
    worst = std::max(worst, std::abs(a[i] - b[i]));
    largest = std::max(largest, std::abs(b[i]));
  }
  return largest > 0 ? worst / largest : INFINITY;
}

std::vector<std::vector<double>> reference_gradients(const Model& model, const AdapterSet& adapter,
                                                     const Window& window, float weight) {
  WholeModel whole(model, adapter, window);
  whole.differentiate(weight);
  RefExec<double> exec(whole.graph);
  exec.run();
  std::vector<std::vector<double>> result;
  for (const Tensor& g : whole.gradients) {
    EXPECT_TRUE(g);
    const std::span<const double> values = exec.get(g);
    result.emplace_back(values.begin(), values.end());
  }
  return result;
}

struct RunResult {
  WindowLoss loss;
  std::vector<std::vector<float>> gradients;
};

RunResult run(const Model& model, AdapterSet& adapter, const Window& window, const RunnerOptions& options,
              int n_threads, float weight, IsaLevel level = best_isa()) {
  ThreadPool pool(n_threads);
  CpuBackend cpu(pool, level);
  adapter.allocate_gradients();
  WindowRunner runner(model, cpu, {&adapter}, &adapter, options);
  runner.allocate();
  RunResult r;
  r.loss = runner.forward_backward(window, weight, {});
  r.gradients = runner_gradients(adapter);
  return r;
}

RunnerOptions options_for(int64_t window, int64_t range) {
  RunnerOptions o;
  o.window_tokens = window;
  o.range_tokens = range;
  return o;
}

// Chunks of linear attention begin where ranges do, so a recurrent model's numbers depend a little on the
// cut. Others have the same bits.
void expect_same(const Model& model, const std::vector<float>& got, const std::vector<float>& want) {
  if (model.hparams().full_attention_interval == 0) {
    EXPECT_EQ(got, want);
    return;
  }
  EXPECT_LE(relative_error(got, std::vector<double>(want.begin(), want.end())), 2e-5);
}

class EveryArch : public testing::TestWithParam<const char*> {
 protected:
  TempDir dir_;
};
INSTANTIATE_TEST_SUITE_P(Archs, EveryArch,
                         testing::Values("qwen3", "qwen3moe", "olmoe", "qwen2moe", "qwen35", "qwen35moe",
                                         "qwen3next", "llama", "llama_dense", "gpt-oss", "deepseek2",
                                         "deepseek2_joint_kv_b", "deepseek2_v3"),
                         [](const auto& arch) {
                           std::string name = arch.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// The rules, through the double references, against the complex step along random directions: every adapter
// tensor of every layer, through all later layers.
TEST_P(EveryArch, WholeModelGradientIsTheDerivative) {
  const Model model = tiny_model(dir_, GetParam(), awkward_sizes(DType::Q8_0));
  const AdapterSet adapter = random_adapter(model, "attention", 2, 5);
  const Window window = random_window(model, {5, 4}, 2, 11);
  WholeModel whole(model, adapter, window);
  const int n_forward = whole.graph.size();
  whole.differentiate(1.f);
  ASSERT_EQ(whole.trained.size(), 2 * resolve_targets(model, "attention").size());
  RefExec<double> exec(whole.graph);
  exec.run();
  RefExec<Complex> forward(whole.graph, n_forward);
  for (size_t i = 0; i < whole.trained.size(); ++i) {
    ASSERT_TRUE(whole.gradients[i]) << whole.names[i];
    const std::span<const double> g = exec.get(whole.gradients[i]);
    const std::span<const double> x = exec.get(whole.trained[i].leaf);
    Rng rng(100 + i);
    std::vector<double> direction(x.size());
    std::vector<Complex> moved(x.size());
    double predicted = 0, size = 0;
    for (size_t j = 0; j < x.size(); ++j) {
      direction[j] = rng.next_normal();
      moved[j] = Complex(x[j], 1e-30 * direction[j]);
      predicted += direction[j] * g[j];
      size += std::abs(direction[j] * g[j]);
    }
    forward.set(whole.trained[i].leaf, moved);
    forward.run();
    const std::span<const Complex> loss = forward.get(whole.loss);
    double measured = 0;
    for (int64_t t = 0; t < window.n_tokens(); ++t) measured += loss[static_cast<size_t>(t)].imag() / 1e-30;
    ASSERT_GT(size, 0) << whole.names[i];
    EXPECT_LE(std::abs(measured - predicted), 1e-12 * size) << whole.names[i];
    for (size_t j = 0; j < x.size(); ++j) moved[j] = x[j];
    forward.set(whole.trained[i].leaf, moved);
  }
}

// The engine's segments against the one-graph double reference, at each ISA level.
TEST_P(EveryArch, RunnerGradientEqualsReference) {
  for (const auto& [type, targets] : {std::pair{DType::F32, "attention"},
                                      {DType::Q8_0, "attention"},
                                      {DType::F32, "experts"},
                                      {DType::Q8_0, "experts"}}) {
    const Model model = tiny_model(dir_, GetParam(), awkward_sizes(type));
    if (model.hparams().n_expert == 0 && std::string_view(targets) == "experts") continue;
    AdapterSet adapter = random_adapter(model, targets, 2, 5);
    const Window window = random_window(model, {9, 1, 14}, 3, 21);
    const std::vector<std::vector<double>> want = reference_gradients(model, adapter, window, 0.25f);
    for (IsaLevel level : compiled_isa_levels()) {
      if (!isa_supported(level)) continue;
      const RunResult got = run(model, adapter, window, options_for(24, 64), 2, 0.25f, level);
      ASSERT_EQ(got.gradients.size(), want.size());
      for (size_t i = 0; i < want.size(); ++i) {
        EXPECT_LE(relative_error(got.gradients[i], want[i]), 1e-4) << isa_name(level) << " tensor " << i;
      }
    }
  }
}

// Without the path through the experts the first layer's gradient is another one: the check above can fail.
TEST(Runner, GradientFlowsThroughTheExperts) {
  TempDir dir;
  const Model model = tiny_model(dir, "qwen3moe", awkward_sizes(DType::Q8_0));
  AdapterSet adapter = random_adapter(model, "attention", 2, 5);
  const Window window = random_window(model, {9, 14}, 3, 21);
  const std::vector<std::vector<double>> want = reference_gradients(model, adapter, window, 1.f);
  WholeModel whole(model, adapter, window);
  whole.differentiate(1.f);
  RefExec<double> exec(whole.graph);
  int first_cut = -1;
  for (int i = 0; i < whole.graph.size(); ++i) {
    if (whole.graph.node(i).op == Op::MUL_MAT_ID_BACK) first_cut = i;
  }
  ASSERT_GE(first_cut, 0);
  exec.run(0, first_cut + 1);
  for (double& v : exec.storage(Tensor{&whole.graph.node(first_cut), &whole.graph})) v = 0;
  exec.run(first_cut + 1, whole.graph.size());
  const std::span<const double> cut = exec.get(whole.gradients[0]);
  double difference = 0, largest = 0;
  for (size_t j = 0; j < cut.size(); ++j) {
    difference = std::max(difference, std::abs(cut[j] - want[0][j]));
    largest = std::max(largest, std::abs(want[0][j]));
  }
  EXPECT_GT(difference, 1e-3 * largest);
}

// A window cut into ranges has the gradient of the whole window.
TEST_P(EveryArch, RangesDoNotChangeTheGradient) {
  const Model model = tiny_model(dir_, GetParam(), awkward_sizes(DType::F16));
  const HParams& h = model.hparams();
  const char* targets = h.kv_lora_rank > 0              ? "attention"
                        : h.full_attention_interval > 0 ? "attn_qkv,attn_gate,attn_q,attn_k,attn_v"
                                                        : "attn_q,attn_k,attn_v";
  AdapterSet adapter = random_adapter(model, targets, 2, 5);
  const Window window = random_window(model, {150, 70}, 3, 8);
  const RunResult whole = run(model, adapter, window, options_for(220, 256), 2, 1.f / 200);
  const RunResult cut = run(model, adapter, window, options_for(220, 64), 2, 1.f / 200);
  expect_same(model, cut.loss.nll, whole.loss.nll);  // a row's arithmetic does not depend on its range
  ASSERT_EQ(whole.gradients.size(), cut.gradients.size());
  for (size_t i = 0; i < cut.gradients.size(); ++i) {
    const std::vector<double> want(whole.gradients[i].begin(), whole.gradients[i].end());
    EXPECT_LE(relative_error(cut.gradients[i], want), 2e-5) << i;
  }
}

TEST_P(EveryArch, ThreadsDoNotChangeABit) {
  const Model model = tiny_model(dir_, GetParam(), awkward_sizes(DType::Q8_0));
  for (Precision precision : {Precision::F32, Precision::BF16}) {
    AdapterSet adapter = random_adapter(model, "attention", 4, 5);
    const Window window = random_window(model, {90, 40, 30}, 5, 31);
    RunnerOptions options = options_for(160, 64);
    options.precision = precision;
    const RunResult one = run(model, adapter, window, options, 1, 1.f);
    for (int n : {2, 3}) {
      const RunResult more = run(model, adapter, window, options, n, 1.f);
      EXPECT_EQ(one.loss.nll, more.loss.nll) << n;
      EXPECT_EQ(one.gradients, more.gradients) << n;
    }
  }
}

// Samples side by side do not see each other: together they give the losses and the summed gradient of each
// alone.
TEST_P(EveryArch, PackedSamplesAreIndependent) {
  const Model model = tiny_model(dir_, GetParam(), awkward_sizes(DType::F32));
  AdapterSet adapter = random_adapter(model, "attention", 2, 5);
  const Window a = random_window(model, {23}, 2, 1), b = random_window(model, {37}, 4, 2);
  Window both = random_window(model, {23}, 2, 1);
  std::vector<uint8_t> trained(37);
  for (size_t i = 0; i < trained.size(); ++i) trained[i] = i >= 4;
  both.append(b.tokens, trained);
  const RunnerOptions options = options_for(60, 64);
  const RunResult ra = run(model, adapter, a, options, 2, 1.f), rb = run(model, adapter, b, options, 2, 1.f);
  const RunResult r = run(model, adapter, both, options, 2, 1.f);
  std::vector<float> alone = ra.loss.nll;
  alone.insert(alone.end(), rb.loss.nll.begin(), rb.loss.nll.end());
  EXPECT_EQ(r.loss.nll, alone);
  for (size_t i = 0; i < r.gradients.size(); ++i) {
    std::vector<double> sum(r.gradients[i].size());
    for (size_t j = 0; j < sum.size(); ++j)
      sum[j] = static_cast<double>(ra.gradients[i][j]) + rb.gradients[i][j];
    EXPECT_LE(relative_error(r.gradients[i], sum), 2e-5) << i;
  }
}

// However few logits exist at a time, losses are the same bits and gradients too.
TEST_P(EveryArch, LogitChunksDoNotChangeABit) {
  const Model model = tiny_model(dir_, GetParam(), awkward_sizes(DType::Q8_0));
  AdapterSet adapter = random_adapter(model, "attention", 2, 5);
  const Window window = random_window(model, {70, 60}, 1, 3);
  RunnerOptions options = options_for(130, 192);
  const RunResult all = run(model, adapter, window, options, 2, 1.f);
  options.logits_bytes = 1;  // the least, 16 tokens
  const RunResult chunked = run(model, adapter, window, options, 2, 1.f);
  EXPECT_EQ(all.loss.nll, chunked.loss.nll);
  EXPECT_EQ(all.loss.hits, chunked.loss.hits);
  EXPECT_EQ(all.gradients, chunked.gradients);
}

// Token by token, in pieces or at once: the same logits, bit for bit.
TEST_P(EveryArch, DecodeEqualsPrefill) {
  const Model model = tiny_model(dir_, GetParam(), awkward_sizes(DType::Q8_0));
  const AdapterSet adapter = random_adapter(model, "attention", 2, 5);
  const Window window = random_window(model, {83}, 1, 17);
  ThreadPool pool(2);
  CpuBackend cpu(pool, best_isa());
  const auto last_logits = [&](std::vector<size_t> pieces) {
    Session session(model, cpu, {&adapter}, 96, 96, Precision::F32);
    session.allocate();
    std::vector<float> logits;
    size_t at = 0;
    for (size_t n : pieces) {
      const std::span<const float> l = session.append(std::span(window.tokens).subspan(at, n));
      logits.assign(l.begin(), l.end());
      at += n;
    }
    EXPECT_EQ(at, window.tokens.size());
    return logits;
  };
  const std::vector<float> at_once = last_logits({83});
  expect_same(model, last_logits({64, 19}), at_once);
  expect_same(model, last_logits({70, 12, 1}), at_once);
  expect_same(model, last_logits(std::vector<size_t>(83, 1)), at_once);
}

TEST(Runner, PlanIsWhatIsAllocated) {
  TempDir dir;
  const Model model = tiny_model(dir, "qwen3moe", awkward_sizes(DType::Q8_0));
  AdapterSet adapter = random_adapter(model, "attn_v", 2, 5);
  ThreadPool pool(2);
  CpuBackend cpu(pool, best_isa());
  adapter.allocate_gradients();
  // Linear in the window, and flat in it where ranges bound the segment.
  std::vector<MemoryPlan> plans;
  for (int64_t window : {512, 1024, 2048}) {
    WindowRunner runner(model, cpu, {&adapter}, &adapter, options_for(window, 128));
    plans.push_back(runner.plan());
  }
  EXPECT_EQ(plans[2].persistent, 2 * plans[1].persistent);
  EXPECT_EQ(plans[1].persistent, 2 * plans[0].persistent);
  EXPECT_LE(plans[2].arena, 4 * plans[0].arena);
}

TEST(Runner, OnlyTheUpperLayersAreKeptWhenOnlyTheyAreTrained) {
  TempDir dir;
  const Model model = tiny_model(dir, "qwen3moe", awkward_sizes(DType::F32));
  AdapterSet adapter = random_adapter(model, "attention", 2, 5);
  for (AdapterPair& p : adapter.pairs()) p.trainable = p.weight->layer == 2;
  const Window window = random_window(model, {20}, 2, 4);
  const std::vector<std::vector<double>> want = reference_gradients(model, adapter, window, 1.f);
  ASSERT_EQ(want.size(), 8u);
  const RunResult got = run(model, adapter, window, options_for(20, 64), 2, 1.f);
  ASSERT_EQ(got.gradients.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_LE(relative_error(got.gradients[i], want[i]), 1e-4) << i;
}

// With experts kept, the loss is evaluate()'s where they were chosen; elsewhere tokens would have gone to
// others.
TEST(Runner, KeptExpertsAreThoseOfTheLastPass) {
  TempDir dir;
  const Model model = tiny_model(dir, "qwen3moe", awkward_sizes(DType::Q8_0));
  AdapterSet adapter = random_adapter(model, "attention", 2, 5);
  adapter.allocate_gradients();
  ThreadPool pool(2);
  CpuBackend cpu(pool, best_isa());
  for (int64_t range : {64, 192}) {
    const Window window = random_window(model, {90, 40}, 2, 6);
    WindowRunner runner(model, cpu, {&adapter}, &adapter, options_for(130, range));
    runner.allocate();
    EXPECT_THROW(runner.evaluate_kept(window), Error);  // none were chosen yet
    const WindowLoss here = runner.forward_backward(window, 1.f, {});
    EXPECT_EQ(runner.evaluate(window).nll, here.nll);
    EXPECT_EQ(runner.evaluate_kept(window).nll, here.nll);
    for (float& v : adapter.values()) v *= 1.5f;
    const WindowLoss kept = runner.evaluate_kept(window), chosen = runner.evaluate(window);
    EXPECT_NE(kept.nll, here.nll);
    EXPECT_NE(kept.nll, chosen.nll);
    EXPECT_EQ(runner.evaluate_kept(window).nll, kept.nll);  // evaluate() left them as they were
    EXPECT_EQ(runner.forward_backward(window, 1.f, {}).nll, chosen.nll);
    EXPECT_EQ(runner.evaluate_kept(window).nll, chosen.nll);
    for (float& v : adapter.values()) v /= 1.5f;
  }
}

// An expert is counted where its adapter gets a gradient, and only there.
TEST(Runner, CountedExpertsAreThoseWithAGradient) {
  TempDir dir;
  const Model model = tiny_model(dir, "qwen3moe", awkward_sizes(DType::F32));
  const HParams& h = model.hparams();
  AdapterSet adapter = random_adapter(model, "experts", 2, 5);
  for (AdapterPair& p : adapter.pairs()) p.trainable = p.weight->layer > 0;
  adapter.allocate_gradients();
  ThreadPool pool(2);
  CpuBackend cpu(pool, best_isa());
  int n_reached = 0, n_missed = 0;
  for (const uint64_t seed : {1, 2, 3}) {
    Window window = random_window(model, {3, 4}, 1, seed);
    for (const size_t i : {1, 3, 5, 6}) window.labels[i] = -1;  // the ends of both samples, and one between
    WindowRunner runner(model, cpu, {&adapter}, &adapter, options_for(7, 64));
    runner.allocate();
    std::fill(adapter.gradients().begin(), adapter.gradients().end(), 0.f);
    runner.forward_backward(window, 1.f, {});
    std::vector<int64_t> counts(static_cast<size_t>(h.n_expert * h.n_layer), 0);
    runner.count_experts(window, counts);
    for (const AdapterPair& p : adapter.pairs()) {
      const int64_t each = p.b_shape[0] * p.b_shape[1];
      for (int64_t e = 0; e < h.n_expert; ++e) {
        const float* g = adapter.b_gradient(p) + e * each;
        const bool reached = std::any_of(g, g + each, [](float x) { return x != 0; });
        const int64_t counted = counts[static_cast<size_t>(p.weight->layer * h.n_expert + e)];
        EXPECT_EQ(counted > 0, reached) << p.weight->name << ", expert " << e;
        ++(reached ? n_reached : n_missed);
      }
    }
    const auto tokens_of = [&](int64_t il) {
      return std::accumulate(counts.begin() + il * h.n_expert, counts.begin() + (il + 1) * h.n_expert,
                             int64_t{0}) /
             h.n_expert_used;
    };
    EXPECT_EQ(tokens_of(0), 0);
    EXPECT_EQ(tokens_of(1), 3);  // token 0 of the first sample, 0 and 1 of the second
    EXPECT_EQ(tokens_of(2), window.n_trained());
  }
  EXPECT_GT(n_reached, 20);
  EXPECT_GT(n_missed, 20);
}

TEST(Runner, TokensOutsideTheVocabularyAreRefused) {
  try {
    const std::vector<int32_t> tokens{1, 400};
    check_tokens(tokens, 400);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::BadData);
  }
}

}  // namespace
}  // namespace tandem
