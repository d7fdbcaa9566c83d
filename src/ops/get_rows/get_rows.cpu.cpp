#include "ops/get_rows/get_rows.h"

#include <string.h>

#include "base/kernel.h"
#include "base/simd.h"

namespace tandem::TANDEM_ISA {
namespace {

constexpr int64_t kUnitElements = 16384;  // about 10 us of work
constexpr int32_t kF32 = 0;               // the type's id

int32_t id(const NodeView& ids, int64_t i, int64_t j) {
  return *reinterpret_cast<const int32_t*>(static_cast<const char*>(ids.data) + i * ids.nb[0] +
                                           j * ids.nb[1]);
}

const char* row(const NodeView& t, int64_t i, int64_t j) {
  return static_cast<const char*>(t.data) + i * t.nb[1] + j * t.nb[2];
}

// --- GET_ROWS
// ------------------------------------------------------------------------------------------------------

// Rows are contiguous along ne0; the other dimensions may have any strides.
const char* refuse(const KernelArgs& a) {
  const NodeView& x = a.src[0];
  if (x.nb[0] != x.block_bytes) return "rows must be contiguous";
  if (x.type != kF32 && !x.format) return "the type has no decoding kernel at this level";
  return nullptr;
}

int64_t rows_per_unit(const KernelArgs& a) {
  const int64_t rows = kUnitElements / (a.dst.ne[0] + 8);  // 8: finding a row
  return rows < 1 ? 1 : rows;
}

int64_t units(const KernelArgs& a) { return ceil_div(a.dst.ne[1] * a.dst.ne[2], rows_per_unit(a)); }

void run(const KernelArgs& a, int64_t lo, int64_t hi, int) {
  const NodeView &x = a.src[0], &ids = a.src[1], &y = a.dst;
  const int64_t n = y.ne[0], rows = y.ne[1] * y.ne[2], per = rows_per_unit(a),
                end = hi * per < rows ? hi * per : rows;
  for (int64_t r = lo * per; r < end; ++r) {
    const int64_t i = r % y.ne[1], j = r / y.ne[1];
    const char* from = row(x, id(ids, i, j), j);
    float* to = static_cast<float*>(y.data) + r * n;
    if (x.type != kF32) {
      x.format->to_f32(from, to, n);
    } else if (n == 1) {
      *to = *reinterpret_cast<const float*>(from);
    } else {
      memcpy(to, from, (size_t)n * 4);
    }
  }
}

// --- GET_ROWS_BACK: units of whole batches, or of columns of one batch where it is large
// ------------------------------

const char* refuse_back(const KernelArgs& a) {
  return a.src[0].nb[0] == 4 ? nullptr : "rows must be contiguous";
}

// How the result is cut: `batches` batches of it, or a part of `columns` columns of one batch, per unit.
struct Cut {
  int64_t batches, columns, parts;  // parts of a batch
};

Cut cut(const KernelArgs& a) {
  const int64_t n = a.dst.ne[0], column = a.dst.ne[1] + a.src[0].ne[1];  // elements touched in one column
  if (n * column <= kUnitElements) return {kUnitElements / (n * column + 1) + 1, n, 1};
  const int64_t share = (kUnitElements / column + 15) / 16 * 16;
  const int64_t columns = share > 64 ? share : 64;  // four cache lines: the rows are far apart
  return {1, columns, ceil_div(n, columns)};
}

int64_t units_back(const KernelArgs& a) {
  const Cut c = cut(a);
  return ceil_div(a.dst.ne[2], c.batches) * c.parts;
}

void add_to(float* y, const float* x, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(y + i, add(load(y + i), load(x + i)));
  if (i < n) store_n(y + i, add(load_n(y + i, (int)(n - i)), load_n(x + i, (int)(n - i))), (int)(n - i));
}

// Columns [c0, c1) of batch j; rows that are gathered more than once add up in the order of the ids.
void scatter(const KernelArgs& a, int64_t j, int64_t c0, int64_t c1) {
  const NodeView &dy = a.src[0], &ids = a.src[1], &dx = a.dst;
  const int64_t n = dx.ne[0];
  float* to = static_cast<float*>(dx.data) + j * dx.ne[1] * n;
  if (c1 - c0 == n) {
    memset(to, 0, (size_t)(n * dx.ne[1]) * 4);
  } else {
    for (int64_t r = 0; r < dx.ne[1]; ++r) memset(to + r * n + c0, 0, (size_t)(c1 - c0) * 4);
  }
  for (int64_t i = 0; i < dy.ne[1]; ++i) {
    const float* from = reinterpret_cast<const float*>(row(dy, i, j));
    if (n == 1) {
      to[id(ids, i, j)] += *from;
    } else {
      add_to(to + id(ids, i, j) * n + c0, from + c0, c1 - c0);
    }
  }
}

void run_back(const KernelArgs& a, int64_t lo, int64_t hi, int) {
  const Cut c = cut(a);
  const int64_t batches = a.dst.ne[2], n = a.dst.ne[0];
  for (int64_t u = lo; u < hi; ++u) {
    const int64_t begin = u / c.parts * c.batches, part = u % c.parts * c.columns;
    const int64_t end = begin + c.batches < batches ? begin + c.batches : batches;
    const int64_t part_end = part + c.columns < n ? part + c.columns : n;
    for (int64_t j = begin; j < end; ++j) scatter(a, j, part, part_end);
  }
}

}  // namespace

TANDEM_KERNEL(GET_ROWS) = {refuse, nullptr, {{units, run}}};
TANDEM_KERNEL(GET_ROWS_BACK) = {refuse_back, nullptr, {{units_back, run_back}}};

}  // namespace tandem::TANDEM_ISA
