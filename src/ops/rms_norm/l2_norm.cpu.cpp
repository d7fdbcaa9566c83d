#include "ops/rms_norm/l2_norm.h"

#include <math.h>

#include "base/kernel.h"
#include "base/simd.h"
#include "ops/rms_norm/norm_rows.h"

namespace tandem::TANDEM_ISA {
namespace {

void run(const KernelArgs& a, int64_t lo, int64_t hi, int) {
  const float eps = static_cast<const L2NormParams*>(a.params)->eps;
  const int64_t per = rows_per_unit(a), end = hi * per < n_rows(a) ? hi * per : n_rows(a), n = a.dst.ne[0];
  for (int64_t r = lo * per; r < end; ++r) {
    const float* x = row(a.src[0], r);
    float* y = row(a.dst, r);
    const float norm = sqrtf(dot(x, x, n));
    const Vec s = set1(1.f / (norm > eps ? norm : eps));
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) store(y + i, mul(load(x + i), s));
    if (i < n) store_n(y + i, mul(load_n(x + i, (int)(n - i)), s), (int)(n - i));
  }
}

void run_back(const KernelArgs& a, int64_t lo, int64_t hi, int) {
  const float eps = static_cast<const L2NormParams*>(a.params)->eps;
  const int64_t per = rows_per_unit(a), end = hi * per < n_rows(a) ? hi * per : n_rows(a), n = a.dst.ne[0];
  for (int64_t r = lo * per; r < end; ++r) {
    const float *dy = row(a.src[0], r), *x = row(a.src[1], r);
    float* dx = row(a.dst, r);
    const float norm = sqrtf(dot(x, x, n)), s = 1.f / (norm > eps ? norm : eps);
    const Vec vs = set1(s), k = set1(norm > eps ? -dot(x, dy, n) * s * s : 0.f);
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) store(dx + i, mul(vs, fma(load(x + i), k, load(dy + i))));
    if (i < n) {
      const int t = (int)(n - i);
      store_n(dx + i, mul(vs, fma(load_n(x + i, t), k, load_n(dy + i, t))), t);
    }
  }
}

}  // namespace

TANDEM_KERNEL(L2_NORM) = {refuse, nullptr, {{units, run}}};
TANDEM_KERNEL(L2_NORM_BACK) = {refuse, nullptr, {{units, run_back}}};

}  // namespace tandem::TANDEM_ISA
