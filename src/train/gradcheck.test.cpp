#include "train/gradcheck.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/rng.h"
#include "exec/cpu/cpu_backend.h"
#include "tests/support/tiny_models.h"

namespace tandem {
namespace {

// A smooth loss of n numbers with a gradient known in double, and what a real one adds: rounding, a jump.
struct Toy {
  std::vector<float> x, gradient;
  std::vector<double> c, q;
  double noise = 0;              // the deviation of a disturbance that differs at every point
  double jump = 0, jump_at = 0;  // beyond this distance along `q`
  int n_calls = 0;

  explicit Toy(size_t n = 96, uint64_t seed = 1) : x(n), gradient(n), c(n), q(n), at_q_(0) {
    Rng rng(seed);
    for (size_t i = 0; i < n; ++i) {
      x[i] = static_cast<float>(0.3 * rng.next_normal());
      c[i] = rng.next_normal();
      q[i] = rng.next_normal() / std::sqrt(static_cast<double>(n));
    }
    for (size_t i = 0; i < n; ++i) at_q_ += q[i] * x[i];
    for (size_t i = 0; i < n; ++i) gradient[i] = static_cast<float>(slope(i));
  }

  // sum of c sin(x), a square and a softplus of <q, x>.
  double slope(size_t i) const { return c[i] * std::cos(x[i]) + q[i] * (at_q_ + 2 / (1 + std::exp(-at_q_))); }
  double loss() {
    ++n_calls;
    double sum = 200, along = 0;
    uint64_t bits = 7;
    for (size_t i = 0; i < x.size(); ++i) {
      sum += c[i] * std::sin(x[i]);
      along += q[i] * x[i];
      uint32_t u;
      std::memcpy(&u, &x[i], sizeof u);
      bits = mix64(bits ^ u);
    }
    if (along - at_q_ > jump_at) sum += jump;
    return sum + along * along / 2 + 2 * std::log1p(std::exp(along)) + noise * Rng(bits).next_normal();
  }
  TensorCheck check(const GradCheckSettings& settings = {}) {
    const std::vector<float> before = x;
    const TensorCheck t = check_tensor(
        {"blk.3.attn_q.weight.lora_b", 3, x, gradient}, [&] { return loss(); }, settings);
    EXPECT_EQ(std::memcmp(before.data(), x.data(), x.size() * sizeof(float)), 0)
        << "the values were not put back";
    return t;
  }

