#include "base/kernel.h"
#include "base/simd.h"
#include "ops/elementwise/runs.h"

namespace tandem::TANDEM_ISA {
namespace {

TANDEM_INLINE Vec sigmoid(Vec x) { return set1(1.f) / add(set1(1.f), exp(sub(zero(), x))); }

TANDEM_INLINE Vec swiglu(Vec gate, Vec up) { return mul(mul(gate, sigmoid(gate)), up); }

// Every element is read before it is written, so h may be gate or up.
void run(const KernelArgs& a, int64_t lo, int64_t hi, int) {
  float* dst = static_cast<float*>(a.dst.data);
  for_runs(a, lo, hi, [&](const Run& run) {
    const float *gate = run.src[0], *up = run.src[1];
    float* h = dst + run.first;
    int64_t i = 0;
    for (; i + kLanes <= run.n; i += kLanes) store(h + i, swiglu(load(gate + i), load(up + i)));
    if (i < run.n) {
      const int tail = (int)(run.n - i);
      store_n(h + i, swiglu(load_n(gate + i, tail), load_n(up + i, tail)), tail);
    }
  });
}

struct Gradients {
  Vec gate, up;
};

TANDEM_INLINE Gradients swiglu_back(Vec gate, Vec up, Vec dh) {
  const Vec s = sigmoid(gate), one = set1(1.f);
  return {mul(mul(dh, up), mul(s, fma(gate, sub(one, s), one))), mul(dh, mul(gate, s))};
}

void run_back(const KernelArgs& a, int64_t lo, int64_t hi, int) {
  float* dst = static_cast<float*>(a.dst.data);
  const int64_t elements = n_rows(a.src[0]) * a.src[0].ne[0];
  for_runs(a, lo, hi, [&](const Run& run) {
    const float *gate = run.src[0], *up = run.src[1], *dh = run.src[2];
    float *dgate = dst + run.first, *dup = dgate + elements;
    int64_t i = 0;
    for (; i + kLanes <= run.n; i += kLanes) {
      const Gradients d = swiglu_back(load(gate + i), load(up + i), load(dh + i));
      store(dgate + i, d.gate);
      store(dup + i, d.up);
    }
    if (i < run.n) {
      const int tail = (int)(run.n - i);
      const Gradients d = swiglu_back(load_n(gate + i, tail), load_n(up + i, tail), load_n(dh + i, tail));
      store_n(dgate + i, d.gate, tail);
      store_n(dup + i, d.up, tail);
    }
  });
}

}  // namespace

TANDEM_KERNEL(SWIGLU) = {refuse, nullptr, {{units, run}}};
TANDEM_KERNEL(SWIGLU_BACK) = {refuse, nullptr, {{units, run_back}}};

}  // namespace tandem::TANDEM_ISA
