#include "ops/view/view.h"

#include <string.h>

#include "base/kernel.h"
#include "base/simd.h"

namespace tandem::TANDEM_ISA {
namespace {

constexpr int64_t kUnitElements = 16384;  // about 10 us of work

// Rows are contiguous along ne0; the other dimensions may have any strides.
const char* refuse(const KernelArgs& a) { return a.src[0].nb[0] == 4 ? nullptr : "rows must be contiguous"; }

// Some dimensions of a walk through two tensors at once.
struct Dim {
  int64_t n;
  int64_t to;    // step in the destination, elements
  int64_t from;  // step in the source, bytes
};

// Makes one dimension of neighbours that run on into each other; dims of one element vanish.  The first
// dimension is the rows.  Unused dimensions have one element.
void merge(Dim (&dims)[kMaxDims]) {
  int last = 0;
  for (int i = 1; i < kMaxDims; ++i) {
    const Dim d = dims[i];
    dims[i] = {1, 0, 0};
    if (d.n == 1) continue;
    if (d.to == dims[last].n * dims[last].to && d.from == dims[last].n * dims[last].from) {
      dims[last].n *= d.n;
    } else {
      dims[++last] = d;
    }
  }
}

// --- CONT
// ----------------------------------------------------------------------------------------------------------

void cont_dims(const KernelArgs& a, Dim (&dims)[kMaxDims]) {
  const NodeView &y = a.dst, &x = a.src[0];
  for (int i = 0; i < kMaxDims; ++i) dims[i] = {y.ne[i], y.nb[i] / 4, x.nb[i]};
  merge(dims);
}

int64_t elements(const NodeView& t) { return t.ne[0] * t.ne[1] * t.ne[2] * t.ne[3]; }

int64_t units(const KernelArgs& a) { return ceil_div(elements(a.dst), kUnitElements); }

// A unit is a piece of the destination; it may begin and end inside a row.
void run_cont(const KernelArgs& a, int64_t lo, int64_t hi, int) {
  Dim dims[kMaxDims];
  cont_dims(a, dims);
  const int64_t n = dims[0].n;
  const int64_t end = hi * kUnitElements < elements(a.dst) ? hi * kUnitElements : elements(a.dst);
  for (int64_t i = lo * kUnitElements; i < end;) {
    const int64_t row = i / n, column = i % n, count = n - column < end - i ? n - column : end - i;
    const int64_t i1 = row % dims[1].n, i2 = row / dims[1].n % dims[2].n, i3 = row / (dims[1].n * dims[2].n);
    const char* from = static_cast<const char*>(a.src[0].data) + column * 4 + i1 * dims[1].from +
                       i2 * dims[2].from + i3 * dims[3].from;
    memcpy(static_cast<float*>(a.dst.data) + i, from, (size_t)count * 4);
    i += count;
  }
}

// --- VIEW_BACK
// -----------------------------------------------------------------------------------------------------

struct Range {
  int64_t begin, end;
};

// The steps i in [0, d.n) for which [at + i d.to, at + i d.to + extent) meets [lo, hi).
Range meeting(const Dim& d, int64_t at, int64_t extent, int64_t lo, int64_t hi) {
  if (d.to == 0) return at < hi && at + extent > lo ? Range{0, d.n} : Range{0, 0};
  if (at >= hi) return {0, 0};
  const int64_t end = ceil_div(hi - at, d.to);
  const int64_t gap = lo - at - extent;  // from behind the first step's part to lo, where that is ahead
  return {gap < 0 ? 0 : gap / d.to + 1, end < d.n ? end : d.n};
}

void add_to(float* y, const float* x, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(y + i, add(load(y + i), load(x + i)));
  if (i < n) store_n(y + i, add(load_n(y + i, (int)(n - i)), load_n(x + i, (int)(n - i))), (int)(n - i));
}

// Each unit owns a piece of dx and looks for the parts of the window that fall on it.  The order in which
// overlapping parts add up is that of the loops, whatever the pieces.
void run_view_back(const KernelArgs& a, int64_t lo, int64_t hi, int) {
  const ViewParams& p = *static_cast<const ViewParams*>(a.params);
  const NodeView& dy = a.src[0];
  Dim dims[kMaxDims] = {{dy.ne[0], 1, 4}};
  for (int i = 1; i < kMaxDims; ++i) dims[i] = {dy.ne[i], p.nb[i - 1] / 4, dy.nb[i]};
  merge(dims);
  for (int i = 1; i < kMaxDims; ++i)  // the widest steps first, so that ranges can be narrowed from outside
    for (int j = i + 1; j < kMaxDims; ++j) {
      if (dims[j].to <= dims[i].to) continue;
      const Dim d = dims[i];
      dims[i] = dims[j];
      dims[j] = d;
    }
  // What one step of each dimension covers in dx, elements.
  const int64_t extent3 = dims[0].n, extent2 = extent3 + (dims[3].n - 1) * dims[3].to;
  const int64_t extent1 = extent2 + (dims[2].n - 1) * dims[2].to;

  float* dx = static_cast<float*>(a.dst.data);
  const char* from = static_cast<const char*>(dy.data);
  const int64_t begin = lo * kUnitElements;
  const int64_t end = hi * kUnitElements < elements(a.dst) ? hi * kUnitElements : elements(a.dst);
  memset(dx + begin, 0, (size_t)(end - begin) * 4);
  if (elements(dy) == 0) return;
  const int64_t first = p.offset_bytes / 4;
  const Range r1 = meeting(dims[1], first, extent1, begin, end);
  for (int64_t i1 = r1.begin; i1 < r1.end; ++i1) {
    const int64_t at1 = first + i1 * dims[1].to;
    const Range r2 = meeting(dims[2], at1, extent2, begin, end);
    for (int64_t i2 = r2.begin; i2 < r2.end; ++i2) {
      const int64_t at2 = at1 + i2 * dims[2].to;
      const Range r3 = meeting(dims[3], at2, extent3, begin, end);
      for (int64_t i3 = r3.begin; i3 < r3.end; ++i3) {
        const int64_t at = at2 + i3 * dims[3].to;
        const int64_t skip = at < begin ? begin - at : 0;
        const int64_t n = (at + dims[0].n < end ? at + dims[0].n : end) - at - skip;
        const char* row = from + i1 * dims[1].from + i2 * dims[2].from + i3 * dims[3].from;
        add_to(dx + at + skip, reinterpret_cast<const float*>(row) + skip, n);
      }
    }
  }
}

}  // namespace

TANDEM_KERNEL(CONT) = {refuse, nullptr, {{units, run_cont}}};
TANDEM_KERNEL(VIEW_BACK) = {refuse, nullptr, {{units, run_view_back}}};

}  // namespace tandem::TANDEM_ISA