 private:
  double at_q_;
};

bool says(const TensorCheck& t, const char* part) { return t.reason.find(part) != std::string::npos; }

TEST(GradCheck, ARightGradientPasses) {
  for (double noise : {0.0, 1e-6, 1e-4}) {
    Toy toy;
    toy.noise = noise;
    const TensorCheck t = toy.check();
    EXPECT_EQ(t.verdict, Verdict::Passed) << t.reason;
    EXPECT_EQ(t.reason, "");
    ASSERT_EQ(t.directions.size(), 3u);  // two random ones and the gradient's
    EXPECT_TRUE(t.directions[2].along_gradient);
    EXPECT_EQ(t.n_resolved(), 3);
    EXPECT_NEAR(t.directions[2].engine, t.gradient_norm, 1e-9 * t.gradient_norm);
    EXPECT_LE(t.error(), 1e-3 + t.noise());
    if (noise == 0) {
      EXPECT_LT(t.error(), 1e-5);
    } else {
      EXPECT_GT(t.loss_noise, noise / 4);
      EXPECT_LT(t.loss_noise, noise * 4);
    }
  }
}

TEST(GradCheck, WrongGradientsFailAndAreNamed) {
  struct Fault {
    const char* says;
    std::function<void(std::vector<float>&)> make;
  };
  const auto scaled = [](float f) {
    return [f](std::vector<float>& g) {
      for (float& v : g) v *= f;
    };
  };
  const Fault faults[] = {
      {"the engine's gradient is 0, the loss changes by", scaled(0.f)},
      {"it is 1.01 times what it should be", scaled(1.01f)},
      {"it is 0.5 times what it should be", scaled(0.5f)},
      {"it has the wrong sign", scaled(-1.f)},
      {"a part of the gradient is missing or wrong",
       [](std::vector<float>& g) { std::fill(g.begin(), g.begin() + 48, 0.f); }},
      {"a part of the gradient is missing or wrong",
       [](std::vector<float>& g) { std::fill(g.begin(), g.begin() + 2, 0.f); }},
      {"a part of the gradient is missing or wrong",
       [](std::vector<float>& g) { std::rotate(g.begin(), g.begin() + 1, g.end()); }},
      {"a part of the gradient is missing or wrong",
       [](std::vector<float>& g) { std::reverse(g.begin(), g.end()); }},
      {"a number that is not finite", [](std::vector<float>& g) { g[5] = NAN; }},
      {"a number that is not finite", [](std::vector<float>& g) { g[0] = INFINITY; }},
  };
  for (double noise : {0.0, 1e-5}) {
    for (const Fault& fault : faults) {
      Toy toy;
      toy.noise = noise;
      fault.make(toy.gradient);
      const TensorCheck t = toy.check();
      EXPECT_EQ(t.verdict, Verdict::Failed) << fault.says << ": " << t.reason;
      EXPECT_TRUE(says(t, fault.says)) << t.reason;
    }
  }
}

// A loss that answers only along the gradient would not show what is missing at right angles to it.
TEST(GradCheck, RandomDirectionsSeeWhatTheGradientsOwnCannot) {
  Toy toy;
  std::fill(toy.gradient.begin(), toy.gradient.begin() + 24, 0.f);
  const TensorCheck t = toy.check();
  ASSERT_EQ(t.directions.size(), 3u);
  EXPECT_EQ(t.directions[2].verdict, Verdict::Passed);  // <g, g> is the same with what is missing
  EXPECT_EQ(t.verdict, Verdict::Failed);
  EXPECT_TRUE(says(t, "along a random direction")) << t.reason;
}

TEST(GradCheck, NoiseAboveTheDerivativeIsUnresolved) {
  for (float factor : {1.f, 1.01f, 0.f}) {
    Toy toy;
    toy.noise = 50;
    for (float& g : toy.gradient) g *= factor;
    const TensorCheck t = toy.check();
    EXPECT_EQ(t.verdict, Verdict::Unresolved) << factor;
    EXPECT_TRUE(says(t, factor > 0 ? "too noisy" : "does not change beyond its noise")) << t.reason;
    EXPECT_GT(t.noise(), 1);
  }
}

// Resolved along the gradient only: a missing part could hide, so it does not pass, and the reason says which
// half.
TEST(GradCheck, OneKindOfDirectionIsNotEnough) {
  Toy toy(4096, 3);
  toy.noise = 0.1;
  const TensorCheck t = toy.check();
  ASSERT_EQ(t.directions.size(), 3u);
  ASSERT_EQ(t.directions[2].verdict, Verdict::Passed);
  ASSERT_EQ(t.n_resolved(), 1);
  EXPECT_EQ(t.verdict, Verdict::Unresolved);
  EXPECT_TRUE(t.reason.starts_with("along random directions the loss is too noisy")) << t.reason;
}

// Whatever the noise, a right gradient is never blamed.
TEST(GradCheck, NoiseBlamesNobody) {
  int n_passed = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    for (double noise : {1e-5, 1e-3, 1e-2, 1e-1}) {
      Toy toy(64, seed);
      toy.noise = noise;
      GradCheckSettings settings;
      settings.seed = seed;
      const TensorCheck t = toy.check(settings);
      EXPECT_NE(t.verdict, Verdict::Failed) << "seed " << seed << " noise " << noise << ": " << t.reason;
      n_passed += t.verdict == Verdict::Passed;
    }
  }
  EXPECT_GT(n_passed, 60);
}

// Neither are jumps, wherever they are and however large.
TEST(GradCheck, JumpsBlameNobody) {
  int n_passed = 0, n_unresolved = 0;
  for (double size : {1e-3, 0.1, 3.0}) {
    for (double at : {1e-6, 1e-4, 1e-3, 0.01, 0.03, 0.1, 0.2}) {
      for (uint64_t seed = 0; seed < 6; ++seed) {
        Toy toy(64, seed);
        toy.noise = 1e-6;
        toy.jump = size;
        toy.jump_at = at;
        const TensorCheck t = toy.check();
        EXPECT_NE(t.verdict, Verdict::Failed) << size << " at " << at << " seed " << seed << ": " << t.reason;
        n_passed += t.verdict == Verdict::Passed;
        n_unresolved += t.verdict == Verdict::Unresolved;
      }
    }
  }
  EXPECT_GT(n_passed, 20);      // where the jump lies beyond the steps that matter
  EXPECT_GT(n_unresolved, 10);  // where it does not
}

TEST(GradCheck, NothingDependsOnATensorThatDoesNotAct) {
  std::vector<float> x(20, 1.f), gradient(20, 0.f);
  const TensorCheck t = check_tensor({"a", 0, x, gradient}, [] { return 3.0; }, {});
  EXPECT_EQ(t.verdict, Verdict::Unresolved);
  EXPECT_TRUE(says(t, "does not depend on it here")) << t.reason;
}

TEST(GradCheck, ATensorOfZerosHasASizeToo) {
  Toy toy;
  std::fill(toy.x.begin(), toy.x.end(), 0.f);
  for (size_t i = 0; i < toy.x.size(); ++i) toy.gradient[i] = static_cast<float>(toy.c[i] + toy.q[i] * 1.0);
  const TensorCheck t = toy.check();
  EXPECT_EQ(t.verdict, Verdict::Passed) << t.reason;
}

TEST(GradCheck, StepsBeyondTheFiniteAreLeftOut) {
  Toy toy;
  const std::vector<float> start = toy.x;
  const LossFunction bounded = [&] {
    double moved = 0;
    for (size_t i = 0; i < start.size(); ++i)
      moved = std::max(moved, std::abs(static_cast<double>(toy.x[i]) - start[i]));
    if (moved > 0.1) fail(Code::NonFinite, "the loss is inf");
    return toy.loss();
  };
  const TensorCheck t = check_tensor({"a", 0, toy.x, toy.gradient}, bounded, {});
  EXPECT_EQ(t.verdict, Verdict::Passed) << t.reason;
  for (const DirectionCheck& c : t.directions) EXPECT_LT(c.step, 0.5);
  const LossFunction broken = [&]() -> double { fail(Code::Io, "gone"); };
  EXPECT_THROW(check_tensor({"a", 0, toy.x, toy.gradient}, broken, {}), Error);
  EXPECT_EQ(toy.x, start);
}

GradCheckReport report_of(std::initializer_list<std::pair<int, Verdict>> tensors) {
  GradCheckReport r;
  for (const auto& [layer, verdict] : tensors) {
    TensorCheck t;
    t.name = fmt::format("blk.{}.attn_q.weight.lora_a", layer);
    t.layer = layer;
    t.verdict = verdict;
    t.reason = "why";
    r.tensors.push_back(t);
  }
  return r;
}

std::string complaint(const GradCheckReport& report) {
  try {
    require_gradients(report);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::Internal);
    return e.what();
  }
  return "";
}

