#include "app/bench/report.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace tandem {
namespace {

// Three rounds, in the last of which the machine was half as fast.
const Peaks kRounds[] = {{.fma_f32 = 100e9, .dot_bf16 = 200e9, .dot_int8 = 400e9, .copy = 10e9},
                         {.fma_f32 = 100e9, .dot_bf16 = 200e9, .dot_int8 = 400e9, .copy = 10e9},
                         {.fma_f32 = 50e9, .dot_bf16 = 100e9, .dot_int8 = 200e9, .copy = 5e9}};
const Work kProduct{.operations = 1e9, .bytes = 1e6, .precision = Precision::BF16};  // 5 ms at 200e9

BenchLine line() {
  BenchLine l = make_line({{0.010, 0.010, 0.020}, 4}, kRounds, {&kProduct, 1});
  l.mode = "ops";
  l.name = "MUL_MAT x";
  l.precision = "bf16";
  l.n_threads = 2;
  return l;
}

class EarlierRuns : public testing::Test {
 protected:
  ~EarlierRuns() override { std::filesystem::remove(path_); }
  std::string file(const std::string& text) {
    FILE* f = fopen(path_.c_str(), "w");
    fputs(text.c_str(), f);
    fclose(f);
    return path_;
  }
  std::string refusal(const std::string& text) {
    try {
      EarlierRun::read(file(text));
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::BadData);
      return e.what();
    }
    return "";
  }
  const std::string path_ = testing::TempDir() + "tandem-earlier.jsonl";
};

TEST(Lines, TheShareIsOfTheSameRound) {
  const BenchLine l = line();
  EXPECT_DOUBLE_EQ(l.ms.median, 10);
  EXPECT_DOUBLE_EQ(l.ms.lo, 10);
  EXPECT_DOUBLE_EQ(l.ms.hi, 20);
  EXPECT_DOUBLE_EQ(l.share, 0.5);
  EXPECT_EQ(l.bound, "bf16 dot");
  EXPECT_DOUBLE_EQ(l.operations_per_second, 100e9);
  EXPECT_DOUBLE_EQ(l.bytes_per_second, 100e6);
  EXPECT_EQ(l.n_rounds, 3);
  EXPECT_EQ(l.n_runs, 4);
}

TEST(Lines, TheRatioIsOfTheSameRound) { EXPECT_DOUBLE_EQ(median_ratio({{6, 8, 90}, 1}, {{2, 2, 30}, 1}), 3); }

TEST(Lines, AsJson) {
  BenchLine l = line();
  l.baseline_ratio = 6.5;
  const nlohmann::json j = as_json(l, EarlierRun::Ratio{2, 1.5});
  EXPECT_EQ(j["type"], "bench");
  EXPECT_EQ(j["threads"], 2);
  EXPECT_EQ(j["ms"], 10);
  EXPECT_EQ(j["gflops"], 100);
  EXPECT_EQ(j["baseline_ratio"], 6.5);
  EXPECT_EQ(j["compared"]["speed"], 2);
  EXPECT_FALSE(j.contains("tokens_per_second"));
  const nlohmann::json p = as_json(kRounds[0], 2, IsaLevel::base);
  EXPECT_EQ(p["fma_f32_gflops"], 100);
  EXPECT_FALSE(as_json(Peaks{.fma_f32 = 1, .copy = 1}, 1, IsaLevel::base).contains("dot_bf16_gflops"));
}

TEST(Lines, Rates) {
  EXPECT_EQ(format_rate(2.5e12, "FLOP/s"), "2.50 TFLOP/s");
  EXPECT_EQ(format_rate(83.96e9, "B/s"), "84.0 GB/s");
  EXPECT_EQ(format_rate(5e6, "B/s"), "5.0 MB/s");
}

TEST_F(EarlierRuns, ComparesWhatIsTheSame) {
  BenchLine then = line();
  then.ms.median = 30;
  then.share = 0.25;
  const std::string other = R"({"type":"peaks","threads":2})";
  const EarlierRun run = EarlierRun::read(file(as_json(then, std::nullopt).dump() + "\n" + other + "\n"));
  const std::optional<EarlierRun::Ratio> ratio = run.compare(line());
  ASSERT_TRUE(ratio);
  EXPECT_DOUBLE_EQ(ratio->speed, 3);
  EXPECT_DOUBLE_EQ(ratio->share, 2);
  for (const auto& change : std::vector<std::function<void(BenchLine&)>>{
           [](BenchLine& l) { l.name = "MUL_MAT y"; }, [](BenchLine& l) { l.n_threads = 1; },
           [](BenchLine& l) { l.precision = "f32"; }, [](BenchLine& l) { l.mode = "train"; }}) {
    BenchLine different = line();
    change(different);
    EXPECT_FALSE(run.compare(different));
  }
}

TEST_F(EarlierRuns, RefusesOtherFiles) {
  EXPECT_NE(refusal(R"({"type":"peaks"})").find("no line"), std::string::npos);
  EXPECT_NE(refusal(R"({"what":1})").find("has no type"), std::string::npos);
  EXPECT_NE(refusal(R"({"type":"bench","ms":1})").find("has no share"), std::string::npos);
  nlohmann::json bad = as_json(line(), std::nullopt);
  bad["ms"] = 0;
  EXPECT_NE(refusal(bad.dump()).find("above 0"), std::string::npos);
  bad["ms"] = "fast";
  EXPECT_NE(refusal(bad.dump()).find("ms"), std::string::npos);
}

}  // namespace
}  // namespace tandem
