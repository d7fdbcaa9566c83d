// SWIGLU  gate, up F32 of one shape -> silu(gate) * up, silu(x) = x / (1 + exp(-x)).
// SWIGLU_BACK  gate, up, dh -> {2 * elements}: the gradient of gate, then that of up.
// Gradient: gate, up.  Source: architectures.md 1.5, gradients.md 3.  Difference from ggml: its GLU op takes
// the kind as a parameter, and its backward makes one gradient of silu alone.
#include "graph/autodiff.h"
#include "ops/op_util.h"
#include "ops/ops.h"

namespace tandem {

Tensor swiglu(Tensor gate, Tensor up) { return gate.graph->emit(Op::SWIGLU, {gate, up}); }

Tensor swiglu_back(Tensor gate, Tensor up, Tensor dh) {
  return gate.graph->emit(Op::SWIGLU_BACK, {gate, up, dh});
}

namespace {

void infer(Node& y, Sources src) {
  expect_f32(y, src, 0);
  expect_f32(y, src, 1);
  expect_same_shape(y, src, 0, 1);
  y.ne = src[0]->ne;
}

void infer_back(Node& y, Sources src) {
  for (int i = 0; i < 3; ++i) expect_f32(y, src, i);
  expect_same_shape(y, src, 0, 1);
  expect_same_shape(y, src, 0, 2);
  y.ne = {2 * src[0]->elements()};
}

void back(BackwardCtx& c) {
  if (!c.needs(0) && !c.needs(1)) return;
  const Tensor packed = swiglu_back(c.src(0), c.src(1), c.dout);
  const Shape& ne = c.out.shape();
  if (c.needs(0)) c.grad(0, view(packed, ne, 0));
  if (c.needs(1)) c.grad(1, view(packed, ne, row_bytes(DType::F32, ne.elements())));
}

template <class T>
T sigmoid(T x) {
  return T(1) / (T(1) + std::exp(-x));
}

template <class T>
void ref(const RefArgs<T>& args) {
  const RefTensor<T>&gate = args.src[0], &up = args.src[1];
  for_rows(args.dst, [&](int64_t a, int64_t b, int64_t d) {
    for (int64_t i = 0; i < gate.ne[0]; ++i) {
      const T x = gate(i, a, b, d);
      args.dst(i, a, b, d) = x * sigmoid(x) * up(i, a, b, d);
    }
  });
}

template <class T>
void ref_back(const RefArgs<T>& args) {
  const RefTensor<T>&gate = args.src[0], &up = args.src[1], &dh = args.src[2];
  int64_t at = 0;
  const int64_t at_up = gate.ne[0] * gate.rows();
  for_rows(gate, [&](int64_t a, int64_t b, int64_t d) {
    for (int64_t i = 0; i < gate.ne[0]; ++i, ++at) {
      const T x = gate(i, a, b, d), s = sigmoid(x), g = dh(i, a, b, d);
      args.dst(at) = g * up(i, a, b, d) * s * (T(1) + x * (T(1) - s));
      args.dst(at_up + at) = g * x * s;
    }
  });
}

}  // namespace

extern const OpDef SWIGLU_def{
    .name = "SWIGLU", .n_src = 2, .infer = infer, .backward = back, .inplace = 3, TANDEM_REF(ref)};
extern const OpDef SWIGLU_BACK_def{
    .name = "SWIGLU_BACK", .n_src = 3, .infer = infer_back, .backward = kNoGrad, TANDEM_REF(ref_back)};

}  // namespace tandem
