// tandem ops: the op cases of the tests, run by the binary that a user has.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "app/commands.h"
#include "app/engine.h"
#include "app/output.h"
#include "base/error.h"
#include "tests/op/harness.h"

namespace tandem {
namespace {

using nlohmann::json;

OpMode parse_mode(const std::string& name) {
  std::vector<std::string> names;
  for (OpMode mode : all_op_modes()) {
    if (name == mode_name(mode)) return mode;
    names.emplace_back(mode_name(mode));
  }
  fail(Code::Usage, "tandem ops takes one of {}, not '{}'", fmt::join(names, ", "), name);
}

OpFilter parse_filter(const Options& options) {
  OpFilter filter{.op = options.text(Opt::OpName), .test_case = options.text(Opt::OpCaseText)};
  if (options.given(Opt::Isa)) filter.level = chosen_isa(options);
  std::vector<std::string> names;
  for (const OpList& list : op_lists()) names.emplace_back(list.name);
  if (!filter.op.empty() && std::find(names.begin(), names.end(), filter.op) == names.end()) {
    fail(Code::Usage, "there is no op {}; there are {}", filter.op, fmt::join(names, ", "));
  }
  return filter;
}

json as_json(const OpResult& r) {
  return {
      {"type", "op_case"}, {"mode", mode_name(r.mode)}, {"op", r.op}, {"case", r.test_case}, {"isa", r.isa},
      {"pass", r.pass},    {"message", r.message}};
}

void print_result(const OpResult& r) {
  print("  {:<6} {} / {}{}{}: {}\n", r.pass ? "ok" : "FAILED", r.op, r.test_case, r.isa.empty() ? "" : " / ",
        r.isa, r.message);
}

// Which case noticed which corruption.
void print_gauge(const GaugeTable& noticed, bool as_lines_of_json) {
  if (!as_lines_of_json) print("\nwhat was corrupted, and the first case that noticed\n");
  Table table("  ", {1, 2});
  for (const auto& [what, entry] : noticed) {
    if (as_lines_of_json) {
      print_json({{"type", "op_mutation"},
                  {"op", what.first},
                  {"mutation", what.second},
                  {"noticed_by", entry.n ? json(entry.by) : json()},
                  {"nodes", entry.n}});
    } else {
      table.add({what.first, what.second, entry.n ? entry.by : "(without effect in these cases)",
                 fmt::format("{} nodes", entry.n)});
    }
  }
  if (!as_lines_of_json) print("{}\n", table.text());
}

}  // namespace

int ops_command(const Options& options) {
  const OpMode mode = parse_mode(options.operand());
  const OpFilter filter = parse_filter(options);
  if (options.on(Opt::Markdown)) {
    if (mode != OpMode::support || !filter.op.empty() || !filter.test_case.empty() || filter.level) {
      fail(Code::Usage, "--markdown goes with support, and with no choice of ops, cases or levels");
    }
    print_text(ops_markdown());
    return 0;
  }
  const bool lines_of_json = options.on(Opt::Json);
  const bool every_result = options.on(Opt::Verbose) || mode == OpMode::support || mode == OpMode::perf ||
                            !filter.op.empty() || !filter.test_case.empty();
  int64_t n_passed = 0, n_failed = 0;
  GaugeTable noticed;
  for (const OpList& list : op_lists()) {
    if (!filter.op.empty() && filter.op != list.name) continue;
    int64_t passed = 0, failed = 0;
    for (const OpResult& r : run_op_list(list, mode, filter, &noticed)) {
      ++(r.pass ? passed : failed);
      if (lines_of_json) {
        print_json(as_json(r));
      } else if (every_result || !r.pass) {
        print_result(r);
      }
    }
    if (!lines_of_json && passed + failed > 0)
      print("{}: {} passed{}\n", list.name, passed, failed ? fmt::format(", {} FAILED", failed) : "");
    n_passed += passed;
    n_failed += failed;
  }
  if (n_passed + n_failed == 0) {
    fail(Code::Usage, "no case{} has '{}' in its name", filter.op.empty() ? "" : " of " + filter.op,
         filter.test_case);
  }
  if (mode == OpMode::gauge) print_gauge(noticed, lines_of_json);
  const std::string summary = fmt::format("{} passed, {} failed\n", n_passed, n_failed);
  if (lines_of_json) {
    print_json({{"type", "ops"}, {"mode", mode_name(mode)}, {"passed", n_passed}, {"failed", n_failed}});
    std::fputs(summary.c_str(), stderr);
  } else {
    print_text(summary);
  }
  return n_failed == 0 ? 0 : 1;
}

}  // namespace tandem
