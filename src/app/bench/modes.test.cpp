#include "app/bench/modes.h"

#include <gtest/gtest.h>

#include "app/bench/shapes.h"
#include "base/error.h"
#include "ops/ops.h"

namespace tandem {
namespace {

using Texts = std::vector<std::string>;

Options parse(const Texts& arguments) { return parse_options(Command::Bench, arguments, {}); }

// The message of the Usage error that a call of tandem bench earns; empty if it is accepted.
std::string refusal(const Texts& arguments) {
  try {
    const Options o = parse(arguments);
    check_bench_flags(o, parse_bench_mode(o.operand()));
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::Usage);
    return e.what();
  }
  return "";
}

TEST(BenchModes, AreFourAndOpsIsTheUsualOne) {
  EXPECT_EQ(parse_bench_mode(""), BenchMode::Ops);
  EXPECT_EQ(parse_bench_mode("decode"), BenchMode::Decode);
  EXPECT_NE(refusal({"fast"}).find("ops, train, prefill, decode"), std::string::npos);
}

TEST(BenchModes, FlagsThatWouldHaveNoEffectAreRefused) {
  for (const Texts& good : std::vector<Texts>{{},
                                              {"--why"},
                                              {"ops", "--op", "MUL_MAT", "--case", "x", "-t", "1"},
                                              {"ops", "--synth", "tiny", "-p", "8", "--type", "q8_0"},
                                              {"train", "-m", "a.gguf", "-p", "64", "--by", "op"},
                                              {"train", "--synth", "tiny", "--layers", "1", "--rank", "4"},
                                              {"prefill", "-m", "a.gguf", "-d", "9", "-ub", "64"},
                                              {"decode", "--synth", "tiny", "-n", "4", "--why"}}) {
    EXPECT_EQ(refusal(good), "") << fmt::format("{}", fmt::join(good, " "));
  }
  for (const auto& [bad, says] : std::vector<std::pair<Texts, std::string>>{
           {{"train"}, "needs a model"},
           {{"train", "-m", "a", "--synth", "tiny"}, "not both"},
           {{"train", "-m", "a", "--op", "ADD"}, "--op has no effect"},
           {{"ops", "--by", "op"}, "--by has no effect"},
           {{"ops", "-p", "8"}, "--n-prompt has no effect"},
           {{"ops", "--type", "f16"}, "it goes with --synth"},
           {{"decode", "-m", "a", "-p", "8"}, "--n-prompt has no effect"},
           {{"train", "-m", "a", "-n", "8"}, "--n-gen has no effect"},
           {{"train", "-m", "a", "--layers", "1"}, "--layers has no effect"},
           {{"prefill", "-m", "a", "--rank", "1"}, "--lora-rank has no effect"},
           {{"--why", "--compare", "a"}, "--compare has no effect"}}) {
    EXPECT_NE(refusal(bad).find(says), std::string::npos) << says << ": " << refusal(bad);
  }
}

TEST(BenchModes, PrecisionIsThatOfTheUse) {
  EXPECT_EQ(bench_precision(parse({"train"}), IsaLevel::avx512_bf16), Precision::BF16);
  EXPECT_EQ(bench_precision(parse({"train"}), IsaLevel::avx512), Precision::F32);
  EXPECT_EQ(bench_precision(parse({"decode"}), IsaLevel::avx512_bf16), Precision::Int8);
  EXPECT_EQ(bench_precision(parse({"prefill"}), IsaLevel::base), Precision::Int8);
  EXPECT_EQ(bench_precision(parse({"decode", "--precision", "bf16"}), IsaLevel::base), Precision::BF16);
  EXPECT_EQ(bench_precision(parse({"ops", "--precision", "int8"}), IsaLevel::base), Precision::Int8);
  EXPECT_THROW(bench_precision(parse({"train", "--precision", "int8"}), IsaLevel::base), Error);
  EXPECT_EQ(bench_precision(parse({"ops", "--precision", "f32"}), IsaLevel::avx512_bf16), Precision::F32);
}

TEST(Refusals, NameTheNodeTheReasonAndWhoTookIt) {
  ThreadPool pool(1);
  const CpuBackend backend(pool, IsaLevel::base);
  Graph g;
  const auto leaf = [&](const Shape& ne) {
    return g.leaf(DType::F32, ne, Home::Persistent, static_cast<void*>(nullptr), "x");
  };
  const Tensor w = leaf({4, 3}), x = leaf({4, 2}), scattered = leaf({4, 2});
  scattered.node->nb[0] = 8;
  mul_mat(w, x);
  for (int i = 0; i < 2; ++i) mul_mat(w, scattered);
  Refusals refusals(backend);
  refusals.look_at(g, "a case");
  EXPECT_EQ(refusals.n_nodes(), 3);
  ASSERT_EQ(refusals.refused().size(), 1u);
  const Refusals::Refused& r = refusals.refused()[0];
  EXPECT_EQ(r.n, 2);
  EXPECT_EQ(r.node, "MUL_MAT F32 {4, 3} F32 {4, 2}");
  EXPECT_EQ(r.taken_by, "reference");
  EXPECT_EQ(r.reasons, "base: activation rows must be contiguous");
  EXPECT_EQ(r.where, "a case");
}

TEST(BenchShapes, HaveTheirMatrices) {
  for (const NamedShape& s : all_shapes()) {
    EXPECT_EQ(&find_shape(s.name), &s);
    int64_t n_experts = 0;
    for (const NamedMatrix& m : s.matrices()) {
      if (m.ne[2] == 1) continue;
      ++n_experts;
      EXPECT_EQ(m.ne, m.per_slot ? Shape(s.n_ff_exp, s.n_embd, s.n_expert)
                                 : Shape(s.n_embd, s.n_ff_exp, s.n_expert))
          << s.name << " " << m.name;
    }
    EXPECT_EQ(n_experts, 2) << s.name;
  }
  EXPECT_THROW(find_shape("qwen"), Error);
  EXPECT_EQ(bench_type(parse({"ops", "--synth", "gpt-oss-20b"}), find_shape("gpt-oss-20b")), DType::MXFP4);
  EXPECT_EQ(bench_type(parse({"ops", "--type", "f16"}), find_shape("tiny")), DType::F16);
  EXPECT_THROW(bench_type(parse({"ops", "--type", "f17"}), find_shape("tiny")), Error);
}

TEST(BenchShapes, TypesFitTheRows) {
  EXPECT_EQ(matrix_type(DType::Q4_K, 512), DType::Q4_K);
  EXPECT_EQ(matrix_type(DType::Q4_K, 2880), DType::Q8_0);
  EXPECT_EQ(matrix_type(DType::Q4_K, 70), DType::F16);
  EXPECT_THROW(matrix_type(DType::Q2_K, 256), Error) << "has no encoder";
}

TEST(BenchShapes, ModelsHaveTheShapesOfTheirLayers) {
  const SynthSettings s = model_of(find_shape("qwen3-30b-a3b"), 3, 400, DType::Q4_K, 64);
  EXPECT_EQ(s.n_layer, 3);
  EXPECT_EQ(s.n_expert, 128);
  EXPECT_EQ(s.n_ff_exp, 768);
  EXPECT_EQ(s.n_vocab, 400);
  const SynthSettings oss = model_of(find_shape("gpt-oss-20b"), 1, 400, DType::MXFP4, 64);
  EXPECT_EQ(oss.n_embd, 2880);
  EXPECT_EQ(oss.sliding_window, 128);
  const SynthSettings hybrid = model_of(find_shape("qwen3.6-35b-a3b"), 2, 400, DType::Q4_K, 64);
  EXPECT_EQ(hybrid.n_expert, 256);
  EXPECT_EQ(hybrid.d_head, 256);
}

}  // namespace
}  // namespace tandem