TEST(GradCheck, TheReportIsJudgedAsAWhole) {
  using enum Verdict;
  EXPECT_EQ(complaint(report_of({{0, Passed}, {1, Unresolved}})), "");
  EXPECT_NE(complaint(report_of({{0, Unresolved}, {1, Unresolved}})).find("nothing is shown: none of 2"),
            std::string::npos);
  EXPECT_NE(complaint(report_of({})).find("nothing is shown"), std::string::npos);
  const std::string between =
      complaint(report_of({{0, Failed}, {1, Failed}, {1, Passed}, {2, Unresolved}, {3, Passed}}));
  EXPECT_NE(between.find("the gradient of 2 of 5 tensors does not agree"), std::string::npos) << between;
  EXPECT_NE(between.find("layer 1 is wrong, layer 3 above it is right"), std::string::npos) << between;
  EXPECT_NE(between.find("\n  blk.1.attn_q.weight.lora_a: why\n  and 1 more"), std::string::npos) << between;
  EXPECT_NE(complaint(report_of({{0, Passed}, {1, Failed}})).find("no checked layer above it is right"),
            std::string::npos);
}

// Runs everything but the way back through frozen experts (or, with `adapters`, through those of an adapter
// too), of one layer or all: the gradient that arrives at MUL_MAT_ID_BACK is replaced by zeros.
class CutExperts : public Backend {
 public:
  CutExperts(Backend& inner, std::string layer, bool adapters)
      : inner_(inner), layer_(std::move(layer)), adapters_(adapters) {}
  // The cut graph is another one, so room is left for another plan.
  MemoryNeed plan(const Graph& graph, int n_nodes) override {
    MemoryNeed need = inner_.plan(graph, n_nodes);
    need.arena_bytes *= 4;
    return need;
  }
  void run(Graph& graph, int n_nodes, std::span<std::byte> memory, Priority priority) override {
    leaves_.clear();
    for (int i = 0; i < n_nodes; ++i) {
      Node& node = graph.node(i);
      if (node.op != Op::MUL_MAT_ID_BACK || !(adapters_ || node.src[0]->home == Home::Mapped)) continue;
      if (!std::string_view(node.src[0]->name).starts_with(layer_)) continue;
      auto zero = std::make_unique<Node>(*node.src[1]);
      zero->op = Op::LEAF;
      zero->home = Home::Persistent;
      zero->root = zero.get();
      zero->root_offset_bytes = 0;
      set_contiguous(*zero);
      zeros_.resize(std::max(zeros_.size(), static_cast<size_t>(zero->elements())));
      node.src[1] = zero.get();
      leaves_.push_back(std::move(zero));
      ++n_cut;
    }
    for (auto& leaf : leaves_) leaf->data = zeros_.data();
    inner_.run(graph, n_nodes, memory, priority);
  }
  const char* numerics() const override { return inner_.numerics(); }
  int n_cut = 0;

