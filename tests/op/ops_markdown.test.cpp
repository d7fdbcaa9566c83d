#include <gtest/gtest.h>

#include "base/file.h"
#include "exec/cpu/cpu_backend.h"
#include "tests/op/case_builder.h"
#include "tests/op/harness.h"

namespace tandem {
namespace {

TEST(OpsMarkdown, TheCommittedFileIsWhatTheCasesSay) {
  if (compiled_isa_levels().size() != kIsaLevels) {
    GTEST_SKIP() << "this build has " << compiled_isa_levels().size() << " ISA levels of " << kIsaLevels
                 << ", so its table has other columns than docs/ops.md";
  }
  EXPECT_EQ(read_file(TANDEM_SOURCE_DIR "/docs/ops.md", size_t{1} << 20), ops_markdown())
      << "docs/ops.md is out of date: tandem ops support --markdown > docs/ops.md";
}

// The table asks CpuBackend::refusal(), which does not run a level's code; the executor asks the level
// itself.
TEST(OpsMarkdown, RefusalsAreThoseOfTheExecutor) {
  ThreadPool pool(1);
  int n = 0;
  for (const OpList& list : op_lists()) {
    if (!list.has_kernels) continue;
    for (const OpCase& c : list.cases()) {
      HarnessBuilder builder(std::string(list.name) + "/" + c.name);
      c.build(builder);
      for (IsaLevel level : compiled_isa_levels()) {
        if (!isa_supported(level)) continue;
        const CpuBackend cpu(pool, level);
        for (int i = 0; i < builder.graph().size(); ++i) {
          const Node& node = builder.graph().node(i);
          if (node.op != list.op) continue;
          const bool taken = std::string(cpu.explain(node, nullptr)) == isa_name(level);
          EXPECT_EQ(taken, CpuBackend::refusal(node, level) == nullptr)
              << list.name << "/" << c.name << " " << isa_name(level);
          ++n;
        }
      }
    }
  }
  EXPECT_GT(n, 200);
}

}  // namespace
}  // namespace tandem
