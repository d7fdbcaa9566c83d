#include "base/kernel.h"
#include "base/simd.h"

namespace tandem::TANDEM_ISA {
namespace {

constexpr int64_t kUnitElements = 8192;  // about 10 us of work

int64_t rows_per_unit(const KernelArgs& a) {
  const int64_t rows = kUnitElements / (a.src[0].ne[0] + 16);  // 16: the start of a row
  return rows < 1 ? 1 : rows;
}

int64_t n_rows(const KernelArgs& a) { return a.dst.ne[1] * a.dst.ne[2] * a.dst.ne[3]; }

int64_t units(const KernelArgs& a) { return ceil_div(n_rows(a), rows_per_unit(a)); }

const float* row(const NodeView& t, int64_t r) {
  const int64_t i1 = r % t.ne[1], i2 = r / t.ne[1] % t.ne[2], i3 = r / (t.ne[1] * t.ne[2]);
  return reinterpret_cast<const float*>(static_cast<const char*>(t.data) + i1 * t.nb[1] + i2 * t.nb[2] +
                                        i3 * t.nb[3]);
}

// Rows are contiguous along ne0; the other dimensions may have any strides.
const char* refuse(const KernelArgs& a) { return a.src[0].nb[0] == 4 ? nullptr : "rows must be contiguous"; }

// Keeps ids[0, k) sorted while it walks the row; an equal number that comes later never moves ahead.
void top_k(const float* x, int64_t n, int32_t* ids, int64_t k) {
  for (int64_t i = 0; i < n; ++i) {
    if (i >= k && !(x[i] > x[ids[k - 1]])) continue;
    int64_t at = i < k ? i : k - 1;
    for (; at > 0 && x[i] > x[ids[at - 1]]; --at) ids[at] = ids[at - 1];
    ids[at] = (int32_t)i;
  }
}

void run(const KernelArgs& a, int64_t lo, int64_t hi, int) {
  const int64_t per = rows_per_unit(a), end = hi * per < n_rows(a) ? hi * per : n_rows(a), k = a.dst.ne[0];
  for (int64_t r = lo * per; r < end; ++r) {
    top_k(row(a.src[0], r), a.src[0].ne[0], static_cast<int32_t*>(a.dst.data) + r * k, k);
  }
}

}  // namespace

TANDEM_KERNEL(TOP_K) = {refuse, nullptr, {{units, run}}};

}  // namespace tandem::TANDEM_ISA
