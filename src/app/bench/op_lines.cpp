// tandem bench ops: the op cases of the tests, or the products of a named shape.
#include <algorithm>

#include "app/bench/modes.h"
#include "app/bench/subjects.h"
#include "app/engine.h"
#include "app/output.h"
#include "base/error.h"
#include "tests/op/harness.h"

namespace tandem {
namespace {

// The coarsest precision of the graph's products.
const char* precision_of(const Graph& graph) {
  Work all;
  for (int i = 0; i < graph.size(); ++i) all += work_of(graph.node(i));
  return precision_name(all.precision);
}

// Hands over every list of cases that the options let through.
void for_cases(const Options& options, const UseSubjects& use) {
  const std::string& op = options.text(Opt::OpName);
  std::vector<std::string> names;
  for (const OpList& list : op_lists()) {
    names.emplace_back(list.name);
    if (!op.empty() && op != list.name) continue;
    const std::vector<BuiltOpCase> cases = build_op_cases(list, {.test_case = options.text(Opt::OpCaseText)});
    std::vector<Subject> subjects;
    for (const BuiltOpCase& c : cases) {
      subjects.push_back({fmt::format("{} {}", list.name, c.name),
                          c.name,
                          precision_of(c.inputs->graph()),
                          &c.inputs->graph(),
                          {}});
    }
    if (!subjects.empty()) use(subjects, list.name);
  }
  if (!op.empty() && std::find(names.begin(), names.end(), op) == names.end()) {
    fail(Code::Usage, "there is no op {}; there are {}", op, fmt::join(names, ", "));
  }
}

}  // namespace

void bench_ops(const Options& o, const Machines& machines, Reporter& reporter) {
  if (o.given(Opt::Model)) {
    fail(Code::Usage,
         "tandem bench ops measures op cases, or with --synth the matrices of a shape; a model file "
         "goes with train, prefill and decode");
  }
  const bool why = o.on(Opt::Why);
  const RoundSettings rounds{.n_rounds = o.integer(Opt::BenchRounds)};
  Refusals refusals(machines[0].backend);
  int64_t n = 0;
  const UseSubjects use = [&](const std::vector<Subject>& subjects, const std::string& title) {
    n += static_cast<int64_t>(subjects.size());
    if (why) {
      for (const Subject& s : subjects) refusals.look_at(*s.graph, s.name);
      return;
    }
    measure_subjects(subjects, machines, rounds, reporter);
    reporter.flush(title);
  };
  if (o.given(Opt::BenchSynth)) {
    const NamedShape& shape = find_shape(o.text(Opt::BenchSynth));
    const ShapeSettings settings{.type = bench_type(o, shape),
                                 .n_tokens = o.integer(Opt::BenchPrompt),
                                 .precision = bench_precision(o, machines.level()),
                                 .op = o.text(Opt::OpName),
                                 .part = o.text(Opt::OpCaseText)};
    for_shape(shape, settings, use);
  } else {
    for_cases(o, use);
  }
  if (n == 0) {
    const std::string& op = o.text(Opt::OpName);
    fail(Code::Usage, "nothing to measure: there is no {} with '{}' in its name",
         op.empty() ? "op case" : "case of " + op, o.text(Opt::OpCaseText));
  }
  if (why) refusals.print(reporter.lines_of_json());
}

}  // namespace tandem
