#include "ops/elementwise/elementwise.h"

#include "base/kernel.h"
#include "base/simd.h"
#include "ops/elementwise/runs.h"

namespace tandem::TANDEM_ISA {
namespace {

// Every element is read before it is written, so y may be a or b.
struct Add {
  TANDEM_INLINE Vec of(Vec a, Vec b) { return add(a, b); }
};
struct Mul {
  TANDEM_INLINE Vec of(Vec a, Vec b) { return mul(a, b); }
};

template <class F>
void with_row(const float* a, const float* b, float* y, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(y + i, F::of(load(a + i), load(b + i)));
  if (i < n) store_n(y + i, F::of(load_n(a + i, (int)(n - i)), load_n(b + i, (int)(n - i))), (int)(n - i));
}

template <class F>
void with_number(const float* a, float b, float* y, int64_t n) {
  const Vec vb = set1(b);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(y + i, F::of(load(a + i), vb));
  if (i < n) store_n(y + i, F::of(load_n(a + i, (int)(n - i)), vb), (int)(n - i));
}

template <class F>
void run_binary(const KernelArgs& a, int64_t lo, int64_t hi, int) {
  float* dst = static_cast<float*>(a.dst.data);
  const NodeView &x = a.src[0], &y = a.src[1];
  if (same_shape(x, y)) {
    for_runs(a, lo, hi, [&](const Run& run) { with_row<F>(run.src[0], run.src[1], dst + run.first, run.n); });
    return;
  }
  const int64_t per = rows_per_unit(a), end = hi * per < n_rows(x) ? hi * per : n_rows(x);
  const int64_t n = x.ne[0], tile = y.ne[0];
  for (int64_t r = lo * per; r < end; ++r) {
    const float *from = row(x, x, r), *with = row(y, x, r);
    float* to = dst + r * n;
    if (tile == 1) {
      with_number<F>(from, *with, to, n);
    } else {
      for (int64_t i = 0; i < n; i += tile) with_row<F>(from + i, with, to + i, tile);
    }
  }
}

void run_scale(const KernelArgs& a, int64_t lo, int64_t hi, int) {
  const float s = static_cast<const ScaleParams*>(a.params)->s;
  float* dst = static_cast<float*>(a.dst.data);
  for_runs(a, lo, hi, [&](const Run& run) { with_number<Mul>(run.src[0], s, dst + run.first, run.n); });
}

}  // namespace

TANDEM_KERNEL(ADD) = {refuse, nullptr, {{units, run_binary<Add>}}};
TANDEM_KERNEL(MUL) = {refuse, nullptr, {{units, run_binary<Mul>}}};
TANDEM_KERNEL(SCALE) = {refuse, nullptr, {{units, run_scale}}};

}  // namespace tandem::TANDEM_ISA