 private:
  Backend& inner_;
  std::string layer_;
  bool adapters_;
  std::vector<float> zeros_;
  std::vector<std::unique_ptr<Node>> leaves_;
};

// The model that is shipped, on tokens drawn at random.
class GradCheckTaleMoe : public testing::Test {
 protected:
  GradCheckReport check(const char* targets, Backend& backend) {
    AdapterSet adapter = random_adapter(model_, targets, 4, 9);
    const Window window = random_window(model_, {33, 21}, 1, 4);
    RunnerOptions options;
    options.window_tokens = window.n_tokens();
    GradCheckSettings settings = gradcheck_settings(Precision::F32);
    settings.samples = 1;
    return check_adapter(model_, backend, adapter, window, options, settings, {});
  }

  Model model_ = Model::open(std::string(TANDEM_SOURCE_DIR) + "/demo/tale-moe-Q4_K_M.gguf");
  ThreadPool pool_{2};
  CpuBackend cpu_{pool_, best_isa()};
};

TEST_F(GradCheckTaleMoe, EveryTensorPasses) {
  const GradCheckReport r = check("all", cpu_);
  ASSERT_EQ(r.tensors.size(), 28u);
  EXPECT_EQ(complaint(r), "");
  EXPECT_EQ(r.count(Verdict::Passed), 28);
  for (const TensorCheck& t : r.tensors) {
    EXPECT_EQ(t.verdict, Verdict::Passed) << t.name << ": " << t.reason;
    EXPECT_GT(t.gradient_norm, 0) << t.name;
    EXPECT_LE(t.error(), 2e-3) << t.name;
  }
}

