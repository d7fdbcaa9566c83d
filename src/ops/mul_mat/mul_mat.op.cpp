// MUL_MAT       w {K, N}, x {K, T, ...} F32 -> y {N, T, ...}.  y = w x.
// MUL_MAT_BACK  w {K, N}, dy {N, T, ...} -> dx {K, T, ...}.    dx = w^T dy.
// OUT_PROD      a {M, T, ...}, b {N, T, ...} -> {M, N}.        sum over t of a_t b_t^T.
// Gradient: x, and w if it is F32 (an adapter); a quantized weight never has one.  Source:
// gradients.md 2.1, 12.1. Difference from ggml: the input gradient is an op of its own that reads w as it
// lies in the file.
#include "ops/mul_mat/mul_mat.h"

#include "graph/autodiff.h"
#include "ops/op_util.h"
#include "ops/ops.h"

namespace tandem {

Tensor mul_mat(Tensor w, Tensor x, Precision precision) {
  return x.graph->emit(Op::MUL_MAT, {w, x}, MulMatParams{precision});
}

Tensor mul_mat(Tensor w, Tensor x) { return mul_mat(w, x, x.graph->precision); }

Tensor mul_mat_back(Tensor w, Tensor dy, Precision precision) {
  return dy.graph->emit(Op::MUL_MAT_BACK, {w, dy}, MulMatParams{precision});
}

Tensor out_prod(Tensor a, Tensor b) { return a.graph->emit(Op::OUT_PROD, {a, b}); }

namespace {

void expect_weight(const Node& y, Sources src) {
  const Node& w = *src[0];
  if (!decodable(w.type)) {
    fail(Code::Unsupported, "{}: tensor {} is {}, a type this engine knows but cannot decode", op_name(y.op),
         w.name, name_of(w.type));
  }
}

void infer(Node& y, Sources src) {
  expect_weight(y, src);
  expect_f32(y, src, 1);
  const Shape &w = src[0]->ne, &x = src[1]->ne;
  expect_shapes(w[0] == x[0] && w[2] == 1 && w[3] == 1, y, src, "w is {K, N} and x {K, T, ...}");
  y.ne = {w[1], x[1], x[2], x[3]};
}

void infer_back(Node& y, Sources src) {
  expect_weight(y, src);
  expect_trainable(y, params_of<MulMatParams>(y).precision);
  expect_f32(y, src, 1);
  const Shape &w = src[0]->ne, &dy = src[1]->ne;
  expect_shapes(w[1] == dy[0] && w[2] == 1 && w[3] == 1, y, src, "w is {K, N} and dy {N, T, ...}");
  y.ne = {w[0], dy[1], dy[2], dy[3]};
}

void infer_out_prod(Node& y, Sources src) {
  expect_f32(y, src, 0);
  expect_f32(y, src, 1);
  const Shape &a = src[0]->ne, &b = src[1]->ne;
  expect_shapes(a[1] == b[1] && a[2] == b[2] && a[3] == b[3], y, src, "a is {M, T, ...} and b {N, T, ...}");
  y.ne = {a[0], b[0]};
}

void back(BackwardCtx& c) {
  const Precision precision = params_of<MulMatParams>(*c.out.node).precision;
  expect_trainable(*c.out.node, precision);
  if (c.needs(0)) c.grad(0, out_prod(c.src(1), c.dout));
  if (c.needs(1)) c.grad(1, mul_mat_back(c.src(0), c.dout, precision));
}

template <class T>
void ref(const RefArgs<T>& args) {
  const RefTensor<T>&w = args.src[0], &x = args.src[1];
  for_rows(args.dst, [&](int64_t t, int64_t b, int64_t d) {
    for (int64_t n = 0; n < w.ne[1]; ++n) {
      T sum = 0;
      for (int64_t k = 0; k < w.ne[0]; ++k) sum += w(k, n) * x(k, t, b, d);
      args.dst(n, t, b, d) = sum;
    }
  });
}

template <class T>
void ref_back(const RefArgs<T>& args) {
  const RefTensor<T>&w = args.src[0], &dy = args.src[1];
  for_rows(args.dst, [&](int64_t t, int64_t b, int64_t d) {
    for (int64_t k = 0; k < w.ne[0]; ++k) {
      T sum = 0;
      for (int64_t n = 0; n < w.ne[1]; ++n) sum += w(k, n) * dy(n, t, b, d);
      args.dst(k, t, b, d) = sum;
    }
  });
}

template <class T>
void ref_out_prod(const RefArgs<T>& args) {
  const RefTensor<T>&a = args.src[0], &b = args.src[1];
  for (int64_t n = 0; n < b.ne[0]; ++n) {
    for (int64_t m = 0; m < a.ne[0]; ++m) {
      T sum = 0;
      for_rows(a, [&](int64_t t, int64_t i2, int64_t i3) { sum += a(m, t, i2, i3) * b(n, t, i2, i3); });
      args.dst(m, n) = sum;
    }
  }
}

}  // namespace

extern const OpDef MUL_MAT_def{
    .name = "MUL_MAT", .n_src = 2, .infer = infer, .backward = back, TANDEM_REF(ref)};
extern const OpDef MUL_MAT_BACK_def{
    .name = "MUL_MAT_BACK", .n_src = 2, .infer = infer_back, .backward = kNoGrad, TANDEM_REF(ref_back)};
extern const OpDef OUT_PROD_def{
    .name = "OUT_PROD", .n_src = 2, .infer = infer_out_prod, .backward = kNoGrad, TANDEM_REF(ref_out_prod)};

}  // namespace tandem
