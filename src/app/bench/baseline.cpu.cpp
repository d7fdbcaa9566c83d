// Tiles of 32 rows of an expert are decoded once; each row of a tile, times its gradient, is added to the
// result rows of the expert's pairs.
#include "app/bench/baseline.h"

#include "base/simd.h"

namespace tandem::TANDEM_ISA {
namespace {

// to[0..n) += a * x[0..n).
inline void axpy(float a, const float* x, float* to, int64_t n) {
  const Vec scale = set1(a);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(to + i, fma(scale, load(x + i), load(to + i)));
  if (i < n)
    store_n(to + i, fma(scale, load_n(x + i, (int)(n - i)), load_n(to + i, (int)(n - i))), (int)(n - i));
}

void one_expert(const BaselineArgs& a, int64_t expert, int thread) {
  const int64_t k = a.ne[0], n = a.ne[1];
  float* tile = a.tiles + thread * kBaselineRows * k;
  const char* rows = a.experts + expert * n * a.row_bytes;
  const int32_t begin = a.offset[expert], end = a.offset[expert + 1];
  for (int32_t p = begin; p < end; ++p) memset(a.dst + a.pairs[p] * k, 0, (size_t)k * sizeof(float));
  if (begin == end) return;
  for (int64_t r0 = 0; r0 < n; r0 += kBaselineRows) {
    const int64_t r1 = r0 + kBaselineRows < n ? r0 + kBaselineRows : n;
    for (int64_t r = r0; r < r1; ++r) a.format->to_f32(rows + r * a.row_bytes, tile + (r - r0) * k, k);
    for (int32_t p = begin; p < end; ++p) {
      const int64_t pair = a.pairs[p];
      for (int64_t r = r0; r < r1; ++r) axpy(a.grad[pair * n + r], tile + (r - r0) * k, a.dst + pair * k, k);
    }
  }
}

}  // namespace

extern const BaselineExpert baseline_expert;
const BaselineExpert baseline_expert = one_expert;

}  // namespace tandem::TANDEM_ISA
