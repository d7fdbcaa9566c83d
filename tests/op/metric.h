// How results are compared: a metric that NaN, zeros, absent and permuted tensors cannot pass.  Source:
// gradients.md 1.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace tandem {

// The outcome of a comparison.
struct Verdict {
  bool pass = false;
  std::string message = {};  // of a failure: what and where; of a pass: the error
  double error = 0;          // max |got - want|
  double limit = 0;          // what it was held against
};

// Tensors by name.
using Named = std::map<std::string, std::vector<double>>;

// Passes if max |got - want| <= atol + rtol * max |want|.  Before that, both must have the same, positive
// number of elements, all finite, and `want` one that is not zero.
Verdict compare(std::span<const double> got, std::span<const double> want, double rtol, double atol = 0);
// The same with `scale` in place of max |want|, where the size of the terms is known and the result may
// cancel.
Verdict compare_scaled(std::span<const double> got, std::span<const double> want, double rtol, double scale);

// Slice by slice (the experts of a stacked tensor), each against its own largest element, so that a small
// slice cannot hide behind a large one.  A slice that is wanted zero must be exactly zero; one slice must not
// be.
Verdict compare_slices(std::span<const double> got, std::span<const double> want, int64_t n_slices,
                       double rtol);

// Compares sets: the same names on both sides, at least one, and each tensor by compare().
Verdict compare_sets(const Named& got, const Named& want, double rtol, double atol = 0);

// Integers, element by element.
Verdict compare_ids(std::span<const int32_t> got, std::span<const int32_t> want);

}  // namespace tandem
