#include "base/kernel.h"
#include "base/simd.h"

namespace tandem::TANDEM_ISA {
namespace {

constexpr int64_t kUnitElements = 8192;  // about 10 us of work

int64_t rows_per_unit(const KernelArgs& a) {
  const int64_t rows = kUnitElements / (a.dst.ne[0] + 8);  // 8: the start of a row
  return rows < 1 ? 1 : rows;
}

int64_t n_rows(const KernelArgs& a) { return a.dst.ne[1] * a.dst.ne[2] * a.dst.ne[3]; }

int64_t units(const KernelArgs& a) { return ceil_div(n_rows(a), rows_per_unit(a)); }

float* row(const NodeView& t, int64_t r) {
  const int64_t i1 = r % t.ne[1], i2 = r / t.ne[1] % t.ne[2], i3 = r / (t.ne[1] * t.ne[2]);
  return reinterpret_cast<float*>(static_cast<char*>(t.data) + i1 * t.nb[1] + i2 * t.nb[2] + i3 * t.nb[3]);
}

// Rows are contiguous along ne0; the other dimensions may have any strides.
const char* refuse(const KernelArgs& a) {
  for (int s = 0; s < a.n_src; ++s)
    if (a.src[s].nb[0] != 4) return "rows must be contiguous";
  return nullptr;
}

float largest(const float* x, int64_t n) {
  Vec m = set1(x[0]);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) m = max(load(x + i), m);
  float result = reduce_max(m);
  for (; i < n; ++i) result = x[i] > result ? x[i] : result;
  return result;
}

// y may be x.
void soft_max(const float* x, float* y, int64_t n) {
  const Vec shift = set1(largest(x, n));
  Vec sums = zero();
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Vec e = exp(sub(load(x + i), shift));
    store(y + i, e);
    sums = add(sums, e);
  }
  if (i < n) {
    const int tail = (int)(n - i);
    store_n(y + i, exp(sub(load_n(x + i, tail), shift)), tail);
    sums = add(sums, load_n(y + i, tail));
  }
  const Vec inverse = set1(1.f / reduce_add(sums));
  for (i = 0; i + kLanes <= n; i += kLanes) store(y + i, mul(load(y + i), inverse));
  if (i < n) store_n(y + i, mul(load_n(y + i, (int)(n - i)), inverse), (int)(n - i));
}

float dot(const float* a, const float* b, int64_t n) {
  Vec sums = zero();
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) sums = fma(load(a + i), load(b + i), sums);
  if (i < n) sums = fma(load_n(a + i, (int)(n - i)), load_n(b + i, (int)(n - i)), sums);
  return reduce_add(sums);
}

// dx may be dy or y.
void soft_max_back(const float* dy, const float* y, float* dx, int64_t n) {
  const Vec mean = set1(dot(y, dy, n));
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(dx + i, mul(load(y + i), sub(load(dy + i), mean)));
  if (i < n) {
    const int tail = (int)(n - i);
    store_n(dx + i, mul(load_n(y + i, tail), sub(load_n(dy + i, tail), mean)), tail);
  }
}

void run(const KernelArgs& a, int64_t lo, int64_t hi, int) {
  const int64_t per = rows_per_unit(a), end = hi * per < n_rows(a) ? hi * per : n_rows(a);
  for (int64_t r = lo * per; r < end; ++r) soft_max(row(a.src[0], r), row(a.dst, r), a.dst.ne[0]);
}

void run_back(const KernelArgs& a, int64_t lo, int64_t hi, int) {
  const int64_t per = rows_per_unit(a), end = hi * per < n_rows(a) ? hi * per : n_rows(a);
  for (int64_t r = lo * per; r < end; ++r) {
    soft_max_back(row(a.src[0], r), row(a.src[1], r), row(a.dst, r), a.dst.ne[0]);
  }
}

}  // namespace

TANDEM_KERNEL(SOFT_MAX) = {refuse, nullptr, {{units, run}}};
TANDEM_KERNEL(SOFT_MAX_BACK) = {refuse, nullptr, {{units, run_back}}};

}  // namespace tandem::TANDEM_ISA
