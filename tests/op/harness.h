// Runs the op cases in one of six modes.  No test framework in here, so that the command line can use it too.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/isa.h"
#include "graph/graph.h"
#include "tests/op/op_case.h"

namespace tandem {

// What is asked of every case.  Source: codebase.md 10.
enum class OpMode {
  support,  // which kernel takes it at each ISA level, and why the others refuse
  eval,     // kernels against the f64 reference, at each ISA level the host has
  grad,     // backward rules against the complex step
  gauge,    // would grad (where an op has no gradient: eval) notice a corrupted node?
  plan,     // arena result = unshared result, guard bytes and sources intact, 1 thread = 3 threads
  perf,     // time, never asserted
};

std::span<const OpMode> all_op_modes();
const char* mode_name(OpMode mode);

struct OpResult {
  std::string op;
  std::string test_case;  // or, in <brackets>, a check of the op as a whole
  OpMode mode;
  std::string isa;  // empty where no kernel runs
  bool pass;
  std::string message;
};

// The case list of an op, or of a block of a model.
struct OpList {
  Op op;  // LEAF: a block
  const char* name;
  bool has_kernels;  // OP(name, CPU) in ops.def
  std::vector<OpCase> (*cases)();
};

std::span<const OpList> op_lists();

struct OpFilter {
  std::string op = {};                 // exact name; empty: all
  std::string test_case = {};          // part of the name; empty: all
  std::optional<IsaLevel> level = {};  // nothing: each the host has
};

// Which case noticed a corruption: {name of the corrupted op, corruption} -> the first case that noticed, and
// how many nodes were corrupted so.
struct Noticed {
  std::string by;
  int n = 0;
};
using GaugeTable = std::map<std::pair<std::string, std::string>, Noticed>;

// Runs what the filter lets through.  Failures are results, never exceptions; nothing is skipped: a case that
// cannot be checked in a mode fails, unless the op's record or the case states why (and `support` shows it).
// In gauge mode `noticed`, if given, is added to.
std::vector<OpResult> run_op_tests(OpMode mode, const OpFilter& filter = {}, GaugeTable* noticed = nullptr);
// The same for one list, whatever its name.
std::vector<OpResult> run_op_list(const OpList& list, OpMode mode, const OpFilter& filter = {},
                                  GaugeTable* noticed = nullptr);

// The cases of a list that the filter lets through, built without gradients; `op` and `level` are not looked
// at.  Throws what a case throws.
struct BuiltOpCase {
  std::string name;
  std::unique_ptr<CaseBuilder> inputs;  // owns the graph
};
std::vector<BuiltOpCase> build_op_cases(const OpList& list, const OpFilter& filter = {});

// docs/ops.md: op x format x ISA level x gradient, from the case lists; the same on every host that the build
// has all ISA levels for.  Throws what a case throws.
std::string ops_markdown();

// The relative error a kernel may have on a graph: 2 f32 epsilons (2^-23) times the square root of the
// largest extent of any tensor in it (longer than every sum), relative to the largest magnitude of each
// tensor.  One rule for all cases, products in bf16 included: theirs is held against the reference on rounded
// operands.
double eval_tolerance(const Graph& graph);

}  // namespace tandem
