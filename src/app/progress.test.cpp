#include "app/progress.h"

#include <gtest/gtest.h>

#include "app/output.h"

namespace tandem {
namespace {

StepReport step(int64_t i, int64_t total, double seconds) {
  StepReport r;
  r.step = i;
  r.total_steps = total;
  r.loss = 2.5;
  r.learning_rate = 1e-3;
  r.grad_norm = 0.75;
  r.n_tokens = 100;
  r.seconds = seconds;
  return r;
}

TEST(Pace, TimeLeftComesWithTheSecondStepAndWithoutTheFirst) {
  Pace pace;
  pace.add(step(1, 10, 60));
  EXPECT_FALSE(pace.seconds_left());
  EXPECT_NEAR(pace.tokens_per_second(), 100 / 60.0, 1e-9);
  pace.add(step(2, 10, 2));
  ASSERT_TRUE(pace.seconds_left());
  EXPECT_DOUBLE_EQ(*pace.seconds_left(), 16);
  for (int64_t i = 3; i <= 10; ++i) pace.add(step(i, 10, 2));
  EXPECT_DOUBLE_EQ(*pace.seconds_left(), 0);
  for (int64_t i = 11; i < 40; ++i) pace.add(step(i, 40, 4));
  EXPECT_DOUBLE_EQ(pace.tokens_per_second(), 25);  // the slow first step is forgotten
}

TEST(Progress, ALineHasEverythingThatIsAskedFor) {
  Pace pace;
  pace.add(step(1, 100, 1));
  pace.add(step(2, 100, 1));
  const std::string text = report_text(step(2, 100, 1), pace);
  for (const char* part : {"loss 2.5000", "lr 1.0e-03", "grad 0.75", "100 tok/s", "iB", "1:38 left"}) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }
}

TEST(Progress, TheBarFitsTheTerminal) {
  Pace pace;
  pace.add(step(1, 200, 1));
  pace.add(step(100, 200, 1));
  const StepReport half = step(100, 200, 1);
  for (size_t columns : {20u, 80u, 100u, 200u}) EXPECT_LT(bar_text(half, pace, columns).size(), columns);
  const std::string wide = bar_text(half, pace, 200);
  EXPECT_TRUE(bar_text(half, pace, 80).starts_with("[#")) << bar_text(half, pace, 80);
  EXPECT_TRUE(wide.starts_with("[###############...............] 100/200 loss")) << wide;
}

TEST(Output, Durations) {
  EXPECT_EQ(format_duration(0.4), "0:00");
  EXPECT_EQ(format_duration(67), "1:07");
  EXPECT_EQ(format_duration(3 * 3600 + 61), "3:01:01");
  EXPECT_EQ(format_duration(-1), "0:00");
}

TEST(Output, TablesAlign) {
  Table table("  ", {1});
  table.add({"a", "left", "1"});
  table.add({"long", "x", "100"});
  EXPECT_EQ(table.text(), "  a     left    1\n  long  x     100\n");
}

}  // namespace
}  // namespace tandem
