// The harness itself: what must turn it red does.
#include "tests/op/harness.h"

#include <gtest/gtest.h>

#include <cstring>

#include "graph/op_def.h"
#include "tests/op/grad_check.h"
#include "tests/op/run_case.h"

namespace tandem {
namespace {

using Build = std::function<Tensor(CaseBuilder&)>;

Verdict grad(const Build& build) { return GradCheck("harness/test", {"test", build}).check(); }

TEST(GradCheck, PassesWhatIsRight) {
  const Build right = [](CaseBuilder& c) {
    return mul(rms_norm(c.input("x", {9, 4}), 1e-6f), c.input("w", {9}));
  };
  const Verdict v = grad(right);
  EXPECT_TRUE(v.pass) << v.message;
  EXPECT_LE(v.error, v.limit);
  const std::vector<Gauged> gauged = GradCheck("harness/test", {"test", right}).gauge();
  EXPECT_GE(gauged.size(), 8u);
  for (const Gauged& g : gauged) EXPECT_TRUE(!g.effective || g.noticed) << g.node << " " << g.what;
}

TEST(GradCheck, PassesAlongDirections) {
  const Verdict v = grad([](CaseBuilder& c) { return rms_norm(c.input("x", {60, 20}), 1e-6f); });
  EXPECT_TRUE(v.pass) << v.message;
  EXPECT_NE(v.message.find("directions"), std::string::npos) << v.message;
}

TEST(GradCheck, FailsWhereNoGradientArrives) {
  const Verdict v = grad([](CaseBuilder& c) {
    c.input("unused", {3});
    return scale(c.input("x", {3}), 2);
  });
  EXPECT_FALSE(v.pass);
  EXPECT_EQ(v.message, "no gradient for unused");
}

TEST(GradCheck, FailsOnAGradientThatIsZero) {
  const Verdict v =
      grad([](CaseBuilder& c) { return mul(c.input("x", {3}), c.constant("zeros", {3}, 0, 0)); });
  EXPECT_FALSE(v.pass);
  EXPECT_NE(v.message.find("zero"), std::string::npos) << v.message;
}

TEST(GradCheck, FailsOnAGradientThatIsNotFinite) {
  // 1 / sqrt(mean(0)) without an epsilon
  const Verdict v = grad([](CaseBuilder& c) { return rms_norm(c.input("x", {3}, 0, 0), 0); });
  EXPECT_FALSE(v.pass);
}

TEST(GradCheck, FailsWithoutAnInput) {
  EXPECT_FALSE(grad([](CaseBuilder& c) { return scale(c.constant("x", {3}), 2); }).pass);
}

TEST(GradCheck, ThrowsWhereARuleRefuses) {
  EXPECT_THROW(grad([](CaseBuilder& c) { return rms_norm_back(c.input("dy", {3}), c.input("x", {3}), 1); }),
               Error);
}

TEST(GradCheck, GaugeReportsADeadBackwardNode) {
  GradCheck check("harness/test", {"test", [](CaseBuilder& c) {
                                     Tensor x = c.input("x", {3});
                                     return add(mul(x, c.constant("zeros", {3}, 0, 0)), x);
                                   }});
  ASSERT_TRUE(check.check().pass);  // the sum is right, but one of its terms could be anything times zero
  std::vector<std::string> unnoticed;
  for (const Gauged& g : check.gauge()) {
    if (!g.noticed) unnoticed.push_back(g.node);
  }
  ASSERT_EQ(unnoticed.size(), 1u);
  EXPECT_NE(unnoticed[0].find("MUL"), std::string::npos) << unnoticed[0];
  EXPECT_TRUE(check.check().pass);  // nothing of a corruption stays
}

TEST(Harness, ToleranceGrowsWithLengthAndNotWithBf16) {
  HarnessBuilder a("k");
  CaseBuilder& c = a;
  Tensor w = c.constant("w", {64, 4}), x = c.constant("x", {64, 2});
  mul_mat(w, x, Precision::F32);
  const double f32 = eval_tolerance(a.graph());
  EXPECT_DOUBLE_EQ(f32, 2 * 0x1p-23 * 8);
  mul_mat(w, x, Precision::BF16);
  EXPECT_DOUBLE_EQ(eval_tolerance(a.graph()), f32);
}

TEST(Harness, FiltersByOpAndCase) {
  const std::vector<OpResult> all = run_op_tests(OpMode::grad, {.op = "RMS_NORM", .test_case = ""});
  const std::vector<OpResult> one = run_op_tests(OpMode::grad, {.op = "RMS_NORM", .test_case = "long row"});
  EXPECT_GT(all.size(), one.size());
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0].op, "RMS_NORM");
  EXPECT_EQ(one[0].test_case, "long row");
  EXPECT_TRUE(one[0].pass);
  EXPECT_TRUE(run_op_tests(OpMode::grad, {.op = "NO_SUCH_OP", .test_case = ""}).empty());
}

