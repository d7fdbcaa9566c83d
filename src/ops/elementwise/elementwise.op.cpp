// ADD  a + b;  MUL  a * b.  F32, b tiled up to a's shape (every a.ne[i] a multiple of b.ne[i]) -> a's shape.
// SCALE  x * s, s a number.
// Gradients: a and b, b's folded over its tiles; x.  Source: gradients.md 2.4.  Difference from ggml: SCALE
// has no bias.
#include "ops/elementwise/elementwise.h"

#include "graph/autodiff.h"
#include "ops/op_util.h"
#include "ops/ops.h"

namespace tandem {

Tensor add(Tensor a, Tensor b) { return a.graph->emit(Op::ADD, {a, b}); }

Tensor mul(Tensor a, Tensor b) { return a.graph->emit(Op::MUL, {a, b}); }

Tensor scale(Tensor x, float s) { return x.graph->emit(Op::SCALE, {x}, ScaleParams{s}); }

namespace {

void infer_binary(Node& y, Sources src) {
  expect_f32(y, src, 0);
  expect_f32(y, src, 1);
  bool tiles = true;
  for (int i = 0; i < kMaxDims; ++i) {
    const int64_t n = src[0]->ne[i], n_tile = src[1]->ne[i];
    tiles = tiles && (n_tile > 0 ? n % n_tile == 0 : n == 0);
  }
  expect_shapes(tiles, y, src, "source 1 must tile up to the shape of source 0");
  y.ne = src[0]->ne;
}

// t {a's shape} summed over the tiles of b.
Tensor folded(Tensor t, const Shape& ne) { return t.shape() == ne ? t : repeat_back(t, ne); }

void back_add(BackwardCtx& c) {
  if (c.needs(0)) c.grad(0, c.dout);
  if (c.needs(1)) c.grad(1, folded(c.dout, c.src(1).shape()));
}

void back_mul(BackwardCtx& c) {
  if (c.needs(0)) c.grad(0, mul(c.dout, c.src(1)));
  if (c.needs(1)) c.grad(1, folded(mul(c.dout, c.src(0)), c.src(1).shape()));
}

template <class T, class F>
void ref_binary(const RefArgs<T>& args, F f) {
  const RefTensor<T>&x = args.src[0], &y = args.src[1];
  for_rows(args.dst, [&](int64_t a, int64_t b, int64_t d) {
    for (int64_t i = 0; i < x.ne[0]; ++i) {
      args.dst(i, a, b, d) = f(x(i, a, b, d), y(i % y.ne[0], a % y.ne[1], b % y.ne[2], d % y.ne[3]));
    }
  });
}

template <class T>
void ref_add(const RefArgs<T>& args) {
  ref_binary(args, [](T x, T y) { return x + y; });
}

template <class T>
void ref_mul(const RefArgs<T>& args) {
  ref_binary(args, [](T x, T y) { return x * y; });
}

void infer_scale(Node& y, Sources src) {
  expect_f32(y, src, 0);
  y.ne = src[0]->ne;
}

void back_scale(BackwardCtx& c) {
  if (c.needs(0)) c.grad(0, scale(c.dout, params_of<ScaleParams>(*c.out.node).s));
}

template <class T>
void ref_scale(const RefArgs<T>& args) {
  const RefTensor<T>& x = args.src[0];
  const T s = T(args.template params<ScaleParams>().s);
  for_rows(args.dst, [&](int64_t a, int64_t b, int64_t d) {
    for (int64_t i = 0; i < x.ne[0]; ++i) args.dst(i, a, b, d) = x(i, a, b, d) * s;
  });
}

}  // namespace

extern const OpDef ADD_def{.name = "ADD",
                           .n_src = 2,
                           .infer = infer_binary,
                           .backward = back_add,
                           .inplace = 3,
                           TANDEM_REF(ref_add)};
extern const OpDef MUL_def{.name = "MUL",
                           .n_src = 2,
                           .infer = infer_binary,
                           .backward = back_mul,
                           .inplace = 3,
                           TANDEM_REF(ref_mul)};
extern const OpDef SCALE_def{.name = "SCALE",
                             .n_src = 1,
                             .infer = infer_scale,
                             .backward = back_scale,
                             .inplace = 1,
                             TANDEM_REF(ref_scale)};

}  // namespace tandem
