// Runs op cases until one fails: what tools/mutate links with a mutant.  The tool alone builds it.
//
// usage: runner MODE[,MODE...] OP...
// Prints the first failure, and in `support` mode what takes each case.  Exit status: 0 all passed, 1 one
// failed, 2 a bad call, 3 nothing ran.
#include <algorithm>
#include <cstdio>
#include <set>
#include <string>
#include <vector>

#include "tests/op/harness.h"

namespace {

using namespace tandem;

// The modes of a list like "eval,plan"; empty if one is unknown.
std::vector<OpMode> modes_of(const std::string& list) {
  std::vector<OpMode> modes;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    const std::string name = list.substr(begin, end - begin);
    bool known = false;
    for (OpMode mode : all_op_modes()) {
      if (name != mode_name(mode)) continue;
      modes.push_back(mode);
      known = true;
    }
    if (!known) return {};
    begin = end + 1;
  }
  return modes;
}

// The list of op `name`; empty if there is none.
std::vector<OpCase> cases_of(const std::string& name) {
  for (const OpList& list : op_lists()) {
    if (name == list.name) return list.cases();
  }
  return {};
}

// Runs the cases whose name contains `part`, all if it is empty; false after a failure, which is printed.
bool run_cases(OpMode mode, const std::string& op, const std::string& part, std::set<std::string>& done) {
  for (const OpResult& r : run_op_tests(mode, {.op = op, .test_case = part})) {
    if (!r.pass) {
      std::printf("%s / %s / %s: %s\n", r.op.c_str(), r.test_case.c_str(), mode_name(mode),
                  r.message.c_str());
      return false;
    }
    done.insert(r.test_case);
    if (mode == OpMode::support)
      std::printf("%s / %s: %s\n", r.op.c_str(), r.test_case.c_str(), r.message.c_str());
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<OpMode> modes = argc > 2 ? modes_of(argv[1]) : std::vector<OpMode>{};
  if (modes.empty()) {
    std::fprintf(stderr, "usage: %s MODE[,MODE...] OP...\n", argv[0]);
    return 2;
  }
  size_t n_passed = 0;
  for (OpMode mode : modes) {
    for (int i = 2; i < argc; ++i) {
      // Case by case, since a failure ends it all; grad also has checks of the list as a whole.
      std::set<std::string> done;
      for (const OpCase& c : cases_of(argv[i])) {
        if (mode == OpMode::grad) break;
        if (!done.contains(c.name) && !run_cases(mode, argv[i], c.name, done)) return 1;
      }
      if (mode == OpMode::grad && !run_cases(mode, argv[i], "", done)) return 1;
      n_passed += done.size();
    }
  }
  std::printf("%zu passed\n", n_passed);
  return n_passed ? 0 : 3;
}
