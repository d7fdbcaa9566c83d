#include "base/log.h"

#include <gtest/gtest.h>

#include <string>

namespace tandem {
namespace {

std::string all_levels() {
  testing::internal::CaptureStderr();
  log_info("{} rows", 3);
  log_warn("unknown key '{}'", "{}");
  log_error("{}: no such file", "x.gguf");
  return testing::internal::GetCapturedStderr();
}

TEST(Log, FormatAndVerbosity) {
  const std::string error = "tandem: error: x.gguf: no such file\n";
  const std::string warning = "tandem: warning: unknown key '{}'\n";
  EXPECT_EQ(all_levels(), "tandem: 3 rows\n" + warning + error);
  set_verbosity(1);
  EXPECT_EQ(all_levels(), warning + error);
  set_verbosity(0);
  EXPECT_EQ(all_levels(), error);
  set_verbosity(2);
  EXPECT_EQ(all_levels(), "tandem: 3 rows\n" + warning + error);
}

}  // namespace
}  // namespace tandem
