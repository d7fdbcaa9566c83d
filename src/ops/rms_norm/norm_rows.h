// The rows of the norms of this folder, and how they are cut into units.
#pragma once
#include "base/kernel.h"
#include "base/simd.h"

namespace tandem::TANDEM_ISA {
namespace {

constexpr int64_t kUnitElements = 16384;  // about 10 us of work

inline int64_t rows_per_unit(const KernelArgs& a) {
  const int64_t rows = kUnitElements / (a.dst.ne[0] + 1);
  return rows < 1 ? 1 : rows;
}

inline int64_t n_rows(const KernelArgs& a) { return a.dst.ne[1] * a.dst.ne[2] * a.dst.ne[3]; }

inline int64_t units(const KernelArgs& a) { return ceil_div(n_rows(a), rows_per_unit(a)); }

inline float* row(const NodeView& t, int64_t r) {
  const int64_t i1 = r % t.ne[1], i2 = r / t.ne[1] % t.ne[2], i3 = r / (t.ne[1] * t.ne[2]);
  return reinterpret_cast<float*>(static_cast<char*>(t.data) + i1 * t.nb[1] + i2 * t.nb[2] + i3 * t.nb[3]);
}

inline float dot(const float* a, const float* b, int64_t n) {
  Vec s0 = zero(), s1 = zero();
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    s0 = fma(load(a + i), load(b + i), s0);
    s1 = fma(load(a + i + kLanes), load(b + i + kLanes), s1);
  }
  for (; i + kLanes <= n; i += kLanes) s0 = fma(load(a + i), load(b + i), s0);
  if (i < n) s1 = fma(load_n(a + i, (int)(n - i)), load_n(b + i, (int)(n - i)), s1);
  return reduce_add(add(s0, s1));
}

// Rows are contiguous along ne0; the other dimensions may have any strides.
inline const char* refuse(const KernelArgs& a) {
  for (int s = 0; s < a.n_src; ++s)
    if (a.src[s].nb[0] != 4) return "rows must be contiguous";
  return nullptr;
}

}  // namespace
}  // namespace tandem::TANDEM_ISA
