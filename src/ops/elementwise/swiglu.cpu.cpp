#include "base/kernel.h"
#include "base/simd.h"
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/runs.h"

namespace tandem::TANDEM_ISA {
namespace {

TANDEM_INLINE Vec sigmoid(Vec x) { return set1(1.f) / add(set1(1.f), exp(sub(zero(), x))); }

struct Gradients {
  Vec gate, up;
};

// What a node does to each element; made of its parameters.
struct Plain {
  explicit Plain(const KernelArgs&) {}
  inline __attribute__((always_inline)) Vec of(Vec gate, Vec up) const {
    return mul(mul(gate, sigmoid(gate)), up);
  }
  inline __attribute__((always_inline)) Gradients back(Vec gate, Vec up, Vec dh) const {
    const Vec s = sigmoid(gate), one = set1(1.f);
    return {mul(mul(dh, up), mul(s, fma(gate, sub(one, s), one))), mul(dh, mul(gate, s))};
  }
};

struct Clamped {
  explicit Clamped(const KernelArgs& a) {
    const SwigluOaiParams& p = *static_cast<const SwigluOaiParams*>(a.params);
    alpha = set1(p.alpha);
    most = set1(p.limit);
    least = set1(-p.limit);
  }
  inline __attribute__((always_inline)) Vec of(Vec gate, Vec up) const {
    const Vec g = min(gate, most), u = max(min(up, most), least);
    return mul(mul(g, sigmoid(mul(alpha, g))), add(u, set1(1.f)));
  }
  inline __attribute__((always_inline)) Gradients back(Vec gate, Vec up, Vec dh) const {
    const Vec g = min(gate, most), u = max(min(up, most), least), ag = mul(alpha, g);
    const Vec s = sigmoid(ag), one = set1(1.f);
    const Vec dgate = mul(mul(dh, add(u, one)), mul(s, fma(ag, sub(one, s), one)));
    const Vec dup = mul(dh, mul(g, s));
    return {gate <= most ? dgate : zero(), ((up <= most) & (up >= least)) ? dup : zero()};
  }
  Vec alpha, most, least;
};

// Every element is read before it is written, so h may be gate or up.
template <class F>
void run(const KernelArgs& a, int64_t lo, int64_t hi, int) {
  const F f(a);
  float* dst = static_cast<float*>(a.dst.data);
  for_runs(a, lo, hi, [&](const Run& run) {
    const float *gate = run.src[0], *up = run.src[1];
    float* h = dst + run.first;
    int64_t i = 0;
    for (; i + kLanes <= run.n; i += kLanes) store(h + i, f.of(load(gate + i), load(up + i)));
    if (i < run.n) {
      const int tail = (int)(run.n - i);
      store_n(h + i, f.of(load_n(gate + i, tail), load_n(up + i, tail)), tail);
    }
  });
}

template <class F>
void run_back(const KernelArgs& a, int64_t lo, int64_t hi, int) {
  const F f(a);
  float* dst = static_cast<float*>(a.dst.data);
  const int64_t elements = n_rows(a.src[0]) * a.src[0].ne[0];
  for_runs(a, lo, hi, [&](const Run& run) {
    const float *gate = run.src[0], *up = run.src[1], *dh = run.src[2];
    float *dgate = dst + run.first, *dup = dgate + elements;
    int64_t i = 0;
    for (; i + kLanes <= run.n; i += kLanes) {
      const Gradients d = f.back(load(gate + i), load(up + i), load(dh + i));
      store(dgate + i, d.gate);
      store(dup + i, d.up);
    }
    if (i < run.n) {
      const int tail = (int)(run.n - i);
      const Gradients d = f.back(load_n(gate + i, tail), load_n(up + i, tail), load_n(dh + i, tail));
      store_n(dgate + i, d.gate, tail);
      store_n(dup + i, d.up, tail);
    }
  });
}

}  // namespace

TANDEM_KERNEL(SWIGLU) = {refuse, nullptr, {{units, run<Plain>}}};
TANDEM_KERNEL(SWIGLU_BACK) = {refuse, nullptr, {{units, run_back<Plain>}}};
TANDEM_KERNEL(SWIGLU_OAI) = {refuse, nullptr, {{units, run<Clamped>}}};
TANDEM_KERNEL(SWIGLU_OAI_BACK) = {refuse, nullptr, {{units, run_back<Clamped>}}};

}  // namespace tandem::TANDEM_ISA
