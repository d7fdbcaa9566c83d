// How the kernels of this folder cut a node into units.
#pragma once
#include "base/kernel.h"
#include "base/simd.h"

namespace tandem::TANDEM_ISA {
namespace {

constexpr int64_t kUnitElements = 16384;  // about 10 us of work

inline bool contiguous(const NodeView& t) {
  int64_t expected = 4;
  for (int i = 0; i < kMaxDims; ++i) {
    if (t.ne[i] != 1 && t.nb[i] != expected) return false;
    expected *= t.ne[i];
  }
  return true;
}

inline bool same_shape(const NodeView& a, const NodeView& b) {
  return a.ne[0] == b.ne[0] && a.ne[1] == b.ne[1] && a.ne[2] == b.ne[2] && a.ne[3] == b.ne[3];
}

inline int64_t n_rows(const NodeView& t) { return t.ne[1] * t.ne[2] * t.ne[3]; }

// All sources have one shape and their elements follow each other in memory, so rows need not be told apart.
inline bool flat(const KernelArgs& a) {
  for (int s = 0; s < a.n_src; ++s)
    if (!contiguous(a.src[s]) || !same_shape(a.src[s], a.src[0])) return false;
  return true;
}

inline int64_t rows_per_unit(const KernelArgs& a) {
  const int64_t rows = kUnitElements / (a.src[0].ne[0] + 1);
  return rows < 1 ? 1 : rows;
}

// Units of a node that follows the elements of source 0: runs of elements where the node is flat, rows
// elsewhere.
inline int64_t units(const KernelArgs& a) {
  const int64_t all = flat(a) ? n_rows(a.src[0]) * a.src[0].ne[0] : n_rows(a.src[0]);
  const int64_t per = flat(a) ? kUnitElements : rows_per_unit(a);
  return ceil_div(all, per);
}

// Row r of t, counted along ne1, ne2, ne3 of `like`; t repeats where it is smaller.
inline float* row(const NodeView& t, const NodeView& like, int64_t r) {
  const int64_t i1 = r % like.ne[1], i2 = r / like.ne[1] % like.ne[2], i3 = r / (like.ne[1] * like.ne[2]);
  return reinterpret_cast<float*>(static_cast<char*>(t.data) + i1 % t.ne[1] * t.nb[1] +
                                  i2 % t.ne[2] * t.nb[2] + i3 % t.ne[3] * t.nb[3]);
}

// A run of n elements that lie side by side in every source; they are elements [first, first + n) in row
// order.
struct Run {
  const float* src[3];
  int64_t first, n;
};

// Calls body(run) for each run of the units [lo, hi).  For nodes with at most three sources of one shape.
template <class Body>
inline void for_runs(const KernelArgs& a, int64_t lo, int64_t hi, Body body) {
  const int64_t n = a.src[0].ne[0], rows = n_rows(a.src[0]);
  Run run{};
  if (flat(a)) {
    run.first = lo * kUnitElements;
    run.n = (hi * kUnitElements < n * rows ? hi * kUnitElements : n * rows) - run.first;
    for (int s = 0; s < a.n_src; ++s) run.src[s] = static_cast<const float*>(a.src[s].data) + run.first;
    body(run);
    return;
  }
  const int64_t per = rows_per_unit(a), end = hi * per < rows ? hi * per : rows;
  for (int64_t r = lo * per; r < end; ++r) {
    run.first = r * n;
    run.n = n;
    for (int s = 0; s < a.n_src; ++s) run.src[s] = row(a.src[s], a.src[0], r);
    body(run);
  }
}

// Rows are contiguous along ne0; the other dimensions may have any strides.
inline const char* refuse(const KernelArgs& a) {
  for (int s = 0; s < a.n_src; ++s)
    if (a.src[s].nb[0] != 4) return "rows must be contiguous";
  return nullptr;
}

}  // namespace
}  // namespace tandem::TANDEM_ISA
