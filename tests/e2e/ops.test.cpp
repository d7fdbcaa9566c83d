// `tandem ops` of the real binary.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/isa.h"

namespace tandem {
namespace {

struct Outcome {
  int status = -1;
  std::string out;  // with stderr, if the call asks for it
};

// Runs the binary through the shell.  `before` stands in front of it: environment.
Outcome run(const std::string& arguments, const std::string& before = "env -u TANDEM_ISA") {
  Outcome o;
  FILE* pipe = popen((before + " '" TANDEM_BINARY "' ops " + arguments).c_str(), "r");
  if (!pipe) return o;
  char buffer[4096];
  for (size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) o.out.append(buffer, n);
  const int status = pclose(pipe);
  o.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  return o;
}

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> all;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) all.push_back(line);
  return all;
}

TEST(OpsCommand, EveryModeEndsInItsSummary) {
  for (const char* mode : {"support", "eval", "grad", "gauge", "plan", "perf"}) {
    const Outcome o = run(std::string(mode) + " --op RMS_NORM");
    EXPECT_EQ(o.status, 0) << mode << ": " << o.out;
    ASSERT_FALSE(o.out.empty()) << mode;
    int passed = 0, failed = -1, end = 0;
    const std::string last = lines(o.out).back();
    ASSERT_EQ(std::sscanf(last.c_str(), "%d passed, %d failed%n", &passed, &failed, &end), 2)
        << mode << ": " << last;
    EXPECT_EQ(static_cast<size_t>(end), last.size()) << last;
    EXPECT_GE(passed, 6) << mode;
    EXPECT_EQ(failed, 0) << mode;
  }
}

TEST(OpsCommand, AFailureIsCountedAndExitsWithOne) {
  const Outcome o =
      run("grad --op ATTENTION_BLOCK", "env TMPDIR=/nowhere/at/all");  // its model cannot be written
  EXPECT_EQ(o.status, 1);
  EXPECT_EQ(lines(o.out).back(), "0 passed, 1 failed");
  EXPECT_NE(o.out.find("FAILED"), std::string::npos);
}

TEST(OpsCommand, JsonIsOneObjectPerLine) {
  const Outcome o = run("gauge --op MUL_MAT_ID_BACK --case 'k 1' --json 2>/dev/null");
  EXPECT_EQ(o.status, 0);
  int cases = 0, mutations = 0;
  nlohmann::json last;
  for (const std::string& line : lines(o.out)) {
    last = nlohmann::json::parse(line);
    cases += last["type"] == "op_case";
    mutations += last["type"] == "op_mutation";
  }
  EXPECT_GE(cases, 2);
  EXPECT_GE(mutations, 4);
  EXPECT_EQ(last["type"], "ops");
  EXPECT_EQ(last["passed"], cases);
  EXPECT_EQ(last["failed"], 0);
  const std::string both = run("gauge --op MUL_MAT_ID_BACK --case 'k 1' --json 2>&1").out;
  EXPECT_EQ(lines(both).back(), std::to_string(cases) + " passed, 0 failed");
}

TEST(OpsCommand, TheMarkdownIsTheCommittedFile) {
  if (compiled_isa_levels().size() != kIsaLevels)
    GTEST_SKIP() << "this build lacks ISA levels that docs/ops.md lists";
  const Outcome o = run("support --markdown");
  EXPECT_EQ(o.status, 0);
  EXPECT_EQ(o.out, read_file(TANDEM_SOURCE_DIR "/docs/ops.md", size_t{1} << 20));
}

TEST(OpsCommand, RefusesWhatItDoesNotKnow) {
  for (const char* arguments : {"", "nonsense", "grad --op NOPE", "grad --case 'no such case'",
                                "grad --markdown", "support --markdown --op ADD"}) {
    const Outcome o = run(std::string(arguments) + " 2>&1");
    EXPECT_EQ(o.status, 2) << arguments << ": " << o.out;
    EXPECT_NE(o.out.find("tandem: error"), std::string::npos) << o.out;
  }
}

}  // namespace
}  // namespace tandem
