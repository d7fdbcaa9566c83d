// CONCAT  a {m, n1, n2, n3} F32, b {n, n1, n2, n3} F32 -> y {m + n, n1, n2, n3}: each row of a with that of b
// behind it.  Gradient: a, b (windows onto that of y).  Source: architectures.md 7 (keys of two parts).
// Difference from ggml: along dimension 0 only.
#include "graph/autodiff.h"
#include "ops/op_util.h"
#include "ops/ops.h"

namespace tandem {

Tensor concat(Tensor a, Tensor b) { return a.graph->emit(Op::CONCAT, {a, b}); }

namespace {

void infer(Node& y, Sources src) {
  expect_f32(y, src, 0);
  expect_f32(y, src, 1);
  const Shape &a = src[0]->ne, &b = src[1]->ne;
  expect_shapes(a[1] == b[1] && a[2] == b[2] && a[3] == b[3], y, src,
                "a {m, ...} and b {n, ...} must be equal in the other dimensions");
  y.ne = a;
  y.ne.ne[0] = a[0] + b[0];
}

void back(BackwardCtx& c) {
  const Tensor a = c.src(0), b = c.src(1);
  const std::array<int64_t, kMaxDims> nb = c.dout.node->nb;
  if (c.needs(0)) c.grad(0, view_strided(c.dout, a.shape(), nb, 0));
  if (c.needs(1)) c.grad(1, view_strided(c.dout, b.shape(), nb, a.ne(0) * nb[0]));
}

template <class T>
void ref(const RefArgs<T>& args) {
  const RefTensor<T>&y = args.dst, &a = args.src[0], &b = args.src[1];
  for_rows(y, [&](int64_t i1, int64_t i2, int64_t i3) {
    for (int64_t i = 0; i < a.ne[0]; ++i) y(i, i1, i2, i3) = a(i, i1, i2, i3);
    for (int64_t i = 0; i < b.ne[0]; ++i) y(a.ne[0] + i, i1, i2, i3) = b(i, i1, i2, i3);
  });
}

}  // namespace

extern const OpDef CONCAT_def{
    .name = "CONCAT", .n_src = 2, .infer = infer, .backward = back, TANDEM_REF(ref)};

}  // namespace tandem