// The mistakes that a gradient through experts invites: each is done to some case, and noticed there.
TEST(Harness, TheMistakesOfRoutedBackwardsAreNoticed) {
  GaugeTable table;
  const auto run = [&](const char* op, const char* test_case) {
    for (const OpResult& r : run_op_tests(OpMode::gauge, {.op = op, .test_case = test_case}, &table))
      EXPECT_TRUE(r.pass) << r.op << "/" << r.test_case << ": " << r.message;
  };
  run("MUL_MAT_ID", "trained experts");
  run("GET_ROWS", "never gathered");
  run("MOE_BLOCK", "softmax, renormalized, F32");
  const std::pair<const char*, const char*> wanted[] = {
      {"MUL_MAT_ID_BACK", "scaled by 1.0001"},
      {"MUL_MAT_ID_BACK", "one element moved"},
      {"MUL_MAT_ID_BACK", "negated"},
      {"MUL_MAT_ID_BACK", "one expert's rows dropped"},
      {"MUL_MAT_ID_BACK", "tile offset dropped, columns"},
      {"MUL_MAT_ID_BACK", "tile offset dropped, rows"},
      {"MUL_MAT_ID_BACK", "every slot written to slot 0"},
      {"MUL_MAT_ID_BACK", "ids shifted by one"},
      {"MUL_MAT_ID_BACK", "experts' path removed"},
      {"OUT_PROD_ID", "one expert's rows dropped"},
      {"OUT_PROD_ID", "ids shifted by one"},
      {"GET_ROWS_BACK", "batch index dropped"},
      {"GET_ROWS_BACK", "ids shifted by one"},
      {"GET_ROWS_BACK", "duplicates overwritten"},
      {"GET_ROWS_BACK", "routing gradient zeroed"},
  };
  for (const auto& [op, what] : wanted) {
    const auto found = table.find({op, what});
    EXPECT_TRUE(found != table.end() && found->second.n > 0) << op << ": " << what;
  }
}

// A case that cannot be checked fails, unless it states why; a reason where there is something to check fails
// too.
TEST(Harness, NothingIsSkippedSilently) {
  const auto one = [](std::vector<OpCase> (*cases)()) {
    return run_op_list({Op::SOFT_MAX, "SOFT_MAX", true, cases}, OpMode::grad, {.test_case = "c"});
  };
  const std::vector<OpResult> silent = one([] {
    return std::vector<OpCase>{{"c", [](CaseBuilder& c) { return soft_max(c.constant("x", {3})); }}};
  });
  ASSERT_EQ(silent.size(), 1u);
  EXPECT_FALSE(silent[0].pass);
  EXPECT_NE(silent[0].message.find("skipped"), std::string::npos) << silent[0].message;
  const std::vector<OpResult> stated = one([] {
    return std::vector<OpCase>{
        {"c", [](CaseBuilder& c) { return soft_max(c.constant("x", {3})); }, "a reason"}};
  });
  ASSERT_EQ(stated.size(), 1u);
  EXPECT_TRUE(stated[0].pass);
  const std::vector<OpResult> excused = one([] {
    return std::vector<OpCase>{{"c", [](CaseBuilder& c) { return soft_max(c.input("x", {3})); }, "no"}};
  });
  ASSERT_EQ(excused.size(), 1u);
  EXPECT_FALSE(excused[0].pass);
  for (const OpResult& r : run_op_tests(OpMode::support, {.op = "SOFT_MAX", .test_case = "far apart"}))
    EXPECT_NE(r.message.find("not checked in this case"), std::string::npos) << r.message;
}

TEST(Harness, AnEmptyListFails) {
  const std::vector<OpResult> r =
      run_op_list({Op::SOFT_MAX, "SOFT_MAX", true, [] { return std::vector<OpCase>{}; }}, OpMode::eval);
  ASSERT_EQ(r.size(), 1u);
  EXPECT_FALSE(r[0].pass);
}

TEST(Harness, EveryOpHasCases) {
  size_t n = 0;
  for (const OpList& list : op_lists()) {
    n += list.op != Op::LEAF;
    EXPECT_FALSE(list.cases().empty()) << list.name;
  }
  EXPECT_EQ(n, all_ops().size());
}

TEST(Harness, PerfMeasures) {
  const std::vector<OpResult> r = run_op_tests(OpMode::perf, {.op = "RMS_NORM", .test_case = "long row"});
  ASSERT_EQ(r.size(), 1u);
  EXPECT_NE(r[0].message.find("us"), std::string::npos) << r[0].message;
}

TEST(RunOnCpu, KeepsAllValuesIfNothingIsSharedAndElseTheOutputs) {
  HarnessBuilder b("k");
  CaseBuilder& c = b;
  Tensor y = scale(c.constant("x", {4}), 2), z = rms_norm(y, 1);
  const CaseRun apart = run_on_cpu(b.graph(), {.share = false, .guard_bytes = 64});
  const CaseRun shared = run_on_cpu(b.graph(), {});
  EXPECT_EQ(apart.complaint, "");
  const size_t iy = static_cast<size_t>(y.node->index), iz = static_cast<size_t>(z.node->index);
  EXPECT_EQ(apart.values[iy].size(), 16u);
  EXPECT_TRUE(shared.values[iy].empty());
  EXPECT_EQ(shared.values[iz], apart.values[iz]);
}

TEST(RunOnCpu, ComplainsAboutBytesThatStayAsTheyWere) {
  HarnessBuilder b("k");
  CaseBuilder& c = b;
  Tensor x = c.constant("x", {4});
  const uint32_t poison = RunOptions{}.poison;
  std::memcpy(x.node->data, &poison, 4);  // passes through cont() unchanged, so it looks unwritten
  cont(x);
  const CaseRun run = run_on_cpu(b.graph(), {.share = false});
  EXPECT_NE(run.complaint.find("CONT"), std::string::npos) << run.complaint;
}

TEST(RunOnCpu, ComplainsAboutALeafThatWasWrittenTo) {
  HarnessBuilder b("k");
  CaseBuilder& c = b;
  Tensor x = c.constant("x", {4});
  Tensor y = scale(x, 2);
  b.graph().bind(y, x.node->data);
  EXPECT_EQ(run_on_cpu(b.graph(), {.share = false}).complaint, "a leaf was written to");
}

}  // namespace
}  // namespace tandem
