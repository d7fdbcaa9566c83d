// Single ops to be timed: graphs as contenders, and the products and attention of a named shape.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "app/bench/report.h"
#include "app/bench/rounds.h"
#include "app/bench/shapes.h"

namespace tandem {

// A graph to be timed, whose sources somebody else keeps.
struct Subject {
  std::string name, label;  // as in BenchLine
  std::string precision;
  Graph* graph = nullptr;
  std::function<void(int64_t time)> prepare = {};  // as in Contender
};

// Measures subjects side by side, and beside each MUL_MAT_ID_BACK that reads leaves alone the baseline, as a
// line of its own.  Subjects that compute nothing are left out.  Throws: Internal if the baseline comes to
// another result; what the backend throws.
void measure_subjects(const std::vector<Subject>& subjects, const Machines& machines,
                      const RoundSettings& settings, Reporter& reporter);

// What is measured of a named shape.
struct ShapeSettings {
  DType type = DType::Q4_K;
  int64_t n_tokens = 512;
  Precision precision = Precision::F32;
  std::string op, part;  // only this op, only names that hold this text; empty: all
};

// Hands over, group by group, the graphs of the shape's ops: of each matrix its product and the input
// gradient, then attention and its gradient.  They live during the call.  Before each run the tokens are
// given other experts, so that no cache holds those of the last.  Throws: Unsupported, OutOfMemory.
using UseSubjects = std::function<void(const std::vector<Subject>& subjects, const std::string& title)>;
void for_shape(const NamedShape& shape, const ShapeSettings& settings, const UseSubjects& use);

}  // namespace tandem
