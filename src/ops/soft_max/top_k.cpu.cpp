#include "ops/soft_max/top_k.h"

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

const TopKParams& params(const KernelArgs& a) { return *static_cast<const TopKParams*>(a.params); }

// Per thread: the score of each group, the groups that take part, and the best numbers of one.
ScratchBytes scratch(const KernelArgs& a) {
  const TopKParams& p = params(a);
  return {0, (size_t)p.n_group * sizeof(float) + (size_t)(p.n_used + p.n_best) * sizeof(int32_t)};
}

// Adds x[begin, end) to ids[0, n), which are sorted and at most k; an equal number that comes later never
// moves ahead.  Returns how many there are then.
int64_t take_best(const float* x, int64_t begin, int64_t end, int32_t* ids, int64_t n, int64_t k) {
  for (int64_t i = begin; i < end; ++i) {
    if (n == k && !(x[i] > x[ids[k - 1]])) continue;
    int64_t at = n < k ? n++ : k - 1;
    for (; at > 0 && x[i] > x[ids[at - 1]]; --at) ids[at] = ids[at - 1];
    ids[at] = (int32_t)i;
  }
  return n;
}

// The sum of the n largest numbers, the largest first.  ids: room for n.
float sum_of_best(const float* x, int64_t size, int32_t* ids, int64_t n) {
  take_best(x, 0, size, ids, 0, n);
  float sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += x[ids[i]];
  return sum;
}

bool contains(const int32_t* ids, int64_t n, int64_t id) {
  for (int64_t i = 0; i < n; ++i)
    if (ids[i] == id) return true;
  return false;
}

void top_k_in_groups(const TopKParams& p, const float* x, int64_t n, int32_t* ids, char* scratch_bytes) {
  float* scores = reinterpret_cast<float*>(scratch_bytes);
  int32_t *used = reinterpret_cast<int32_t*>(scores + p.n_group), *best = used + p.n_used;
  const int64_t size = n / p.n_group;
  for (int64_t g = 0; g < p.n_group; ++g) scores[g] = sum_of_best(x + g * size, size, best, p.n_best);
  take_best(scores, 0, p.n_group, used, 0, p.n_used);
  int64_t kept = 0;
  for (int64_t g = 0; g < p.n_group; ++g) {
    if (contains(used, p.n_used, g)) kept = take_best(x, g * size, (g + 1) * size, ids, kept, p.k);
  }
}

void run(const KernelArgs& a, int64_t lo, int64_t hi, int thread) {
  const int64_t per = rows_per_unit(a), end = hi * per < n_rows(a) ? hi * per : n_rows(a), k = a.dst.ne[0];
  const TopKParams& p = params(a);
  for (int64_t r = lo * per; r < end; ++r) {
    int32_t* ids = static_cast<int32_t*>(a.dst.data) + r * k;
    if (p.n_used == p.n_group) {
      take_best(row(a.src[0], r), 0, a.src[0].ne[0], ids, 0, k);
    } else {
      top_k_in_groups(p, row(a.src[0], r), a.src[0].ne[0], ids,
                      a.thread_scratch + (size_t)thread * a.thread_scratch_stride);
    }
  }
}

}  // namespace

TANDEM_KERNEL(TOP_K) = {refuse, scratch, {{units, run}}};

}  // namespace tandem::TANDEM_ISA
