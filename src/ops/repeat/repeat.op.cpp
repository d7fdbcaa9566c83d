// REPEAT  x {n...} F32 -> y {ne}, every ne[i] a multiple of n[i]: y[i] = x[i % n] in each axis.
// REPEAT_BACK  x F32 -> y {ne}, every ne[i] a divisor of x's: y[m] = the sum of x[i] over all i with i % ne
// == m. Gradients: x of both; each is the other's.  Source: gradients.md 2.4.  Difference from ggml: none.
#include "ops/repeat/repeat.h"

#include "graph/autodiff.h"
#include "ops/op_util.h"
#include "ops/ops.h"

namespace tandem {
namespace {

RepeatParams params_for(const Shape& ne) { return {{ne[0], ne[1], ne[2], ne[3]}}; }

bool tiles_up(const Shape& tile, const Shape& whole) {
  for (int i = 0; i < kMaxDims; ++i) {
    if (tile[i] <= 0 || whole[i] % tile[i] != 0) return false;
  }
  return true;
}

void infer(Node& y, Sources src) {
  const RepeatParams& p = params_of<RepeatParams>(y);
  expect_f32(y, src, 0);
  y.ne = {p.ne[0], p.ne[1], p.ne[2], p.ne[3]};
  const bool fits = y.op == Op::REPEAT ? tiles_up(src[0]->ne, y.ne) : tiles_up(y.ne, src[0]->ne);
  if (fits) return;
  fail(Code::Internal, "{}: {} asked for from {}; every dimension of one must be a multiple of the other's",
       op_name(y.op), to_string(y.ne), to_string(src[0]->ne));
}

void back(BackwardCtx& c) {
  if (c.needs(0)) c.grad(0, repeat_back(c.dout, c.src(0).shape()));
}

void back_fold(BackwardCtx& c) {
  if (c.needs(0)) c.grad(0, repeat(c.dout, c.src(0).shape()));
}

template <class T>
void ref(const RefArgs<T>& args) {
  const RefTensor<T>&y = args.dst, &x = args.src[0];
  for_rows(y, [&](int64_t a, int64_t b, int64_t d) {
    for (int64_t i = 0; i < y.ne[0]; ++i) {
      y(i, a, b, d) = x(i % x.ne[0], a % x.ne[1], b % x.ne[2], d % x.ne[3]);
    }
  });
}

template <class T>
void ref_fold(const RefArgs<T>& args) {
  const RefTensor<T>&y = args.dst, &x = args.src[0];
  for_rows(y, [&](int64_t a, int64_t b, int64_t d) {
    for (int64_t i = 0; i < y.ne[0]; ++i) y(i, a, b, d) = T(0);
  });
  for_rows(x, [&](int64_t a, int64_t b, int64_t d) {
    for (int64_t i = 0; i < x.ne[0]; ++i) {
      y(i % y.ne[0], a % y.ne[1], b % y.ne[2], d % y.ne[3]) += x(i, a, b, d);
    }
  });
}

}  // namespace

Tensor repeat(Tensor x, const Shape& ne) { return x.graph->emit(Op::REPEAT, {x}, params_for(ne)); }

Tensor repeat_back(Tensor x, const Shape& ne) { return x.graph->emit(Op::REPEAT_BACK, {x}, params_for(ne)); }

extern const OpDef REPEAT_def{
    .name = "REPEAT", .n_src = 1, .infer = infer, .backward = back, TANDEM_REF(ref)};
extern const OpDef REPEAT_BACK_def{
    .name = "REPEAT_BACK", .n_src = 1, .infer = infer, .backward = back_fold, TANDEM_REF(ref_fold)};

}  // namespace tandem
