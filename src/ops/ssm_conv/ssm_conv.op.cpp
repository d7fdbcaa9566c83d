// SSM_CONV  m {C, T}, w {K, C}, state {C, K - 1} F32, positions {T} I32 -> y {C, T}, the causal depthwise
//   convolution of every channel, without activation.
//
//   y_t = sum over back < K of w[K - 1 - back] m_{t - back}  for back <= positions[t];
//
//   m_{-1}, m_{-2}, ... are the columns of the state from the last one on: the inputs before this range,
//   oldest first.  positions[t] counts the earlier tokens of t's sample, so samples that lie side by side do
//   not see each other.  K >= 2.
//
// SSM_CONV_BACK  dy {C, T}, w {K, C}, positions {T} -> flat: dm {C, T}, dstate {C, K - 1}.
//   dm_t = sum over back < K of w[K - 1 - back] dy_{t + back}  for the t + back that are and see that far.
//
// SSM_CONV_STATE  m {C, T}, state {C, K - 1} -> {C, K - 1}, the state after this range: the last columns of
//   state and m in a row.  For T < K - 1; else it is a view of m, see conv_state().
//
// Gradient: m and state; asking for that of w throws, the taps are frozen.
// Source: architectures.md 2.5, gradients.md 9.
// Difference from ggml: channels are fastest in m and in the state, whose columns are tokens (there tokens
// are, and the state is joined to the input before); positions cut samples apart.
#include "graph/autodiff.h"
#include "ops/op_util.h"
#include "ops/ops.h"

