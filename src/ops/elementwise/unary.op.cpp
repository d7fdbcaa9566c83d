// SIGMOID   x F32 -> 1 / (1 + exp(-x)).           SIGMOID_BACK   dy, y -> dy y (1 - y), y the result.
// SILU      x F32 -> x sigmoid(x).                SILU_BACK      dy, x -> dy s (1 + x (1 - s)), s =
// sigmoid(x). SOFTPLUS  x F32 -> max(x, 0) + ln(1 + exp(-|x|)).  SOFTPLUS_BACK  dy, x -> dy sigmoid(x).
// Gradient: x.  Source: architectures.md 1.5, 1.6, 2.5; gradients.md 3, 10.1.  Difference from ggml: its
// UNARY op takes the kind as a parameter.
#include "graph/autodiff.h"
#include "ops/op_util.h"
#include "ops/ops.h"

namespace tandem {

Tensor sigmoid(Tensor x) { return x.graph->emit(Op::SIGMOID, {x}); }
Tensor sigmoid_back(Tensor dy, Tensor y) { return dy.graph->emit(Op::SIGMOID_BACK, {dy, y}); }
Tensor silu(Tensor x) { return x.graph->emit(Op::SILU, {x}); }
Tensor silu_back(Tensor dy, Tensor x) { return dy.graph->emit(Op::SILU_BACK, {dy, x}); }
Tensor softplus(Tensor x) { return x.graph->emit(Op::SOFTPLUS, {x}); }
Tensor softplus_back(Tensor dy, Tensor x) { return dy.graph->emit(Op::SOFTPLUS_BACK, {dy, x}); }

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

template <class T>
T logistic(T x) {
  return T(1) / (T(1) + std::exp(-x));
}

// Of large positive x through exp(-x), which stays finite.
template <class T>
T soft_plus(T x) {
  return re(x) > 0 ? x + std::log(T(1) + std::exp(-x)) : std::log(T(1) + std::exp(x));
}

// dst = of(src...), element by element.
template <class T, class F>
void map1(const RefArgs<T>& args, F of) {
  for_rows(args.dst, [&](int64_t a, int64_t b, int64_t c) {
    for (int64_t i = 0; i < args.dst.ne[0]; ++i) args.dst(i, a, b, c) = of(args.src[0](i, a, b, c));
  });
}
template <class T, class F>
void map2(const RefArgs<T>& args, F of) {
  for_rows(args.dst, [&](int64_t a, int64_t b, int64_t c) {
    for (int64_t i = 0; i < args.dst.ne[0]; ++i)
      args.dst(i, a, b, c) = of(args.src[0](i, a, b, c), args.src[1](i, a, b, c));
  });
}

void sigmoid_rule(BackwardCtx& c) {
  if (c.needs(0)) c.grad(0, sigmoid_back(c.dout, c.out));
}
void silu_rule(BackwardCtx& c) {
  if (c.needs(0)) c.grad(0, silu_back(c.dout, c.src(0)));
}
void softplus_rule(BackwardCtx& c) {
  if (c.needs(0)) c.grad(0, softplus_back(c.dout, c.src(0)));
}

template <class T>
void sigmoid_ref(const RefArgs<T>& args) {
  map1(args, [](T x) { return logistic(x); });
}
template <class T>
void sigmoid_back_ref(const RefArgs<T>& args) {
  map2(args, [](T dy, T y) { return dy * y * (T(1) - y); });
}
template <class T>
void silu_ref(const RefArgs<T>& args) {
  map1(args, [](T x) { return x * logistic(x); });
}
template <class T>
void silu_back_ref(const RefArgs<T>& args) {
  map2(args, [](T dy, T x) {
    const T s = logistic(x);
    return dy * s * (T(1) + x * (T(1) - s));
  });
}
template <class T>
void softplus_ref(const RefArgs<T>& args) {
  map1(args, [](T x) { return soft_plus(x); });
}
template <class T>
void softplus_back_ref(const RefArgs<T>& args) {
  map2(args, [](T dy, T x) { return dy * logistic(x); });
}

}  // namespace

extern const OpDef SIGMOID_def{.name = "SIGMOID",
                               .n_src = 1,
                               .infer = infer,
                               .backward = sigmoid_rule,
                               .inplace = 1,
                               TANDEM_REF(sigmoid_ref)};
extern const OpDef SIGMOID_BACK_def{.name = "SIGMOID_BACK",
                                    .n_src = 2,
                                    .infer = infer_back,
                                    .backward = kNoGrad,
                                    .inplace = 3,
                                    TANDEM_REF(sigmoid_back_ref)};
extern const OpDef SILU_def{
    .name = "SILU", .n_src = 1, .infer = infer, .backward = silu_rule, .inplace = 1, TANDEM_REF(silu_ref)};
extern const OpDef SILU_BACK_def{.name = "SILU_BACK",
                                 .n_src = 2,
                                 .infer = infer_back,
                                 .backward = kNoGrad,
                                 .inplace = 3,
                                 TANDEM_REF(silu_back_ref)};
extern const OpDef SOFTPLUS_def{.name = "SOFTPLUS",
                                .n_src = 1,
                                .infer = infer,
                                .backward = softplus_rule,
                                .inplace = 1,
                                TANDEM_REF(softplus_ref)};
extern const OpDef SOFTPLUS_BACK_def{.name = "SOFTPLUS_BACK",
                                     .n_src = 2,
                                     .infer = infer_back,
                                     .backward = kNoGrad,
                                     .inplace = 3,
                                     TANDEM_REF(softplus_back_ref)};

}  // namespace tandem
