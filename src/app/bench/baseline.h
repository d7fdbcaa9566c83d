// The kernel to beat, for MUL_MAT_ID_BACK: an outer-product loop in f32, one expert at a time.  Only the
// benchmark runs it.  Plain data, for a kernel file.
#pragma once
#include "base/kernel.h"

namespace tandem {

// dst[:, i, t] = sum over r of as[:, r, ids[i, t]] * grad[r, i, t], as in ops/ops.h: as {K, N, E} of any type
// with kernels, grad {N, k T} and dst {K, k T} F32, contiguous.  A pair is t * k + i.
struct BaselineArgs {
  const char* experts;
  const FormatKernels* format;
  int64_t ne[3];          // K, N, E
  int64_t row_bytes;      // of a row of K elements
  const float* grad;      // {N, pairs}
  float* dst;             // {K, pairs}
  const int32_t* pairs;   // sorted by expert
  const int32_t* offset;  // {E + 1}: where each expert's pairs begin
  float* tiles;           // kBaselineRows * K floats of each thread
};

constexpr int64_t kBaselineRows = 32;  // rows of an expert that are decoded at a time

// Does all pairs of one expert.
using BaselineExpert = void (*)(const BaselineArgs& args, int64_t expert, int thread);

}  // namespace tandem
