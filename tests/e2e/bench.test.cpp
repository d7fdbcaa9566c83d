// `tandem bench` of the real binary: what it prints, never how long something took.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace tandem {
namespace {

using nlohmann::json;

struct Outcome {
  int status = -1;
  std::string out;
};

Outcome run(const std::string& arguments) {
  Outcome o;
  FILE* pipe = popen(("env -u TANDEM_ISA '" TANDEM_BINARY "' bench " + arguments).c_str(), "r");
  if (!pipe) return o;
  char buffer[4096];
  for (size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) o.out.append(buffer, n);
  const int status = pclose(pipe);
  o.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  return o;
}

std::vector<json> json_lines(const std::string& arguments) {
  const Outcome o = run(arguments + " --json 2>/dev/null");
  EXPECT_EQ(o.status, 0) << arguments << ": " << o.out;
  std::vector<json> all;
  std::istringstream in(o.out);
  for (std::string line; std::getline(in, line);) all.push_back(json::parse(line));
  return all;
}

std::vector<json> of_type(const std::vector<json>& lines, const char* type) {
  std::vector<json> found;
  for (const json& l : lines) {
    if (l["type"] == type) found.push_back(l);
  }
  return found;
}

void expect_positive(const json& line, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    ASSERT_TRUE(line.contains(name)) << name << " in " << line;
    const double x = line[name];
    EXPECT_TRUE(std::isfinite(x) && x > 0) << name << " in " << line;
  }
}

TEST(BenchCommand, OpsCasesBesideTheMachine) {
  const std::vector<json> lines = json_lines("ops --op MUL_MAT --case 'one token' -r 2 -t 1,2");
  const std::vector<json> timed = of_type(lines, "bench"), peaks = of_type(lines, "peaks");
  ASSERT_EQ(timed.size(), 6u) << "f32, bf16 and int8, 1 and 2 threads";
  for (const json& l : timed) {
    EXPECT_EQ(l["mode"], "ops");
    expect_positive(l, {"ms", "ms_min", "ms_max", "gflops", "gbytes_per_second", "share", "threads"});
    EXPECT_EQ(l["rounds"], 2);
  }
  ASSERT_EQ(peaks.size(), 2u);
  for (const json& l : peaks) expect_positive(l, {"fma_f32_gflops", "copy_gbytes_per_second"});
}

TEST(BenchCommand, ProductsOfAShapeBesideTheBaseline) {
  const std::vector<json> timed =
      of_type(json_lines("ops --synth tiny --op MUL_MAT_ID_BACK -p 16 -r 2 -t 2"), "bench");
  ASSERT_EQ(timed.size(), 4u) << "up and down, each with the baseline";
  int n_ratios = 0;
  for (const json& l : timed) {
    expect_positive(l, {"ms", "gflops", "share"});
    if (!l.contains("baseline_ratio")) continue;
    ++n_ratios;
    expect_positive(l, {"baseline_ratio"});
  }
  EXPECT_EQ(n_ratios, 2);
}

TEST(BenchCommand, ModelsOfAShape) {
  const std::string tiny = " --synth tiny --layers 1 -r 1 -t 2";
  for (const auto& [call, name] : {std::pair{"train -p 16 --by op", "step of 16 tokens"},
                                   {"prefill -p 16 -d 3", "prompt of 16 tokens after 3"},
                                   {"decode -n 3", "token, mean of 3 after 0"}}) {
    const std::vector<json> lines = json_lines(call + tiny), timed = of_type(lines, "bench");
    ASSERT_EQ(timed.size(), 1u) << call;
    expect_positive(timed[0],
                    {"ms", "gflops", "gbytes_per_second", "share", "tokens_per_second", "memory_bytes"});
    EXPECT_EQ(timed[0]["name"].get<std::string>().rfind(name, 0), 0u) << timed[0]["name"];
  }
  double of_time = 0;
  const std::vector<json> parts = of_type(json_lines("train -p 16 --by segment" + tiny), "part");
  for (const json& p : parts) of_time += p["of_time"].get<double>();
  EXPECT_NEAR(of_time, 1, 1e-9);
  EXPECT_GE(parts.size(), 5u) << "embedding, layer forward and backward, head, between";
}

TEST(BenchCommand, ComparesWithAnEarlierRun) {
  const std::string file = testing::TempDir() + "tandem-bench-e2e.jsonl", call = "ops --op SCALE -r 1 -t 1";
  ASSERT_EQ(run(call + " --json >'" + file + "' 2>/dev/null").status, 0);
  for (const json& l : of_type(json_lines(call + " --compare '" + file + "'"), "bench")) {
    ASSERT_TRUE(l.contains("compared")) << l;
    expect_positive(l["compared"], {"speed", "share"});
  }
  EXPECT_NE(run(call + " --compare '" + file + "' 2>/dev/null").out.find("earlier/this"), std::string::npos);
  EXPECT_EQ(run("ops --op ADD -r 1 -t 1 --compare '" + file + "' >/dev/null 2>&1").status, 3);
  std::filesystem::remove(file);
}

TEST(BenchCommand, WhyNamesWhatFallsBack) {
  const Outcome o = run("--why 2>/dev/null");
  EXPECT_EQ(o.status, 0);
  EXPECT_NE(o.out.find("nodes fall back"), std::string::npos) << o.out;
  const std::vector<json> lines = json_lines("train --synth tiny --why");
  ASSERT_FALSE(lines.empty());
  EXPECT_EQ(lines.back()["type"], "refusals");
  EXPECT_GT(lines.back()["nodes"].get<int>(), 50);
}

TEST(BenchCommand, RefusesWhatItDoesNotKnow) {
  for (const char* arguments :
       {"nonsense", "ops --op NOPE", "ops --case 'no such case'", "train", "ops --synth nope", "ops -t 0",
        "ops -m x.gguf", "prefill --synth tiny --op ADD", "train --synth tiny -p 1", "ops --type q4_k"}) {
    const Outcome o = run(std::string(arguments) + " 2>&1");
    EXPECT_EQ(o.status, 2) << arguments << ": " << o.out;
    EXPECT_NE(o.out.find("tandem: error"), std::string::npos) << o.out;
  }
  EXPECT_EQ(run("ops --synth tiny --type q2_k 2>/dev/null").status, 4);
}

}  // namespace
}  // namespace tandem
