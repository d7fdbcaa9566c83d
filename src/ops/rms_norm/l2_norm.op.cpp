// L2_NORM  x {n, ...} F32 -> y, same shape.  y = x / max(||x||, eps), rows along ne0.
// L2_NORM_BACK  dy, x -> dx = r (dy - y (y.dy)), r = 1 / ||x||; dy / eps for rows with ||x|| <= eps.
// Gradient: x.  Source: architectures.md 1.2, gradients.md 4.  Difference from ggml: none.
#include "ops/rms_norm/l2_norm.h"

#include "graph/autodiff.h"
#include "ops/op_util.h"
#include "ops/ops.h"

namespace tandem {

Tensor l2_norm(Tensor x, float eps) { return x.graph->emit(Op::L2_NORM, {x}, L2NormParams{eps}); }

Tensor l2_norm_back(Tensor dy, Tensor x, float eps) {
  return x.graph->emit(Op::L2_NORM_BACK, {dy, x}, L2NormParams{eps});
}

namespace {

void expect_eps(const Node& y) {
  const float eps = params_of<L2NormParams>(y).eps;
  if (!(eps > 0)) fail(Code::Internal, "{}: eps is {}, above 0 is needed", op_name(y.op), eps);
}

void infer(Node& y, Sources src) {
  expect_f32(y, src, 0);
  expect_eps(y);
  y.ne = src[0]->ne;
}

void infer_back(Node& y, Sources src) {
  expect_f32(y, src, 0);
  expect_f32(y, src, 1);
  expect_eps(y);
  expect_same_shape(y, src, 0, 1);
  y.ne = src[0]->ne;
}

void back(BackwardCtx& c) {
  if (c.needs(0)) c.grad(0, l2_norm_back(c.dout, c.src(0), params_of<L2NormParams>(*c.out.node).eps));
}

// 1 / max(||x||, eps), and which of the two it was.
template <class T>
struct InverseNorm {
  InverseNorm(const RefTensor<T>& x, int64_t a, int64_t b, int64_t d, float eps) {
    T sum = 0;
    for (int64_t i = 0; i < x.ne[0]; ++i) sum += x(i, a, b, d) * x(i, a, b, d);
    clamped = !(re(sum) > static_cast<double>(eps) * static_cast<double>(eps));
    r = T(1) / (clamped ? T(eps) : std::sqrt(sum));
  }
  bool clamped;
  T r;
};

template <class T>
void ref(const RefArgs<T>& args) {
  const RefTensor<T>& x = args.src[0];
  const float eps = args.template params<L2NormParams>().eps;
  for_rows(args.dst, [&](int64_t a, int64_t b, int64_t d) {
    const T r = InverseNorm<T>(x, a, b, d, eps).r;
    for (int64_t i = 0; i < x.ne[0]; ++i) args.dst(i, a, b, d) = x(i, a, b, d) * r;
  });
}

template <class T>
void ref_back(const RefArgs<T>& args) {
  const RefTensor<T>&dy = args.src[0], &x = args.src[1];
  const float eps = args.template params<L2NormParams>().eps;
  for_rows(args.dst, [&](int64_t a, int64_t b, int64_t d) {
    const InverseNorm<T> norm(x, a, b, d, eps);
    T dot = 0;  // of y and dy
    for (int64_t i = 0; i < x.ne[0]; ++i) dot += x(i, a, b, d) * norm.r * dy(i, a, b, d);
    if (norm.clamped) dot = T(0);
    for (int64_t i = 0; i < x.ne[0]; ++i) {
      args.dst(i, a, b, d) = norm.r * (dy(i, a, b, d) - x(i, a, b, d) * norm.r * dot);
    }
  });
}

}  // namespace

extern const OpDef L2_NORM_def{
    .name = "L2_NORM", .n_src = 1, .infer = infer, .backward = back, .inplace = 1, TANDEM_REF(ref)};
extern const OpDef L2_NORM_BACK_def{.name = "L2_NORM_BACK",
                                    .n_src = 2,
                                    .infer = infer_back,
                                    .backward = kNoGrad,
                                    .inplace = 1,
                                    TANDEM_REF(ref_back)};

}  // namespace tandem
