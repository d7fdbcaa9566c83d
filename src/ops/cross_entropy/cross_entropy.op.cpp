// CROSS_ENTROPY_LOSS  logits {V, T} F32, labels {T} I32 -> {T, 2} F32: nll = ln(sum of exp(logits)) -
// logits[label], and 1 if the label has the largest logit (the smaller index on ties), else 0.  A negative
// label masks its token: 0 and 0.  Labels are below V; they are checked where they enter the program.
// CROSS_ENTROPY_LOSS_BACK  logits, labels, dnll {T} -> {V, T}: (softmax(logits) - onehot(label)) dnll, 0
// where masked. Gradient: logits, from nll; hits have none.  Source: gradients.md 11.  Difference from ggml:
// labels are ids, tokens can be masked, and losses are not summed.
#include "graph/autodiff.h"
#include "ops/op_util.h"
#include "ops/ops.h"

namespace tandem {

Tensor cross_entropy_loss(Tensor logits, Tensor labels) {
  return logits.graph->emit(Op::CROSS_ENTROPY_LOSS, {logits, labels});
}

Tensor cross_entropy_loss_back(Tensor logits, Tensor labels, Tensor dnll) {
  return logits.graph->emit(Op::CROSS_ENTROPY_LOSS_BACK, {logits, labels, dnll});
}

namespace {

void infer(Node& y, Sources src) {
  const Shape &logits = src[0]->ne, &labels = src[1]->ne;
  expect_f32(y, src, 0);
  expect_i32(y, src, 1);
  expect_shapes(logits == Shape(logits[0], logits[1]) && labels == Shape(logits[1]), y, src,
                "logits {V, T} need labels {T}");
  y.ne = {logits[1], 2};
}

void infer_back(Node& y, Sources src) {
  infer(y, src.first(2));
  expect_f32(y, src, 2);
  expect_shapes(src[2]->ne == src[1]->ne, y, src, "there is one dnll per label");
  y.ne = src[0]->ne;
}

void back(BackwardCtx& c) {
  if (!c.needs(0)) return;
  const Tensor dnll = view(c.dout, {c.dout.ne(0)}, 0);
  c.grad(0, cross_entropy_loss_back(c.src(0), c.src(1), dnll));
}

// The first place of the largest logit of token t.
template <class T>
int64_t first_largest(const RefTensor<T>& z, int64_t t) {
  int64_t at = 0;
  for (int64_t i = 1; i < z.ne[0]; ++i) {
    if (re(z(i, t)) > re(z(at, t))) at = i;
  }
  return at;
}

template <class T>
T sum_exp(const RefTensor<T>& z, int64_t t, double shift) {
  T sum = 0;
  for (int64_t i = 0; i < z.ne[0]; ++i) sum += std::exp(z(i, t) - T(shift));
  return sum;
}

template <class T>
void ref(const RefArgs<T>& args) {
  const RefTensor<T>&z = args.src[0], &labels = args.src[1];
  for (int64_t t = 0; t < z.ne[1]; ++t) {
    const int32_t label = labels.id(t);
    args.dst(t, 0) = args.dst(t, 1) = T(0);
    if (label < 0) continue;
    const int64_t largest = first_largest(z, t);
    const double shift = re(z(largest, t));
    args.dst(t, 0) = std::log(sum_exp(z, t, shift)) + (T(shift) - z(label, t));
    args.dst(t, 1) = T(largest == label ? 1 : 0);
  }
}

template <class T>
void ref_back(const RefArgs<T>& args) {
  const RefTensor<T>&z = args.src[0], &labels = args.src[1], &dnll = args.src[2], &dz = args.dst;
  for (int64_t t = 0; t < z.ne[1]; ++t) {
    const int32_t label = labels.id(t);
    const double shift = re(z(first_largest(z, t), t));
    const T sum = sum_exp(z, t, shift);
    for (int64_t i = 0; i < z.ne[0]; ++i) {
      dz(i, t) = label < 0 ? T(0) : (std::exp(z(i, t) - T(shift)) / sum - T(i == label ? 1 : 0)) * dnll(t);
    }
  }
}

}  // namespace

extern const OpDef CROSS_ENTROPY_LOSS_def{.name = "CROSS_ENTROPY_LOSS",
                                          .n_src = 2,
                                          .infer = infer,
                                          .backward = back,
                                          .no_grad = 2,
                                          TANDEM_REF(ref)};
extern const OpDef CROSS_ENTROPY_LOSS_BACK_def{.name = "CROSS_ENTROPY_LOSS_BACK",
                                               .n_src = 3,
                                               .infer = infer_back,
                                               .backward = kNoGrad,
                                               .inplace = 1,
                                               TANDEM_REF(ref_back)};

}  // namespace tandem
