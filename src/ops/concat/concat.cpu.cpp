#include <string.h>

#include "base/kernel.h"
#include "base/simd.h"

namespace tandem::TANDEM_ISA {
namespace {

constexpr int64_t kUnitElements = 16384;  // about 10 us of work

int64_t n_rows(const NodeView& t) { return t.ne[1] * t.ne[2] * t.ne[3]; }

int64_t rows_per_unit(const KernelArgs& a) {
  const int64_t rows = kUnitElements / (a.dst.ne[0] + 1);
  return rows < 1 ? 1 : rows;
}

int64_t units(const KernelArgs& a) { return ceil_div(n_rows(a.dst), rows_per_unit(a)); }

// Rows are contiguous along ne0; the other dimensions may have any strides.
const char* refuse(const KernelArgs& a) {
  return a.src[0].nb[0] == 4 && a.src[1].nb[0] == 4 ? nullptr : "rows must be contiguous";
}

const char* row(const NodeView& t, int64_t r) {
  const int64_t i1 = r % t.ne[1], i2 = r / t.ne[1] % t.ne[2], i3 = r / (t.ne[1] * t.ne[2]);
  return static_cast<const char*>(t.data) + i1 * t.nb[1] + i2 * t.nb[2] + i3 * t.nb[3];
}

void run(const KernelArgs& a, int64_t lo, int64_t hi, int) {
  const int64_t m = a.src[0].ne[0], n = a.src[1].ne[0];
  const int64_t per = rows_per_unit(a), end = hi * per < n_rows(a.dst) ? hi * per : n_rows(a.dst);
  for (int64_t r = lo * per; r < end; ++r) {
    float* to = static_cast<float*>(a.dst.data) + r * (m + n);
    memcpy(to, row(a.src[0], r), (size_t)m * 4);
    memcpy(to + m, row(a.src[1], r), (size_t)n * 4);
  }
}

}  // namespace

TANDEM_KERNEL(CONCAT) = {refuse, nullptr, {{units, run}}};

}  // namespace tandem::TANDEM_ISA
