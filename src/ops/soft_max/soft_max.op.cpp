// SOFT_MAX  x {n, ...} F32 -> y, same shape: y = exp(x - max) / sum of exp(x - max), rows along ne0.
// SOFT_MAX_BACK  dy, y -> dx = y (dy - <y, dy>).
// Gradient: x.  Source: gradients.md 6.1.  Difference from ggml: no scale, mask, bias or sinks.
#include <algorithm>

#include "graph/autodiff.h"
#include "ops/op_util.h"
#include "ops/ops.h"

namespace tandem {

Tensor soft_max(Tensor x) { return x.graph->emit(Op::SOFT_MAX, {x}); }

Tensor soft_max_back(Tensor dy, Tensor y) { return y.graph->emit(Op::SOFT_MAX_BACK, {dy, y}); }

namespace {

void infer(Node& y, Sources src) {
  expect_f32(y, src, 0);
  y.ne = src[0]->ne;
}

void infer_back(Node& y, Sources src) {
  expect_f32(y, src, 0);
  expect_f32(y, src, 1);
  expect_same_shape(y, src, 0, 1);
  y.ne = src[0]->ne;
}

void back(BackwardCtx& c) {
  if (c.needs(0)) c.grad(0, soft_max_back(c.dout, c.out));
}

template <class T>
void ref(const RefArgs<T>& args) {
  const RefTensor<T>&x = args.src[0], &y = args.dst;
  for_rows(y, [&](int64_t a, int64_t b, int64_t d) {
    double largest = re(x(0, a, b, d));
    for (int64_t i = 1; i < x.ne[0]; ++i) largest = std::max(largest, re(x(i, a, b, d)));
    T sum = 0;
    for (int64_t i = 0; i < x.ne[0]; ++i) {
      y(i, a, b, d) = std::exp(x(i, a, b, d) - T(largest));
      sum += y(i, a, b, d);
    }
    for (int64_t i = 0; i < x.ne[0]; ++i) y(i, a, b, d) /= sum;
  });
}

template <class T>
void ref_back(const RefArgs<T>& args) {
  const RefTensor<T>&dy = args.src[0], &y = args.src[1], &dx = args.dst;
  for_rows(dx, [&](int64_t a, int64_t b, int64_t d) {
    T dot = 0;
    for (int64_t i = 0; i < y.ne[0]; ++i) dot += y(i, a, b, d) * dy(i, a, b, d);
    for (int64_t i = 0; i < y.ne[0]; ++i) dx(i, a, b, d) = y(i, a, b, d) * (dy(i, a, b, d) - dot);
  });
}

}  // namespace

extern const OpDef SOFT_MAX_def{
    .name = "SOFT_MAX", .n_src = 1, .infer = infer, .backward = back, .inplace = 1, TANDEM_REF(ref)};
extern const OpDef SOFT_MAX_BACK_def{.name = "SOFT_MAX_BACK",
                                     .n_src = 2,
                                     .infer = infer_back,
                                     .backward = kNoGrad,
                                     .inplace = 3,
                                     TANDEM_REF(ref_back)};

}  // namespace tandem
