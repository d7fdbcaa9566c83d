// The op cases as tests: one per op and mode, named like OpCases/OpTest.Passes/RMS_NORM_eval.
#include <gtest/gtest.h>

#include "tests/op/harness.h"

namespace tandem {
namespace {

using OpAndMode = std::tuple<const OpList*, OpMode>;

std::vector<OpAndMode> ops_and_modes() {
  std::vector<OpAndMode> all;
  for (const OpList& list : op_lists()) {
    for (OpMode mode : all_op_modes()) {
      if (mode != OpMode::perf) all.emplace_back(&list, mode);
    }
  }
  return all;
}

class OpTest : public testing::TestWithParam<OpAndMode> {};

TEST_P(OpTest, Passes) {
  const auto [list, mode] = GetParam();
  const std::vector<OpResult> results = run_op_tests(mode, {.op = list->name, .test_case = ""});
  EXPECT_FALSE(results.empty());
  for (const OpResult& r : results) {
    EXPECT_TRUE(r.pass) << r.op << " / " << r.test_case << " / " << mode_name(r.mode) << " " << r.isa << ": "
                        << r.message;
  }
}

INSTANTIATE_TEST_SUITE_P(OpCases, OpTest, testing::ValuesIn(ops_and_modes()), [](const auto& param) {
  return std::string(std::get<0>(param.param)->name) + "_" + mode_name(std::get<1>(param.param));
});

}  // namespace
}  // namespace tandem
