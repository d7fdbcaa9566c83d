#include <math.h>
#include <string.h>

#include "base/kernel.h"
#include "base/simd.h"

namespace tandem::TANDEM_ISA {
namespace {

constexpr int64_t kUnitElements = 16384;  // about 20 us of work
constexpr int64_t kBlock = 1024;          // exponentials summed in f32 before the sum goes on in f64

int64_t rows_per_unit(const KernelArgs& a) {
  const int64_t rows = kUnitElements / (a.src[0].ne[0] + 32);  // 32: the logarithm
  return rows < 1 ? 1 : rows;
}

int64_t units(const KernelArgs& a) { return ceil_div(a.src[0].ne[1], rows_per_unit(a)); }

// Logits of a token are contiguous; tokens may have any stride.
const char* refuse(const KernelArgs& a) { return a.src[0].nb[0] == 4 ? nullptr : "rows must be contiguous"; }

const float* logits(const KernelArgs& a, int64_t t) {
  return reinterpret_cast<const float*>(static_cast<const char*>(a.src[0].data) + t * a.src[0].nb[1]);
}

int32_t label_of(const KernelArgs& a, int64_t t) { return static_cast<const int32_t*>(a.src[1].data)[t]; }

float largest(const float* z, int64_t n) {
  Vec m0 = set1(z[0]), m1 = m0;
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    m0 = max(load(z + i), m0);
    m1 = max(load(z + i + kLanes), m1);
  }
  float result = reduce_max(max(m0, m1));
  for (; i < n; ++i) result = z[i] > result ? z[i] : result;
  return result;
}

double sum_exp(const float* z, int64_t n, float shift) {
  const Vec v = set1(shift);
  double total = 0;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t end = begin + kBlock < n ? begin + kBlock : n;
    Vec s0 = zero(), s1 = zero();
    int64_t i = begin;
    for (; i + 2 * kLanes <= end; i += 2 * kLanes) {
      s0 = add(s0, exp(sub(load(z + i), v)));
      s1 = add(s1, exp(sub(load(z + i + kLanes), v)));
    }
    double tail = 0;
    for (; i < end; ++i) tail += (double)exp(set1(z[i] - shift))[0];
    total += (double)reduce_add(add(s0, s1)) + tail;
  }
  return total;
}

// What a token's loss is made of.
struct Sums {
  float largest;
  double label, others;  // exp(z - largest) of the label, and of all others together
};

Sums sums_of(const float* z, int64_t n, int32_t label) {
  const float m = largest(z, n);
  return {m, (double)exp(set1(z[label] - m))[0],
          sum_exp(z, label, m) + sum_exp(z + label + 1, n - label - 1, m)};
}

bool is_before(const float* z, float x, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    if (z[i] == x) return true;
  return false;
}

void run(const KernelArgs& a, int64_t lo, int64_t hi, int) {
  const int64_t n = a.src[0].ne[0], n_tokens = a.src[0].ne[1];
  const int64_t per = rows_per_unit(a), end = hi * per < n_tokens ? hi * per : n_tokens;
  float *nll = static_cast<float*>(a.dst.data), *hits = nll + n_tokens;
  for (int64_t t = lo * per; t < end; ++t) {
    const int32_t label = label_of(a, t);
    nll[t] = hits[t] = 0.f;
    if (label < 0) continue;
    const float* z = logits(a, t);
    const Sums s = sums_of(z, n, label);
    nll[t] = (float)(::log(s.label + s.others) + ((double)s.largest - (double)z[label]));
    hits[t] = z[label] == s.largest && !is_before(z, s.largest, label) ? 1.f : 0.f;
  }
}

// dz may be z.  The label's p - 1 is minus the share of the others, which does not cancel.
void gradient(const float* z, float* dz, int64_t n, int32_t label, double dnll) {
  const Sums s = sums_of(z, n, label);
  const double factor = dnll / (s.label + s.others);
  const Vec shift = set1(s.largest), f = set1((float)factor);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(dz + i, mul(exp(sub(load(z + i), shift)), f));
  if (i < n) store_n(dz + i, mul(exp(sub(load_n(z + i, (int)(n - i)), shift)), f), (int)(n - i));
  dz[label] = (float)(-s.others * factor);
}

void run_back(const KernelArgs& a, int64_t lo, int64_t hi, int) {
  const NodeView& dnll = a.src[2];
  const int64_t n = a.src[0].ne[0], n_tokens = a.src[0].ne[1];
  const int64_t per = rows_per_unit(a), end = hi * per < n_tokens ? hi * per : n_tokens;
  for (int64_t t = lo * per; t < end; ++t) {
    const int32_t label = label_of(a, t);
    float* dz = static_cast<float*>(a.dst.data) + t * n;
    if (label < 0) {
      memset(dz, 0, (size_t)n * 4);
    } else {
      const char* d = static_cast<const char*>(dnll.data) + t * dnll.nb[0];
      gradient(logits(a, t), dz, n, label, (double)*reinterpret_cast<const float*>(d));
    }
  }
}

}  // namespace

TANDEM_KERNEL(CROSS_ENTROPY_LOSS) = {refuse, nullptr, {{units, run}}};
TANDEM_KERNEL(CROSS_ENTROPY_LOSS_BACK) = {refuse, nullptr, {{units, run_back}}};

}  // namespace tandem::TANDEM_ISA
