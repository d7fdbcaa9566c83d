// A training process that is killed goes on from its last checkpoint as if nothing had been.
#include "tests/support/kill_resume.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(KillResume, TwoHundredKills) { kill_and_resume(200, 2); }

}  // namespace
}  // namespace tandem
