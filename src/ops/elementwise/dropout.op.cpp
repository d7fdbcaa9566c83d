// DROPOUT  x {n, ...} F32 -> x / (1 - p) where the mask keeps, 0 elsewhere.  The mask is a function of (seed,
// step, layer, stream, token, channel): channel along ne0, token = first_token + row. Gradient: x, the same
// mask on dy.  Source: gradients.md 12.1, 13.  Difference from ggml: it has no dropout.
#include "graph/autodiff.h"
#include "ops/elementwise/dropout_mask.h"
#include "ops/op_util.h"
#include "ops/ops.h"

namespace tandem {

Tensor dropout(Tensor x, const DropoutParams& params) {
  if (!(params.p >= 0.f && params.p < 1.f)) {
    fail(Code::Usage, "dropout: probability {} is not in [0, 1)", params.p);
  }
  const double p = static_cast<double>(params.p);
  const DropoutMask mask{dropout_key(params.seed, params.step, params.layer, params.stream),
                         params.first_token, static_cast<uint32_t>(p * 0x1p32),
                         static_cast<float>(1 / (1 - p))};
  return x.graph->emit(Op::DROPOUT, {x}, mask);
}

namespace {

void infer(Node& y, Sources src) {
  expect_f32(y, src, 0);
  y.ne = src[0]->ne;
}

void back(BackwardCtx& c) {
  if (c.needs(0)) c.grad(0, c.graph.emit(Op::DROPOUT, {c.dout}, params_of<DropoutMask>(*c.out.node)));
}

template <class T>
void ref(const RefArgs<T>& args) {
  const RefTensor<T>& x = args.src[0];
  const DropoutMask& mask = args.template params<DropoutMask>();
  int64_t token = mask.first_token;
  for_rows(args.dst, [&](int64_t a, int64_t b, int64_t d) {
    const uint64_t row_key = dropout_row_key(mask.key, token++);
    for (int64_t i = 0; i < x.ne[0]; ++i) {
      args.dst(i, a, b, d) = dropout_keeps(mask, row_key, i) ? x(i, a, b, d) * T(mask.scale) : T(0);
    }
  });
}

}  // namespace

extern const OpDef DROPOUT_def{
    .name = "DROPOUT", .n_src = 1, .infer = infer, .backward = back, .inplace = 1, TANDEM_REF(ref)};

}  // namespace tandem
