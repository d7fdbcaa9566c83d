// What the blocks of tests/op/blocks.cpp prove beyond the harness's modes.
#include "tests/op/blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "exec/cpu/cpu_backend.h"
#include "tests/op/grad_check.h"
#include "tests/support/tiny_models.h"

namespace tandem {
namespace {

OpCase case_named(const std::vector<OpCase>& cases, const std::string& name) {
  for (const OpCase& c : cases) {
    if (c.name == name) return c;
  }
  ADD_FAILURE() << "no case " << name;
  return cases.at(0);
}

std::set<std::string> input_names(GradCheck& check) {
  std::set<std::string> names;
  for (const Tensor& t : check.differentiated().builder.inputs()) names.insert(t.node->name);
  return names;
}

// The first layer's adapters learn through the second layer's experts.  Their gradient matches, and no longer
// does when that path is removed; what lies behind the last experts does not change.
TEST(Blocks, TheFirstLayersGradientComesThroughTheExperts) {
  const OpCase two_layers = case_named(layer_block_cases(), "qwen3moe, two layers through Q8_0 experts");
  GradCheck check("blocks/two layers", two_layers);
  const std::set<std::string> names = input_names(check);
  EXPECT_EQ(names.size(), 1u + 2 * 4 * 2);  // x; two layers of four projections, A and B each
  ASSERT_TRUE(check.check().pass) << check.check().message;
  for (const std::string& name : names) EXPECT_TRUE(check.check_input(name).pass) << name;
  check.remove_path(Op::MUL_MAT_ID_BACK);
  EXPECT_FALSE(check.check().pass);
  for (const char* role : {"attn_q", "attn_k", "attn_v", "attn_output"}) {
    for (const char* half : {"lora_a", "lora_b"}) {
      const std::string name = fmt::format("blk.0.{}.weight.{}", role, half);
      ASSERT_TRUE(names.contains(name)) << name;
      EXPECT_FALSE(check.check_input(name).pass) << name;
    }
  }
  check.restore();
  EXPECT_TRUE(check.check().pass);
}

// Without the outer products of trained experts, their adapters have no gradient, and each is missed.
TEST(Blocks, EachExpertsAdapterIsChecked) {
  GradCheck check("blocks/trained experts",
                  case_named(moe_block_cases(), "softmax, renormalized, trained experts, Q8_0"));
  ASSERT_TRUE(check.check().pass) << check.check().message;
  const std::set<std::string> names = input_names(check);
  EXPECT_EQ(names.size(), 1u + 3 * 2);
  check.remove_path(Op::OUT_PROD_ID);
  EXPECT_TRUE(check.check_input("x").pass);
  for (const std::string& name : names) {
    if (name == "x") continue;
    EXPECT_FALSE(check.check_input(name).pass) << name;
  }
}

// One expert's part of a stacked gradient, however small, is held against itself: the gauge drops expert 2's.
TEST(Blocks, OneExpertLeftOutIsNoticed) {
  GradCheck check("blocks/one expert",
                  {"one expert", [](CaseBuilder& c) {
                     const Tensor as = c.input("as", {40, 9, 3}), b = c.input("b", {40, 1, 6});
                     const Tensor y = mul_mat_id(as, b, c.ids_of("ids", {1, 6}, {0, 0, 2, 0, 2, 0}));
                     // the tokens of expert 2 count a millionth
                     const Tensor weights = c.constant("weights", {1, 1, 6}, 1, 1);
                     for (int t : {2, 4}) static_cast<float*>(weights.node->data)[t] = 1e-6f;
                     return mul(y, weights);
                   }});
  ASSERT_TRUE(check.check().pass) << check.check().message;
  std::vector<std::string> dropped;
  for (const Gauged& g : check.gauge()) {
    if (g.what == "one expert's rows dropped") dropped.push_back(g.node);
    EXPECT_TRUE(!g.effective || g.noticed) << g.node << " " << g.what;
  }
  EXPECT_FALSE(dropped.empty());
}

// The engine's segments and kernels, for adapters on the experts themselves, expert by expert against the f64
// reference of the whole model.
TEST(Blocks, TheRunnersGradientOfTrainedExpertsMatchesExpertByExpert) {
  TempDir dir;
  for (DType type : {DType::F32, DType::Q8_0}) {
    const Model model = tiny_model(dir, "qwen3moe", awkward_sizes(type));
    AdapterSet adapter = random_adapter(model, "experts", 2, 5);
    adapter.allocate_gradients();
    const Window window = random_window(model, {9, 1, 14}, 3, 21);
    WholeModel whole(model, adapter, window);
    whole.differentiate(0.25f);
    RefExec<double> exec(whole.graph);
    exec.run();
    for (IsaLevel level : compiled_isa_levels()) {
      if (!isa_supported(level)) continue;
      ThreadPool pool(2);
      CpuBackend cpu(pool, level);
      RunnerOptions options;
      options.window_tokens = window.n_tokens();
      options.range_tokens = 64;
      WindowRunner runner(model, cpu, {&adapter}, &adapter, options);
      runner.allocate();
      std::fill(adapter.gradients().begin(), adapter.gradients().end(), 0.f);
      runner.forward_backward(window, 0.25f, {});
      Named got;
      for (const AdapterPair& p : adapter.pairs()) {
        const float *a = adapter.a_gradient(p), *b = adapter.b_gradient(p);
        got[p.weight->name + ".lora_a"] = {a, a + p.a_shape.elements()};
        got[p.weight->name + ".lora_b"] = {b, b + p.b_shape.elements()};
      }
      ASSERT_EQ(got.size(), 3u * 3 * 2);  // layers, roles, A and B
      ASSERT_EQ(whole.gradients.size(), got.size());
      for (size_t i = 0; i < whole.gradients.size(); ++i) {
        const std::string& name = whole.names[i];
        ASSERT_TRUE(whole.gradients[i] && got.contains(name)) << name;
        const Verdict v =
            compare_slices(got.at(name), exec.get(whole.gradients[i]), model.hparams().n_expert, 1e-4);
        EXPECT_TRUE(v.pass) << isa_name(level) << " " << name << " " << v.message;
      }
    }
  }
}

}  // namespace
}  // namespace tandem
