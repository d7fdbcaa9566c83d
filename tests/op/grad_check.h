// Is a backward rule the derivative of its op's reference?  And would the check notice if it were not?
#pragma once
#include <complex>
#include <memory>
#include <string>
#include <vector>

#include "exec/ref/ref_exec.h"
#include "tests/op/case_builder.h"
#include "tests/op/metric.h"

namespace tandem {

// A case with its backward graph: loss = sum of c * result, with fixed random c.
struct DifferentiatedCase {
  HarnessBuilder builder;
  Tensor result;
  Tensor cotangent;           // c, the result's shape
  std::vector<Tensor> grads;  // in the order of builder.inputs(); empty where no gradient reaches
  int n_forward = 0;          // nodes of the forward; those of the backward follow

  // Throws what the case or a rule throws.
  DifferentiatedCase(const std::string& key, const OpCase& op_case, GradWanted wanted = GradWanted::Inputs);
};

// A corruption of one op's nodes in a backward graph (or, where there is no gradient, of the op's own
// result).
struct Gauged {
  Op op;             // of the corrupted node
  std::string what;  // the corruption
  std::string node;  // "node 7 MUL_MAT_ID_BACK", or what was corrupted together
  bool effective;    // whether it changed anything there; if not, it cannot be noticed
  bool noticed;
};

// Compares the gradients of a case, run through the f64 references, with the complex step on the forward
// reference, Im f(x + ih) / h with h = 1e-30: nothing cancels, so the bar is 1e-12 of the tensor's largest
// element; of stacked experts, of each expert's.  Source: gradients.md 1, codebase.md 10.
class GradCheck {
 public:
  // Builds, differentiates numerically and runs the backward once.
  GradCheck(const std::string& key, const OpCase& op_case);

  // The gradients expected are those of exactly the case's inputs.
  Verdict check();
  // That of one input.
  Verdict check_input(const std::string& name);

  // Corrupts the backward nodes one after the other, in every way that belongs to them
  // (tests/op/corruptions.h) and by moving an element by 1e-4 of the largest; then removes the path through
  // the experts, if there is one.
  std::vector<Gauged> gauge();

  // Runs the backward with all nodes of an op zeroed; the results stay until restore().
  void remove_path(Op op);
  void restore() { exec_.run(case_.n_forward, case_.builder.graph().size()); }

  DifferentiatedCase& differentiated() { return case_; }

 private:
  // What the numbers say about one input: its gradient, or the products of its gradient with some directions,
  // each within one slice (an expert; the whole tensor where there are none).
  struct Numeric {
    struct Direction {
      size_t slice;
      std::vector<double> values;  // of the slice
    };
    size_t n_slices = 1;
    std::vector<Direction> directions;  // none: per element
    std::vector<double> want;
  };

  Numeric differentiate(RefExec<std::complex<double>>& forward, Tensor input) const;
  Verdict check_one(size_t i);
  bool notices(int node, const std::vector<double>& corrupted);

  std::string key_;
  DifferentiatedCase case_;
  std::vector<Numeric> numeric_;  // in the order of the inputs
  RefExec<double> exec_;
  std::vector<std::vector<double>> good_;  // while gauging: the values of each node as they were
};

}  // namespace tandem
