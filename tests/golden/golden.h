// Golden cases: reading them, and checking a graph built from ops against every output and gradient they
// name.
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "graph/autodiff.h"
#include "graph/graph.h"
#include "ops/ops.h"

namespace tandem {

struct GoldenTensor {
  Shape ne;
  std::vector<double> numbers;  // of an f32 tensor
  std::vector<int32_t> ids;     // of an i32 tensor
};

// One case of a file in tests/golden/vectors.
struct GoldenCase {
  std::string name;
  std::map<std::string, GoldenTensor> inputs, outputs;
  std::map<std::string, std::vector<double>>
      numbers;  // parameters by path ("rope_args/base"); booleans are 0 or 1
  std::map<std::string, std::string> texts;
};

// Throws BadData if the file or the case is not there.
GoldenCase load_golden(const std::string& file, const std::string& name);

// A graph under test.  Build it with the members, then check().
class GoldenGraph {
 public:
  GoldenGraph(const std::string& file, const std::string& case_name);

  // Parameters, by path.
  bool has(const std::string& path) const {
    return case_.numbers.contains(path) || case_.texts.contains(path);
  }
  float number(const std::string& path);
  const std::vector<double>& numbers(const std::string& path) const { return case_.numbers.at(path); }
  int integer(const std::string& path) const { return static_cast<int>(case_.numbers.at(path).at(0)); }
  std::string text(const std::string& path) const { return case_.texts.at(path); }
  bool has_input(const std::string& name) const { return case_.inputs.contains(name); }

  // An input of the case without gradient.
  Tensor fixed(const std::string& name);
  // An input whose gradient is the output `gradient`.
  Tensor trained(const std::string& name, const std::string& gradient);
  // t, plus a zero whose gradient, that of t, is the output `gradient`.
  Tensor probe(Tensor t, const std::string& gradient);
  // A leaf of the test's own.
  Tensor constant(const Shape& ne, const std::vector<float>& values);
  Tensor ids(const Shape& ne, const std::vector<int32_t>& values);

  // t is the output `name`.
  void expect(const std::string& name, Tensor t);
  // The output `name` is not checked, because...
  void leave_out(const std::string& name, const std::string& because);
  // The cotangent of t is the input `name`, or a tensor of the test's own.
  void seed(Tensor t, const std::string& name) { seed(t, fixed(name)); }
  void seed(Tensor t, Tensor cotangent) { seeds_.push_back({t, cotangent}); }

  // Differentiates, runs the f64 references and the CPU kernels of each ISA level the host has, and compares
  // all outputs of the case: within 1e-8 of the largest element (the files' 9 digits; 2e-7 if a parameter is
  // not exact in f32, as parameters of ops are) and 1e-5 (gradients.md 1.7).  Returns what is wrong, or
  // nothing.
  std::string check();

  Graph& graph() { return graph_; }
  const GoldenCase& golden() const { return case_; }

 private:
  Tensor leaf(const Shape& ne, const std::vector<float>& values, const std::string& name);

  Graph graph_;
  GoldenCase case_;
  std::deque<std::string> names_;
  std::deque<std::vector<float>> floats_;
  std::deque<std::vector<int32_t>> ints_;
  std::map<std::string, Tensor> outputs_;  // by name
  std::map<std::string, Tensor> wanted_;   // leaves, by the name of their gradient
  std::set<std::string> left_out_;
  std::vector<Seed> seeds_;
  bool exact_params_ = true;
};

}  // namespace tandem