// Attention below cut experts still gets what the residual stream carries: its gradient is wrong, not zero.
TEST_F(GradCheckTaleMoe, CutExpertsOfOneLayerAreFoundThere) {
  CutExperts cut(cpu_, "blk.0.", false);
  const GradCheckReport r = check("attention", cut);
  EXPECT_EQ(cut.n_cut, 3);  // gate, up and down of one layer
  ASSERT_EQ(r.tensors.size(), 16u);
  for (const TensorCheck& t : r.tensors) {
    EXPECT_EQ(t.verdict, t.layer == 0 ? Verdict::Failed : Verdict::Passed) << t.name << ": " << t.reason;
  }
  const std::string text = complaint(r);
  for (const char* part :
       {"the gradient of 8 of 16 tensors does not agree with the loss",
        "layer 0 is wrong, layer 1 above it is right", "blk.0.attn_q.weight.lora_a: along ",
        " per unit, the loss changes by ",
        "a part of the gradient is missing or wrong between this layer and the loss", "and 4 more"}) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }
}

// Adapters on the experts themselves lose everything.
TEST_F(GradCheckTaleMoe, AnAdapterBehindCutExpertsHasNoGradientAtAll) {
  CutExperts cut(cpu_, "", true);
  const GradCheckReport r = check("attention,experts", cut);
  EXPECT_GE(cut.n_cut, 6);
  ASSERT_EQ(r.tensors.size(), 28u);
  int n_zero = 0;
  for (const TensorCheck& t : r.tensors) {
    // Nothing comes between B of the last expert product and the loss.
    const bool whole = t.name == "blk.1.ffn_down_exps.weight.lora_b";
    EXPECT_EQ(t.verdict, whole ? Verdict::Passed : Verdict::Failed) << t.name << ": " << t.reason;
    if (t.gradient_norm > 0) continue;
    ++n_zero;
    EXPECT_TRUE(says(t, "the engine's gradient is 0, the loss changes by ")) << t.name << ": " << t.reason;
    EXPECT_TRUE(says(t, "per unit: the gradient is cut between this layer and the loss"))
        << t.name << ": " << t.reason;
  }
  EXPECT_EQ(n_zero, 2 * 5);  // A and B of gate and up, A of down, in both layers
  EXPECT_NE(complaint(r).find("blk.1.ffn_gate_exps.weight.lora_a: the engine's gradient is 0"),
            std::string::npos)
      << complaint(r);
}

// In bf16 more is unresolved, and nothing is blamed.
TEST_F(GradCheckTaleMoe, CoarseProductsBlameNobody) {
  AdapterSet adapter = random_adapter(model_, "attention", 4, 9);
  const Window window = random_window(model_, {33, 21}, 1, 4);
  RunnerOptions options;
  options.window_tokens = window.n_tokens();
  options.precision = Precision::BF16;
  const GradCheckReport r =
      check_adapter(model_, cpu_, adapter, window, options, gradcheck_settings(Precision::BF16), {});
  ASSERT_EQ(r.tensors.size(), 16u);
  int n_shown = 0;
  for (const TensorCheck& t : r.tensors) {
    EXPECT_NE(t.verdict, Verdict::Failed) << t.name << ": " << t.reason;
    EXPECT_EQ(t.reason.empty(), t.verdict == Verdict::Passed) << t.name;
    n_shown += t.directions.back().verdict == Verdict::Passed;
  }
  // Along the gradient the loss moves most; how far rounding blurs that depends on the level's order of sums
  // (with avx2 one tensor of 16 stays undecided).
  EXPECT_GE(n_shown, 14);
}

}  // namespace
}  // namespace tandem
