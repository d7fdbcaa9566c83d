#include "ops/rms_norm/rms_norm.h"

#include <math.h>

#include "base/kernel.h"
#include "base/simd.h"

namespace tandem::TANDEM_ISA {
namespace {

constexpr int64_t kUnitElements = 16384;  // about 10 us of work

int64_t rows_per_unit(const KernelArgs& a) {
  const int64_t rows = kUnitElements / (a.dst.ne[0] + 1);
  return rows < 1 ? 1 : rows;
}

int64_t n_rows(const KernelArgs& a) { return a.dst.ne[1] * a.dst.ne[2] * a.dst.ne[3]; }

int64_t units(const KernelArgs& a) { return ceil_div(n_rows(a), rows_per_unit(a)); }

float* row(const NodeView& t, int64_t r) {
  const int64_t i1 = r % t.ne[1], i2 = r / t.ne[1] % t.ne[2], i3 = r / (t.ne[1] * t.ne[2]);
  return reinterpret_cast<float*>(static_cast<char*>(t.data) + i1 * t.nb[1] + i2 * t.nb[2] + i3 * t.nb[3]);
}

float dot(const float* a, const float* b, int64_t n) {
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

float inverse_rms(const float* x, int64_t n, float eps) { return 1.f / sqrtf(dot(x, x, n) / (float)n + eps); }

// Rows are contiguous along ne0; the other dimensions may have any strides.
const char* refuse(const KernelArgs& a) {
  for (int s = 0; s < a.n_src; ++s)
    if (a.src[s].nb[0] != 4) return "rows must be contiguous";
  return nullptr;
}

void run(const KernelArgs& a, int64_t lo, int64_t hi, int) {
  const float eps = static_cast<const RmsNormParams*>(a.params)->eps;
  const int64_t per = rows_per_unit(a), end = hi * per < n_rows(a) ? hi * per : n_rows(a), n = a.dst.ne[0];
  for (int64_t r = lo * per; r < end; ++r) {
    const float* x = row(a.src[0], r);
    float* y = row(a.dst, r);
    const Vec s = set1(inverse_rms(x, n, eps));
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) store(y + i, mul(load(x + i), s));
    if (i < n) store_n(y + i, mul(load_n(x + i, (int)(n - i)), s), (int)(n - i));
  }
}

void run_back(const KernelArgs& a, int64_t lo, int64_t hi, int) {
  const float eps = static_cast<const RmsNormParams*>(a.params)->eps;
  const int64_t per = rows_per_unit(a), end = hi * per < n_rows(a) ? hi * per : n_rows(a), n = a.dst.ne[0];
  for (int64_t r = lo * per; r < end; ++r) {
    const float *dy = row(a.src[0], r), *x = row(a.src[1], r);
    float* dx = row(a.dst, r);
    const float s = inverse_rms(x, n, eps);
    const Vec vs = set1(s), k = set1(-dot(x, dy, n) / (float)n * s * s);
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) store(dx + i, mul(vs, fma(load(x + i), k, load(dy + i))));
    if (i < n) {
      const int t = (int)(n - i);
      store_n(dx + i, mul(vs, fma(load_n(x + i, t), k, load_n(dy + i, t))), t);
    }
  }
}

}  // namespace

TANDEM_KERNEL(RMS_NORM) = {refuse, nullptr, {{units, run}}};
TANDEM_KERNEL(RMS_NORM_BACK) = {refuse, nullptr, {{units, run_back}}};

}  // namespace tandem::TANDEM_ISA
