// A training process that is killed goes on from its last checkpoint as if nothing had been.
#include "tests/support/kill_resume.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

// Two hundred kills are in tests/slow.
TEST(KillResume, TwentyKills) { kill_and_resume(20, 1); }

}  // namespace
}  // namespace tandem
