#include <math.h>

#include "base/kernel.h"
#include "base/simd.h"
#include "ops/elementwise/runs.h"

namespace tandem::TANDEM_ISA {
namespace {

TANDEM_INLINE Vec logistic(Vec x) { return set1(1.f) / add(set1(1.f), exp(sub(zero(), x))); }

struct Sigmoid {
  TANDEM_INLINE Vec of(Vec x) { return logistic(x); }
};
struct Silu {
  TANDEM_INLINE Vec of(Vec x) { return mul(x, logistic(x)); }
};
// The logarithm is the C library's: one per head or expert and token, nowhere near the products.
struct Softplus {
  TANDEM_INLINE Vec of(Vec x) {
    Vec y = zero();
    for (int i = 0; i < kLanes; ++i) y[i] = (x[i] > 0.f ? x[i] : 0.f) + log1pf(expf(-fabsf(x[i])));
    return y;
  }
};
struct SigmoidBack {
  TANDEM_INLINE Vec of(Vec dy, Vec y) { return mul(mul(dy, y), sub(set1(1.f), y)); }
};
struct SiluBack {
  TANDEM_INLINE Vec of(Vec dy, Vec x) {
    const Vec s = logistic(x), one = set1(1.f);
    return mul(mul(dy, s), fma(x, sub(one, s), one));
  }
};
struct SoftplusBack {
  TANDEM_INLINE Vec of(Vec dy, Vec x) { return mul(dy, logistic(x)); }
};

// Every element is read before it is written, so y may be a source.
template <class F>
void run1(const KernelArgs& a, int64_t lo, int64_t hi, int) {
  float* dst = static_cast<float*>(a.dst.data);
  for_runs(a, lo, hi, [&](const Run& run) {
    const float* x = run.src[0];
    float* y = dst + run.first;
    int64_t i = 0;
    for (; i + kLanes <= run.n; i += kLanes) store(y + i, F::of(load(x + i)));
    if (i < run.n) store_n(y + i, F::of(load_n(x + i, (int)(run.n - i))), (int)(run.n - i));
  });
}

template <class F>
void run2(const KernelArgs& a, int64_t lo, int64_t hi, int) {
  float* dst = static_cast<float*>(a.dst.data);
  for_runs(a, lo, hi, [&](const Run& run) {
    const float *x = run.src[0], *z = run.src[1];
    float* y = dst + run.first;
    int64_t i = 0;
    for (; i + kLanes <= run.n; i += kLanes) store(y + i, F::of(load(x + i), load(z + i)));
    if (i < run.n) {
      const int tail = (int)(run.n - i);
      store_n(y + i, F::of(load_n(x + i, tail), load_n(z + i, tail)), tail);
    }
  });
}

}  // namespace

TANDEM_KERNEL(SIGMOID) = {refuse, nullptr, {{units, run1<Sigmoid>}}};
TANDEM_KERNEL(SIGMOID_BACK) = {refuse, nullptr, {{units, run2<SigmoidBack>}}};
TANDEM_KERNEL(SILU) = {refuse, nullptr, {{units, run1<Silu>}}};
TANDEM_KERNEL(SILU_BACK) = {refuse, nullptr, {{units, run2<SiluBack>}}};
TANDEM_KERNEL(SOFTPLUS) = {refuse, nullptr, {{units, run1<Softplus>}}};
TANDEM_KERNEL(SOFTPLUS_BACK) = {refuse, nullptr, {{units, run2<SoftplusBack>}}};

}  // namespace tandem::TANDEM_ISA
