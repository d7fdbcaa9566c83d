// One list of cases per op, beside the op (src/ops/<family>/<family>.test.cpp); every mode of the harness
// runs it.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "ops/ops.h"

namespace tandem {

// What a case keeps alive as long as its graph (a model whose weights the graph reads).
class Kept {
 public:
  virtual ~Kept() = default;
};

// Makes the inputs of a case.  Values are random, drawn from (case, input name), the same in every mode.
class CaseBuilder {
 public:
  virtual ~CaseBuilder() = default;
  virtual Graph& graph() = 0;
  // F32, uniform in [lo, hi); its gradient is checked where the op has one.
  virtual Tensor input(const char* name, const Shape& ne, double lo = -1, double hi = 1) = 0;
  // F32, uniform in [lo, hi); no gradient.
  virtual Tensor constant(const char* name, const Shape& ne, double lo = -1, double hi = 1) = 0;
  // A frozen weight of any type the engine decodes, random and finite, root mean square near `scale`.
  virtual Tensor weight(const char* name, DType type, const Shape& ne, double scale = 0.5) = 0;
  // I32, uniform in [0, n).  With `distinct`, the ids of one column (along ne0) all differ.
  virtual Tensor ids(const char* name, const Shape& ne, int64_t n, bool distinct = false) = 0;
  // I32 with these values.
  virtual Tensor ids_of(const char* name, const Shape& ne, const std::vector<int32_t>& values) = 0;
  // For parts of models, which make leaves of their own: whether gradients are wanted in this run, a leaf
  // that is an input (renamed, so that names stay unique), and what must live as long as the graph.
  virtual bool wants_gradients() const = 0;
  virtual void adopt(Tensor leaf, const std::string& name) = 0;
  virtual void keep(std::unique_ptr<Kept> owned) = 0;
};

struct OpCase {
  std::string name;
  std::function<Tensor(CaseBuilder&)> build;  // the result of the op under test (or a small graph around it)
  // Why a case of a differentiable op has no input, so that only its kernels are checked; else empty.
  // `support` states it; without a reason such a case fails.
  std::string no_gradient = {};
};

}  // namespace tandem

// Defines the cases of op NAME; a missing list does not link.
#define TANDEM_OP_CASES(NAME) std::vector<OpCase> NAME##_cases()
