#include <string.h>

#include "base/kernel.h"
#include "base/simd.h"

namespace tandem::TANDEM_ISA {
namespace {

constexpr int64_t kUnitElements = 16384;  // about 10 us of work

int64_t n_rows(const NodeView& t) { return t.ne[1] * t.ne[2] * t.ne[3]; }

// Rows are contiguous along ne0; the other dimensions may have any strides.
const char* refuse(const KernelArgs& a) { return a.src[0].nb[0] == 4 ? nullptr : "rows must be contiguous"; }

const float* row(const NodeView& t, int64_t i1, int64_t i2, int64_t i3) {
  return reinterpret_cast<const float*>(static_cast<const char*>(t.data) + i1 * t.nb[1] + i2 * t.nb[2] +
                                        i3 * t.nb[3]);
}

// --- REPEAT: units of rows of the result
// ---------------------------------------------------------------------------

int64_t rows_per_unit(const KernelArgs& a) {
  const int64_t rows = kUnitElements / (a.dst.ne[0] + 1);
  return rows < 1 ? 1 : rows;
}

int64_t units(const KernelArgs& a) { return ceil_div(n_rows(a.dst), rows_per_unit(a)); }

void fill(float* y, float x, int64_t n) {
  const Vec v = set1(x);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(y + i, v);
  if (i < n) store_n(y + i, v, (int)(n - i));
}

void run(const KernelArgs& a, int64_t lo, int64_t hi, int) {
  const NodeView &x = a.src[0], &y = a.dst;
  const int64_t per = rows_per_unit(a), end = hi * per < n_rows(y) ? hi * per : n_rows(y), n = y.ne[0];
  for (int64_t r = lo * per; r < end; ++r) {
    const int64_t i1 = r % y.ne[1], i2 = r / y.ne[1] % y.ne[2], i3 = r / (y.ne[1] * y.ne[2]);
    const float* from = row(x, i1 % x.ne[1], i2 % x.ne[2], i3 % x.ne[3]);
    float* to = static_cast<float*>(y.data) + r * n;
    if (x.ne[0] == 1) {
      fill(to, *from, n);
    } else {
      for (int64_t i = 0; i < n; i += x.ne[0]) memcpy(to + i, from, (size_t)x.ne[0] * 4);
    }
  }
}

// --- REPEAT_BACK: units of rows of the result, or of columns where a row collects much
// --------------------------------

// How the result is cut: `rows` rows of it, or a part of `columns` columns of one row, per unit.
struct Cut {
  int64_t rows, columns, parts;  // parts of a row
};

Cut cut(const KernelArgs& a) {
  const NodeView &x = a.src[0], &y = a.dst;
  const int64_t per_row = x.ne[0] * n_rows(x) / n_rows(y);  // elements summed into one row of the result
  if (per_row <= kUnitElements) return {kUnitElements / (per_row + 1) + 1, y.ne[0], 1};
  const int64_t share = y.ne[0] * kUnitElements / per_row;
  const int64_t columns = (share + 15) / 16 * 16 > 16 ? (share + 15) / 16 * 16 : 16;  // at least a cache line
  return {1, columns, ceil_div(y.ne[0], columns)};
}

int64_t fold_units(const KernelArgs& a) {
  const Cut c = cut(a);
  return ceil_div(n_rows(a.dst), c.rows) * c.parts;
}

float sum(const float* x, int64_t n) {
  Vec s0 = zero(), s1 = zero();
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    s0 = add(s0, load(x + i));
    s1 = add(s1, load(x + i + kLanes));
  }
  for (; i + kLanes <= n; i += kLanes) s0 = add(s0, load(x + i));
  if (i < n) s1 = add(s1, load_n(x + i, (int)(n - i)));
  return reduce_add(add(s0, s1));
}

void add_to(float* y, const float* x, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(y + i, add(load(y + i), load(x + i)));
  if (i < n) store_n(y + i, add(load_n(y + i, (int)(n - i)), load_n(x + i, (int)(n - i))), (int)(n - i));
}

// Columns [c0, c1) of row r of the result: tiles add up in the order of x's memory.
void fold(const NodeView& x, const NodeView& y, int64_t r, int64_t c0, int64_t c1) {
  const int64_t m1 = r % y.ne[1], m2 = r / y.ne[1] % y.ne[2], m3 = r / (y.ne[1] * y.ne[2]), m = y.ne[0];
  float* to = static_cast<float*>(y.data) + r * m;
  memset(to + c0, 0, (size_t)(c1 - c0) * 4);
  double total = 0;
  for (int64_t i3 = m3; i3 < x.ne[3]; i3 += y.ne[3])
    for (int64_t i2 = m2; i2 < x.ne[2]; i2 += y.ne[2])
      for (int64_t i1 = m1; i1 < x.ne[1]; i1 += y.ne[1]) {
        const float* from = row(x, i1, i2, i3);
        if (m == 1) {
          total += (double)sum(from, x.ne[0]);
        } else {
          for (int64_t i = 0; i < x.ne[0]; i += m) add_to(to + c0, from + i + c0, c1 - c0);
        }
      }
  if (m == 1) *to = (float)total;
}

void run_fold(const KernelArgs& a, int64_t lo, int64_t hi, int) {
  const Cut c = cut(a);
  for (int64_t u = lo; u < hi; ++u) {
    const int64_t begin = u / c.parts * c.rows, part = u % c.parts * c.columns;
    const int64_t end = begin + c.rows < n_rows(a.dst) ? begin + c.rows : n_rows(a.dst);
    const int64_t part_end = part + c.columns < a.dst.ne[0] ? part + c.columns : a.dst.ne[0];
    for (int64_t r = begin; r < end; ++r) fold(a.src[0], a.dst, r, part, part_end);
  }
}

}  // namespace

TANDEM_KERNEL(REPEAT) = {refuse, nullptr, {{units, run}}};
TANDEM_KERNEL(REPEAT_BACK) = {refuse, nullptr, {{fold_units, run_fold}}};

}  // namespace tandem::TANDEM_ISA
