#include "exec/cpu/machine_peaks.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tandem {
namespace {

TEST(MachinePeaks, EveryLevelOfThisMachineIsMeasured) {
  ThreadPool pool(2);
  for (IsaLevel level : compiled_isa_levels()) {
    if (!isa_supported(level)) continue;
    const MachinePeaks machine(level);
    const Peaks p = machine.measure(pool);
    for (double rate : {p.fma_f32, p.copy}) {
      EXPECT_TRUE(std::isfinite(rate) && rate > 0) << isa_name(level) << ": " << rate;
    }
    EXPECT_EQ(p.dot_bf16 > 0, level == IsaLevel::avx512_bf16) << isa_name(level);
    EXPECT_EQ(p.dot_int8 > 0, level != IsaLevel::base) << isa_name(level);
    EXPECT_GT(machine.held_bytes(), size_t{1} << 20);
  }
}

}  // namespace
}  // namespace tandem
