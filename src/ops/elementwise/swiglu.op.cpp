// SWIGLU  gate, up F32 of one shape -> silu(gate) * up, silu(x) = x / (1 + exp(-x)).
// SWIGLU_BACK  gate, up, dh -> {2 * elements}: the gradient of gate, then that of up.
// SWIGLU_OAI  the same shapes -> g sigmoid(alpha g) (u + 1), g = min(gate, limit), u = up within +- limit.
// SWIGLU_OAI_BACK  as SWIGLU_BACK; beyond a clamp the gradient is 0, at its end it is not.
// Gradient: gate, up.  Source: architectures.md 1.5, gradients.md 3.  Difference from ggml: its GLU op takes
// the kind as a parameter, and its backward makes one gradient of silu alone and none of the clamped kind.
#include "graph/autodiff.h"
#include "ops/elementwise/elementwise.h"
#include "ops/op_util.h"
#include "ops/ops.h"

namespace tandem {

Tensor swiglu(Tensor gate, Tensor up) { return gate.graph->emit(Op::SWIGLU, {gate, up}); }

Tensor swiglu_back(Tensor gate, Tensor up, Tensor dh) {
  return gate.graph->emit(Op::SWIGLU_BACK, {gate, up, dh});
}

Tensor swiglu_oai(Tensor gate, Tensor up, float alpha, float limit) {
  return gate.graph->emit(Op::SWIGLU_OAI, {gate, up}, SwigluOaiParams{alpha, limit});
}

Tensor swiglu_oai_back(Tensor gate, Tensor up, Tensor dh, float alpha, float limit) {
  return gate.graph->emit(Op::SWIGLU_OAI_BACK, {gate, up, dh}, SwigluOaiParams{alpha, limit});
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

void check_limit(const Node& y) {
  const SwigluOaiParams& p = params_of<SwigluOaiParams>(y);
  if (!(p.limit > 0)) fail(Code::Internal, "{}: a limit of {}, above 0 is needed", op_name(y.op), p.limit);
}

void infer_oai(Node& y, Sources src) {
  infer(y, src);
  check_limit(y);
}

void infer_oai_back(Node& y, Sources src) {
  infer_back(y, src);
  check_limit(y);
}

// Hands out the two gradients of a packed tensor.
void take_apart(BackwardCtx& c, Tensor packed) {
  const Shape& ne = c.out.shape();
  if (c.needs(0)) c.grad(0, view(packed, ne, 0));
  if (c.needs(1)) c.grad(1, view(packed, ne, row_bytes(DType::F32, ne.elements())));
}

void back(BackwardCtx& c) {
  if (c.needs(0) || c.needs(1)) take_apart(c, swiglu_back(c.src(0), c.src(1), c.dout));
}

void back_oai(BackwardCtx& c) {
  const SwigluOaiParams& p = params_of<SwigluOaiParams>(*c.out.node);
  if (c.needs(0) || c.needs(1)) take_apart(c, swiglu_oai_back(c.src(0), c.src(1), c.dout, p.alpha, p.limit));
}

template <class T>
T sigmoid(T x) {
  return T(1) / (T(1) + std::exp(-x));
}

// What becomes of a gate and an up, and their gradients.
template <class T>
struct Plain {
  explicit Plain(const RefArgs<T>&) {}
  T of(T gate, T up) const { return gate * sigmoid(gate) * up; }
  T dgate(T gate, T up) const {
    const T s = sigmoid(gate);
    return up * s * (T(1) + gate * (T(1) - s));
  }
  T dup(T gate, T) const { return gate * sigmoid(gate); }
};

template <class T>
struct Clamped {
  explicit Clamped(const RefArgs<T>& args)
      : alpha(args.template params<SwigluOaiParams>().alpha),
        limit(args.template params<SwigluOaiParams>().limit) {}
  T at_most(T x) const { return re(x) > re(limit) ? limit : x; }
  T within(T x) const { return re(x) < -re(limit) ? -limit : at_most(x); }
  T of(T gate, T up) const {
    const T g = at_most(gate);
    return g * sigmoid(alpha * g) * (within(up) + T(1));
  }
  T dgate(T gate, T up) const {
    if (re(gate) > re(limit)) return T(0);
    const T s = sigmoid(alpha * gate);
    return (within(up) + T(1)) * s * (T(1) + alpha * gate * (T(1) - s));
  }
  T dup(T gate, T up) const {
    if (re(up) > re(limit) || re(up) < -re(limit)) return T(0);
    const T g = at_most(gate);
    return g * sigmoid(alpha * g);
  }
  T alpha, limit;
};

template <template <class> class F, class T>
void map(const RefArgs<T>& args) {
  const F<T> f(args);
  const RefTensor<T>&gate = args.src[0], &up = args.src[1];
  for_rows(args.dst, [&](int64_t a, int64_t b, int64_t d) {
    for (int64_t i = 0; i < gate.ne[0]; ++i) args.dst(i, a, b, d) = f.of(gate(i, a, b, d), up(i, a, b, d));
  });
}

template <template <class> class F, class T>
void map_back(const RefArgs<T>& args) {
  const F<T> f(args);
  const RefTensor<T>&gate = args.src[0], &up = args.src[1], &dh = args.src[2];
  int64_t at = 0;
  const int64_t at_up = gate.ne[0] * gate.rows();
  for_rows(gate, [&](int64_t a, int64_t b, int64_t d) {
    for (int64_t i = 0; i < gate.ne[0]; ++i, ++at) {
      const T x = gate(i, a, b, d), u = up(i, a, b, d), g = dh(i, a, b, d);
      args.dst(at) = g * f.dgate(x, u);
      args.dst(at_up + at) = g * f.dup(x, u);
    }
  });
}

template <class T>
void ref(const RefArgs<T>& args) {
  map<Plain>(args);
}
template <class T>
void ref_back(const RefArgs<T>& args) {
  map_back<Plain>(args);
}
template <class T>
void ref_oai(const RefArgs<T>& args) {
  map<Clamped>(args);
}
template <class T>
void ref_oai_back(const RefArgs<T>& args) {
  map_back<Clamped>(args);
}

}  // namespace

extern const OpDef SWIGLU_def{
    .name = "SWIGLU", .n_src = 2, .infer = infer, .backward = back, .inplace = 3, TANDEM_REF(ref)};
extern const OpDef SWIGLU_BACK_def{
    .name = "SWIGLU_BACK", .n_src = 3, .infer = infer_back, .backward = kNoGrad, TANDEM_REF(ref_back)};
extern const OpDef SWIGLU_OAI_def{.name = "SWIGLU_OAI",
                                  .n_src = 2,
                                  .infer = infer_oai,
                                  .backward = back_oai,
                                  .inplace = 3,
                                  TANDEM_REF(ref_oai)};
extern const OpDef SWIGLU_OAI_BACK_def{.name = "SWIGLU_OAI_BACK",
                                       .n_src = 3,
                                       .infer = infer_oai_back,
                                       .backward = kNoGrad,
                                       TANDEM_REF(ref_oai_back)};

}  // namespace tandem
