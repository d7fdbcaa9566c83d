// Products in int8: a row alone and in company, threads, values that are no numbers, and how exact they are.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "exec/ref/ref_exec.h"
#include "formats/format_kernels.h"
#include "tests/op/case_builder.h"
#include "tests/op/run_case.h"

namespace tandem {
namespace {

std::vector<DType> int8_types() {
  std::vector<DType> types;
  for (const TypeInfo& info : all_types()) {
    if (info.codec && product_precision(Precision::Int8, info.type) == Precision::Int8)
      types.push_back(info.type);
  }
  return types;
}

std::vector<IsaLevel> host_levels() {
  std::vector<IsaLevel> levels;
  for (IsaLevel level : compiled_isa_levels()) {
    if (isa_supported(level)) levels.push_back(level);
  }
  return levels;
}

std::vector<float> floats(const CaseRun& run, Tensor t) {
  EXPECT_EQ(run.complaint, "");
  const std::vector<std::byte>& bytes = run.values[static_cast<size_t>(t.node->index)];
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

constexpr int64_t kTokens = 7, kRows = 83, kDepth = 768;

TEST(Int8Products, ARowAloneIsTheRowInCompany) {
  for (DType type : int8_types()) {
    HarnessBuilder builder("int8/company");
    CaseBuilder& c = builder;
    Graph& g = c.graph();
    g.precision = Precision::Int8;
    const Tensor w = c.weight("w", type, {kDepth, kRows}), x = c.constant("x", {kDepth, kTokens});
    const Tensor all = mul_mat(w, x);
    std::vector<Tensor> alone;
    for (int64_t t = 0; t < kTokens; ++t) alone.push_back(mul_mat(w, view(x, {kDepth, 1}, t * kDepth * 4)));
    // The same rows through experts, of which each is the matrix.
    const Tensor as = c.weight("as", type, {kDepth, kRows, 3});
    const std::vector<int32_t> chosen = {2, 0, 1, 2, 2, 0, 2, 1, 2, 0, 1, 2, 0, 1};
    const Tensor routed =
        mul_mat_id(as, reshape(x, {kDepth, 1, kTokens}), c.ids_of("ids", {2, kTokens}, chosen));
    std::vector<Tensor> of_expert;
    for (int64_t e = 0; e < 3; ++e) {
      of_expert.push_back(mul_mat_id(as, reshape(x, {kDepth, 1, kTokens}),
                                     c.ids_of(("only" + std::to_string(e)).c_str(), {1, kTokens},
                                              std::vector<int32_t>(kTokens, static_cast<int32_t>(e)))));
    }
    for (IsaLevel level : host_levels()) {
      const CaseRun run = run_on_cpu(g, {.level = level, .n_threads = 2, .share = false});
      const std::vector<float> together = floats(run, all), slots = floats(run, routed);
      std::vector<std::vector<float>> experts;
      for (const Tensor& e : of_expert) experts.push_back(floats(run, e));
      ASSERT_EQ(together.size(), static_cast<size_t>(kTokens * kRows));
      for (int64_t t = 0; t < kTokens; ++t) {
        const std::vector<float> one = floats(run, alone[static_cast<size_t>(t)]);
        ASSERT_EQ(std::memcmp(one.data(), together.data() + t * kRows, kRows * sizeof(float)), 0)
            << name_of(type) << " " << isa_name(level) << " token " << t;
        for (int64_t i = 0; i < 2; ++i) {
          const auto e = static_cast<size_t>(chosen[static_cast<size_t>(2 * t + i)]);
          ASSERT_EQ(std::memcmp(slots.data() + (2 * t + i) * kRows, experts[e].data() + t * kRows,
                                kRows * sizeof(float)),
                    0)
              << name_of(type) << " " << isa_name(level) << " token " << t << " slot " << i;
        }
      }
    }
  }
}

TEST(Int8Products, ThreadsChangeNothing) {
  for (DType type : {DType::Q4_K, DType::Q6_K, DType::Q4_0, DType::Q2_K}) {
    for (int64_t tokens : {1, 70}) {
      HarnessBuilder builder("int8/threads");
      CaseBuilder& c = builder;
      c.graph().precision = Precision::Int8;
      const Tensor y = mul_mat_id(c.weight("as", type, {512, 200, 6}), c.constant("b", {512, 1, tokens}),
                                  c.ids("ids", {4, tokens}, 6, true));
      for (IsaLevel level : host_levels()) {
        const std::vector<float> one = floats(run_on_cpu(c.graph(), {.level = level, .share = false}), y);
        for (int n : {2, 3, 5}) {
          EXPECT_EQ(floats(run_on_cpu(c.graph(), {.level = level, .n_threads = n, .share = false}), y), one)
              << name_of(type) << " " << isa_name(level) << " " << n << " threads";
        }
      }
    }
  }
}

// Levels with FMA do the same operations.
TEST(Int8Products, LevelsWithFmaGiveTheSameBits) {
  if (!isa_supported(IsaLevel::avx512)) GTEST_SKIP() << "needs AVX-512";
  for (DType type : int8_types()) {
    HarnessBuilder builder("int8/levels");
    CaseBuilder& c = builder;
    c.graph().precision = Precision::Int8;
    const Tensor y = mul_mat(c.weight("w", type, {kDepth, kRows}), c.constant("x", {kDepth, 3}));
    const auto at = [&](IsaLevel level) {
      return floats(run_on_cpu(c.graph(), {.level = level, .share = false}), y);
    };
    EXPECT_EQ(at(IsaLevel::avx2), at(IsaLevel::avx512)) << name_of(type);
  }
}

// What is no number must not vanish in the rounding.
TEST(Int8Products, InfinityAndNanShow) {
  for (IsaLevel level : host_levels()) {
    for (float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(),
                      -std::numeric_limits<float>::infinity()}) {
      HarnessBuilder builder("int8/no number");
      CaseBuilder& c = builder;
      c.graph().precision = Precision::Int8;
      const Tensor x = c.constant("x", {256, 2});
      static_cast<float*>(x.node->data)[256 + 37] = bad;
      const Tensor y = mul_mat(c.weight("w", DType::Q4_K, {256, 20}), x);
      const std::vector<float> got = floats(run_on_cpu(c.graph(), {.level = level, .share = false}), y);
      for (size_t i = 0; i < 20; ++i) {
        EXPECT_TRUE(std::isfinite(got[i])) << isa_name(level);
        EXPECT_FALSE(std::isfinite(got[20 + i])) << isa_name(level) << " " << bad;
      }
    }
  }
}

// sqrt(sum of squared errors / sum of squares) against the double reference on unrounded operands.
double normalized_error(DType type, Precision precision) {
  HarnessBuilder builder("int8/normalized error");
  CaseBuilder& c = builder;
  c.graph().precision = precision;
  const Tensor y = mul_mat(c.weight("w", type, {2048, 64}), c.constant("x", {2048, 16}));
  const std::vector<float> got = floats(run_on_cpu(c.graph(), {.level = best_isa(), .share = false}), y);
  RefExec<double> ref(c.graph());
  ref.run();
  const std::span<const double> want = ref.get(y);
  double error = 0, size = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    error += (got[i] - want[i]) * (got[i] - want[i]);
    size += want[i] * want[i];
  }
  return std::sqrt(error / size);
}

// Uniform activations: a step is 1/127 of the largest of 32, an error 0.29 steps, so 0.0038 of the root mean
// square; where the weights have a mean, sums cancel less than errors do, or more.
TEST(Int8Products, ErrorsAreThoseOfTheRounding) {
  for (DType type : int8_types()) {
    const double f32 = normalized_error(type, Precision::F32), bf16 = normalized_error(type, Precision::BF16),
                 int8 = normalized_error(type, Precision::Int8);

    EXPECT_LT(int8, 0.008) << name_of(type);
    EXPECT_GT(int8, 0.0015) << name_of(type) << ": these are not int8 activations";
    EXPECT_LT(bf16, 0.006) << name_of(type);
    EXPECT_LT(f32, 2e-6) << name_of(type);
  }
}

}  // namespace
}  // namespace tandem
