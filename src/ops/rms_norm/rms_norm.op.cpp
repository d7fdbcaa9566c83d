// RMS_NORM  x {n, ...} F32 -> y, same shape.  y = x r, r = 1 / sqrt(mean(x^2) + eps), rows along ne0.
// RMS_NORM_BACK  dy, x -> dx = r (dy - x r^2 mean(x dy)).
// Gradient: x.  Source: architectures.md 1.2, gradients.md 4.  Difference from ggml: none.
#include "ops/rms_norm/rms_norm.h"

#include "graph/autodiff.h"
#include "ops/op_util.h"
#include "ops/ops.h"

namespace tandem {

Tensor rms_norm(Tensor x, float eps) { return x.graph->emit(Op::RMS_NORM, {x}, RmsNormParams{eps}); }

Tensor rms_norm_back(Tensor dy, Tensor x, float eps) {
  return x.graph->emit(Op::RMS_NORM_BACK, {dy, x}, RmsNormParams{eps});
}

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
  if (c.needs(0)) c.grad(0, rms_norm_back(c.dout, c.src(0), params_of<RmsNormParams>(*c.out.node).eps));
}

template <class T>
T inverse_rms(const RefTensor<T>& x, int64_t a, int64_t b, int64_t d, float eps) {
  T sum = 0;
  for (int64_t i = 0; i < x.ne[0]; ++i) sum += x(i, a, b, d) * x(i, a, b, d);
  return T(1) / std::sqrt(sum / T(x.ne[0]) + T(eps));
}

template <class T>
void ref(const RefArgs<T>& args) {
  const RefTensor<T>& x = args.src[0];
  const float eps = args.template params<RmsNormParams>().eps;
  for_rows(args.dst, [&](int64_t a, int64_t b, int64_t d) {
    const T r = inverse_rms(x, a, b, d, eps);
    for (int64_t i = 0; i < x.ne[0]; ++i) args.dst(i, a, b, d) = x(i, a, b, d) * r;
  });
}

template <class T>
void ref_back(const RefArgs<T>& args) {
  const RefTensor<T>&dy = args.src[0], &x = args.src[1];
  const float eps = args.template params<RmsNormParams>().eps;
  for_rows(args.dst, [&](int64_t a, int64_t b, int64_t d) {
    const T r = inverse_rms(x, a, b, d, eps);
    T dot = 0;
    for (int64_t i = 0; i < x.ne[0]; ++i) dot += x(i, a, b, d) * dy(i, a, b, d);
    const T k = dot / T(x.ne[0]) * r * r;
    for (int64_t i = 0; i < x.ne[0]; ++i) args.dst(i, a, b, d) = r * (dy(i, a, b, d) - x(i, a, b, d) * k);
  });
}

}  // namespace

extern const OpDef RMS_NORM_def{
    .name = "RMS_NORM", .n_src = 1, .infer = infer, .backward = back, .inplace = 1, TANDEM_REF(ref)};
extern const OpDef RMS_NORM_BACK_def{.name = "RMS_NORM_BACK",
                                     .n_src = 2,
                                     .infer = infer_back,
                                     .backward = kNoGrad,
                                     .inplace = 1,
                                     TANDEM_REF(ref_back)};

}  // namespace tandem
