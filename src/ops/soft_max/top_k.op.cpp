// TOP_K  x {n, ...} F32 -> ids {k, ...} I32: where the k largest of each row are, larger first, the smaller
// index on ties.  With groups (equal runs of a row), only numbers of the best groups are looked at, the score
// of a group being the sum of its largest numbers.  Numbers are finite. Gradient: none.  Source:
// architectures.md 1.6.  Difference from ggml: the order of the result is fixed; groups.
#include "ops/soft_max/top_k.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <vector>

#include "ops/op_util.h"
#include "ops/ops.h"

namespace tandem {

Tensor top_k(Tensor x, int k) { return top_k(x, k, {1, 1, 1}); }

Tensor top_k(Tensor x, int k, const TopKGroups& groups) {
  return x.graph->emit(Op::TOP_K, {x}, TopKParams{k, groups.n_group, groups.n_used, groups.n_best});
}

namespace {

void infer(Node& y, Sources src) {
  const TopKParams& p = params_of<TopKParams>(y);
  const int64_t k = p.k, n = src[0]->ne[0];
  expect_f32(y, src, 0);
  if (k < 1 || k > n) fail(Code::Internal, "TOP_K: {} of the {} numbers of a row were asked for", k, n);
  if (p.n_group < 1 || n % p.n_group || p.n_used < 1 || p.n_used > p.n_group || p.n_best < 1 ||
      p.n_best > n / p.n_group || k > n / p.n_group * p.n_used) {
    fail(Code::Internal,
         "TOP_K: {} of {} numbers were asked for, from {} of {} groups by the best {} of each", k, n,
         p.n_used, p.n_group, p.n_best);
  }
  y.type = DType::I32;
  y.ne = src[0]->ne;
  y.ne.ne[0] = k;
}

// Indices of the numbers, the largest first, the smaller index on ties.
std::vector<int32_t> descending(const std::vector<double>& x) {
  std::vector<int32_t> order(x.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t i, int32_t j) {
    return x[static_cast<size_t>(i)] > x[static_cast<size_t>(j)];
  });
  return order;
}

// The groups of a row that take part.
std::vector<bool> best_groups(const std::vector<double>& row, const TopKParams& p) {
  const auto size = static_cast<int64_t>(row.size()) / p.n_group;
  std::vector<double> scores;
  for (int64_t g = 0; g < p.n_group; ++g) {
    std::vector<double> group(row.begin() + g * size, row.begin() + (g + 1) * size);
    std::sort(group.begin(), group.end(), std::greater<>());
    scores.push_back(std::accumulate(group.begin(), group.begin() + p.n_best, 0.0));
  }
  const std::vector<int32_t> order = descending(scores);
  std::vector<bool> taken(scores.size(), false);
  for (int64_t i = 0; i < p.n_used; ++i) taken[static_cast<size_t>(order[static_cast<size_t>(i)])] = true;
  return taken;
}

template <class T>
void ref(const RefArgs<T>& args) {
  const RefTensor<T>& x = args.src[0];
  const TopKParams& p = args.template params<TopKParams>();
  std::vector<double> row(static_cast<size_t>(x.ne[0]));
  for_rows(args.dst, [&](int64_t a, int64_t b, int64_t d) {
    for (int64_t i = 0; i < x.ne[0]; ++i) row[static_cast<size_t>(i)] = re(x(i, a, b, d));
    const std::vector<bool> taken = best_groups(row, p);
    int64_t n = 0;
    for (const int32_t i : descending(row)) {
      if (n < args.dst.ne[0] && taken[static_cast<size_t>(i / (x.ne[0] / p.n_group))])
        args.dst.id(n++, a, b, d) = i;
    }
  });
}

}  // namespace

extern const OpDef TOP_K_def{
    .name = "TOP_K", .n_src = 1, .infer = infer, .backward = kNoGrad, .no_grad = 1, TANDEM_REF(ref)};

}  // namespace tandem
