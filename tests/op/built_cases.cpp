#include <fmt/format.h>

#include "tests/op/case_builder.h"
#include "tests/op/harness.h"

namespace tandem {

std::vector<BuiltOpCase> build_op_cases(const OpList& list, const OpFilter& filter) {
  std::vector<BuiltOpCase> built;
  for (const OpCase& c : list.cases()) {
    if (c.name.find(filter.test_case) == std::string::npos) continue;
    auto inputs = std::make_unique<HarnessBuilder>(fmt::format("{}/{}", list.name, c.name));
    c.build(*inputs);
    built.push_back({c.name, std::move(inputs)});
  }
  return built;
}

}  // namespace tandem
