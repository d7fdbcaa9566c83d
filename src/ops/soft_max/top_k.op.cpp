// TOP_K  x {n, ...} F32 -> ids {k, ...} I32: where the k largest of each row are, larger first, the smaller
// index on ties.  Numbers are finite. Gradient: none.  Source: architectures.md 1.6.  Difference from ggml:
// the order of the result is fixed.
#include "ops/soft_max/top_k.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "ops/op_util.h"
#include "ops/ops.h"

namespace tandem {

Tensor top_k(Tensor x, int k) { return x.graph->emit(Op::TOP_K, {x}, TopKParams{k}); }

namespace {

void infer(Node& y, Sources src) {
  const int64_t k = params_of<TopKParams>(y).k, n = src[0]->ne[0];
  expect_f32(y, src, 0);
  if (k < 1 || k > n) fail(Code::Internal, "TOP_K: {} of the {} numbers of a row were asked for", k, n);
  y.type = DType::I32;
  y.ne = src[0]->ne;
  y.ne.ne[0] = k;
}

template <class T>
void ref(const RefArgs<T>& args) {
  const RefTensor<T>& x = args.src[0];
  std::vector<int32_t> order(static_cast<size_t>(x.ne[0]));
  for_rows(args.dst, [&](int64_t a, int64_t b, int64_t d) {
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t i, int32_t j) { return re(x(i, a, b, d)) > re(x(j, a, b, d)); });
    for (int64_t i = 0; i < args.dst.ne[0]; ++i) args.dst.id(i, a, b, d) = order[static_cast<size_t>(i)];
  });
}

}  // namespace

extern const OpDef TOP_K_def{
    .name = "TOP_K", .n_src = 1, .infer = infer, .backward = kNoGrad, .no_grad = 1, TANDEM_REF(ref)};

}  // namespace tandem