namespace tandem {
namespace {

void expect_conv(const Node& y, Sources src, size_t m, size_t w, size_t positions) {
  expect_f32(y, src, static_cast<int>(m));
  expect_f32(y, src, static_cast<int>(w));
  expect_i32(y, src, static_cast<int>(positions));
  const Shape &x = src[m]->ne, &taps = src[w]->ne;
  expect_shapes(x == Shape(x[0], x[1]) && taps == Shape(taps[0], x[0]) && taps[0] >= 2, y, src,
                "activations {C, T} and taps {K, C} with K >= 2 are needed");
  expect_shapes(src[positions]->ne == Shape(x[1]), y, src, "the positions must be {T}");
}

void infer(Node& y, Sources src) {
  expect_conv(y, src, 0, 1, 3);
  expect_f32(y, src, 2);
  expect_shapes(src[2]->ne == Shape(src[0]->ne[0], src[1]->ne[0] - 1), y, src,
                "source 2, the state, must be {C, K - 1}");
  if (src[1]->wants_grad) {
    fail(Code::Unsupported, "{}: tensor {}, the taps, is frozen and has no gradient", op_name(y.op),
         src[1]->name);
  }
  y.ne = src[0]->ne;
}

void infer_back(Node& y, Sources src) {
  expect_conv(y, src, 0, 1, 2);
  y.ne = Shape(src[0]->ne[0] * (src[0]->ne[1] + src[1]->ne[0] - 1));
}

void infer_state(Node& y, Sources src) {
  expect_f32(y, src, 0);
  expect_f32(y, src, 1);
  const Shape &m = src[0]->ne, &state = src[1]->ne;
  expect_shapes(m == Shape(m[0], m[1]) && state == Shape(m[0], state[1]) && m[1] < state[1], y, src,
                "activations {C, T} and a state {C, K - 1} with T < K - 1 are needed");
  y.ne = state;
}

void back(BackwardCtx& c) {
  if (!c.needs(0) && !c.needs(2)) return;
  const Tensor packed = ssm_conv_back(c.dout, c.src(1), c.src(3));
  const Shape &m = c.src(0).shape(), &state = c.src(2).shape();
  if (c.needs(0)) c.grad(0, view(packed, m));
  if (c.needs(2)) c.grad(2, view(packed, state, row_bytes(DType::F32, m.elements())));
}

void back_state(BackwardCtx& c) {
  const Shape &m = c.src(0).shape(), &state = c.src(1).shape();
  const int64_t n_old = state[1] - m[1];  // columns that stay
  const std::array<int64_t, kMaxDims>& nb = c.dout.node->nb;
  if (c.needs(0)) c.grad(0, view_strided(c.dout, m, nb, n_old * nb[1]));
  if (!c.needs(1)) return;
  const int64_t column_bytes = row_bytes(DType::F32, state[0]), bytes = column_bytes * state[1];
  c.grad(1, view_back(view_strided(c.dout, {state[0], n_old}, nb, 0), state, {4, column_bytes, bytes, bytes},
                      m[1] * column_bytes));
}

template <class T>
void ref(const RefArgs<T>& args) {
  const RefTensor<T>&m = args.src[0], &w = args.src[1], &state = args.src[2];
  const int64_t n_taps = w.ne[0];
  for (int64_t t = 0; t < m.ne[1]; ++t) {
    for (int64_t ch = 0; ch < m.ne[0]; ++ch) {
      T sum = 0;
      for (int64_t back = n_taps - 1; back >= 0; --back) {
        if (back > args.src[3].id(t)) continue;
        const int64_t from = t - back;
        sum += w(n_taps - 1 - back, ch) * (from >= 0 ? m(ch, from) : state(ch, n_taps - 1 + from));
      }
      args.dst(ch, t) = sum;
    }
  }
}

template <class T>
void ref_back(const RefArgs<T>& args) {
  const RefTensor<T>&dy = args.src[0], &w = args.src[1];
  const int64_t n_channels = dy.ne[0], n_tokens = dy.ne[1], n_taps = w.ne[0];
  for (int64_t e = 0; e < args.dst.ne[0]; ++e) args.dst(e) = T(0);
  for (int64_t t = 0; t < n_tokens; ++t) {
    for (int64_t back = 0; back < n_taps && back <= args.src[2].id(t); ++back) {
      const int64_t from = t - back, column = from >= 0 ? from : n_tokens + n_taps - 1 + from;
      for (int64_t ch = 0; ch < n_channels; ++ch)
        args.dst(column * n_channels + ch) += w(n_taps - 1 - back, ch) * dy(ch, t);
    }
  }
}

template <class T>
void ref_state(const RefArgs<T>& args) {
  const RefTensor<T>&m = args.src[0], &state = args.src[1];
  const int64_t n_old = state.ne[1] - m.ne[1];
  for (int64_t j = 0; j < state.ne[1]; ++j)
    for (int64_t ch = 0; ch < state.ne[0]; ++ch)
      args.dst(ch, j) = j < n_old ? state(ch, m.ne[1] + j) : m(ch, j - n_old);
}

}  // namespace

Tensor ssm_conv(Tensor m, Tensor w, Tensor state, Tensor positions) {
  return m.graph->emit(Op::SSM_CONV, {m, w, state, positions});
}

Tensor ssm_conv_back(Tensor dy, Tensor w, Tensor positions) {
  return dy.graph->emit(Op::SSM_CONV_BACK, {dy, w, positions});
}

Tensor conv_state(Tensor m, Tensor state) {
  const int64_t n = state.ne(1), n_tokens = m.ne(1);
  if (n_tokens < n) return m.graph->emit(Op::SSM_CONV_STATE, {m, state});
  const std::array<int64_t, kMaxDims>& nb = m.node->nb;
  return view_strided(m, {m.ne(0), n}, {nb[0], nb[1], nb[1] * n, nb[1] * n}, (n_tokens - n) * nb[1]);
}

extern const OpDef SSM_CONV_def{.name = "SSM_CONV",
                                .n_src = 4,
                                .infer = infer,
                                .backward = back,
                                .no_grad = 1u << 1 | 1u << 3,
                                TANDEM_REF(ref)};
extern const OpDef SSM_CONV_BACK_def{
    .name = "SSM_CONV_BACK", .n_src = 3, .infer = infer_back, .backward = kNoGrad, TANDEM_REF(ref_back)};
extern const OpDef SSM_CONV_STATE_def{.name = "SSM_CONV_STATE",
                                      .n_src = 2,
                                      .infer = infer_state,
                                      .backward = back_state,
                                      TANDEM_REF(ref_state)};

}  // namespace tandem
