// MUL_MAT_ID       as {K, N, E}, b {K, n_b, T} F32, ids {k, T} I32 -> y {N, k, T}.
//                  y[:, i, t] = as[:, :, ids[i, t]]^T b[:, i % n_b, t];  n_b divides k.
// MUL_MAT_ID_BACK  as {K, N, E}, grad {N, n_g, T}, ids {k, T} -> dst {K, k, T}.
//                  dst[:, i, t] = sum over r of as[:, r, ids[i, t]] grad[r, i % n_g, t]: one row, and one
//                  writer, per slot;  n_g divides k.
// OUT_PROD_ID      a {M, n_a, T}, b {N, k, T}, ids {k, T} -> {M, N, E}, the gradient of F32 experts.
// Gradient: b (grad), and the experts if they are F32 (an adapter); frozen quantized experts never have one,
// ids neither.  Each of the two products is the other's transpose: a model may call either (keys from latents
// in deepseek2).  Where b (grad) was broadcast over the slots, REPEAT_BACK sums them (slot i came from row
// i % n_b).  An
// expert may stand twice in a token's list. Source: gradients.md 2.2.  Difference from ggml: the backward ops
// exist.
#include "graph/autodiff.h"
#include "ops/mul_mat/mul_mat.h"
#include "ops/op_util.h"
#include "ops/ops.h"

namespace tandem {

Tensor mul_mat_id(Tensor as, Tensor b, Tensor ids, Precision precision) {
  const MulMatIdParams params{precision, ExpertLayout::Stacked};
  return b.graph->emit(Op::MUL_MAT_ID, {as, b, ids}, params);
}

Tensor mul_mat_id(Tensor as, Tensor b, Tensor ids) { return mul_mat_id(as, b, ids, b.graph->precision); }

Tensor mul_mat_id_back(Tensor as, Tensor grad, Tensor ids, Precision precision) {
  const MulMatIdParams params{precision, ExpertLayout::Stacked};
  return grad.graph->emit(Op::MUL_MAT_ID_BACK, {as, grad, ids}, params);
}

Tensor out_prod_id(Tensor a, Tensor b, Tensor ids, int64_t n_expert) {
  return a.graph->emit(Op::OUT_PROD_ID, {a, b, ids}, OutProdIdParams{n_expert});
}

namespace {

void expect_experts(const Node& y, Sources src) {
  const Node& as = *src[0];
  if (params_of<MulMatIdParams>(y).layout == ExpertLayout::Gather) {
    fail(Code::Unsupported,
         "{}: tensor {}: experts that lie in the file as one tensor each (the gather form) are not built "
         "yet; use a "
         "file with one stacked tensor per layer",
         op_name(y.op), as.name);
  }
  if (!decodable(as.type)) {
    fail(Code::Unsupported, "{}: tensor {} is {}, a type this engine knows but cannot decode", op_name(y.op),
         as.name, name_of(as.type));
  }
  expect_f32(y, src, 1);
  expect_i32(y, src, 2);
}

void infer(Node& y, Sources src) {
  expect_experts(y, src);
  const Shape &as = src[0]->ne, &b = src[1]->ne, &ids = src[2]->ne;
  expect_shapes(as[0] == b[0] && as[3] == 1 && b[1] > 0 && ids[0] % b[1] == 0 && b[2] == ids[1] &&
                    b[3] == 1 && ids[2] == 1 && ids[3] == 1,
                y, src, "as is {K, N, E}, b {K, n_b, T} and ids {k, T} with k a multiple of n_b");
  y.ne = {as[1], ids[0], ids[1]};
}

void infer_back(Node& y, Sources src) {
  expect_experts(y, src);
  expect_trainable(y, params_of<MulMatIdParams>(y).precision);
  const Shape &as = src[0]->ne, &grad = src[1]->ne, &ids = src[2]->ne;
  expect_shapes(as[1] == grad[0] && as[3] == 1 && grad[1] > 0 && ids[0] % grad[1] == 0 && grad[2] == ids[1] &&
                    grad[3] == 1 && ids[2] == 1 && ids[3] == 1,
                y, src, "as is {K, N, E}, grad {N, n_g, T} and ids {k, T} with k a multiple of n_g");
  y.ne = {as[0], ids[0], ids[1]};
}

void infer_out_prod(Node& y, Sources src) {
  expect_f32(y, src, 0);
  expect_f32(y, src, 1);
  expect_i32(y, src, 2);
  const Shape &a = src[0]->ne, &b = src[1]->ne, &ids = src[2]->ne;
  expect_shapes(a[1] > 0 && b[1] % a[1] == 0 && a[2] == b[2] && b[1] == ids[0] && b[2] == ids[1] &&
                    a[3] == 1 && b[3] == 1 && ids[2] == 1 && ids[3] == 1,
                y, src, "a is {M, n_a, T}, b {N, k, T} and ids {k, T} with k a multiple of n_a");
  y.ne = {a[0], b[0], params_of<OutProdIdParams>(y).n_expert};
}

// Where slots are summed, their cotangent is one row repeated; the product can read that row itself.
Tensor without_repeat(Tensor grad) {
  const Node& n = *grad.node;
  if (n.op != Op::REPEAT) return grad;
  const Node& row = *n.src[0];
  return row.ne[0] == n.ne[0] && row.ne[2] == n.ne[2] ? Tensor{n.src[0], grad.graph} : grad;
}

void back(BackwardCtx& c) {
  const Precision precision = params_of<MulMatIdParams>(*c.out.node).precision;
  expect_trainable(*c.out.node, precision);
  if (c.needs(0)) c.grad(0, out_prod_id(c.src(1), c.dout, c.src(2), c.src(0).ne(2)));
  if (!c.needs(1)) return;
  const Tensor d = mul_mat_id_back(c.src(0), without_repeat(c.dout), c.src(2), precision);
  const Tensor b = c.src(1);
  c.grad(1, b.ne(1) == d.ne(1) ? d : repeat_back(d, b.shape()));
}

// Of MUL_MAT_ID_BACK, called as a product of its own.
void back_of_back(BackwardCtx& c) {
  const Precision precision = params_of<MulMatIdParams>(*c.out.node).precision;
  const Tensor as = c.src(0), grad = c.src(1), ids = c.src(2);
  if (c.needs(0)) {
    const bool shared = grad.ne(1) != ids.ne(0);
    const Tensor of_slots = shared ? repeat(grad, {grad.ne(0), ids.ne(0), ids.ne(1)}) : grad;
    c.grad(0, out_prod_id(c.dout, of_slots, ids, as.ne(2)));
  }
  if (!c.needs(1)) return;
  const Tensor d = mul_mat_id(as, c.dout, ids, precision);
  c.grad(1, grad.ne(1) == d.ne(1) ? d : repeat_back(d, grad.shape()));
}

template <class T>
void ref(const RefArgs<T>& args) {
  const RefTensor<T>&as = args.src[0], &b = args.src[1], &ids = args.src[2];
  for_rows(args.dst, [&](int64_t i, int64_t t, int64_t) {
    const int64_t e = ids.id(i, t), m = i % b.ne[1];
    for (int64_t n = 0; n < as.ne[1]; ++n) {
      T sum = 0;
      for (int64_t k = 0; k < as.ne[0]; ++k) sum += as(k, n, e) * b(k, m, t);
      args.dst(n, i, t) = sum;
    }
  });
}

template <class T>
void ref_back(const RefArgs<T>& args) {
  const RefTensor<T>&as = args.src[0], &grad = args.src[1], &ids = args.src[2];
  for_rows(args.dst, [&](int64_t i, int64_t t, int64_t) {
    const int64_t e = ids.id(i, t);
    for (int64_t k = 0; k < as.ne[0]; ++k) {
      T sum = 0;
      for (int64_t r = 0; r < as.ne[1]; ++r) sum += as(k, r, e) * grad(r, i % grad.ne[1], t);
      args.dst(k, i, t) = sum;
    }
  });
}

template <class T>
void ref_out_prod(const RefArgs<T>& args) {
  const RefTensor<T>&a = args.src[0], &b = args.src[1], &ids = args.src[2];
  for_rows(args.dst, [&](int64_t n, int64_t e, int64_t) {
    for (int64_t m = 0; m < a.ne[0]; ++m) {
      T sum = 0;
      for_rows(b, [&](int64_t i, int64_t t, int64_t) {
        if (ids.id(i, t) == e) sum += a(m, i % a.ne[1], t) * b(n, i, t);
      });
      args.dst(m, n, e) = sum;
    }
  });
}

}  // namespace

extern const OpDef MUL_MAT_ID_def{
    .name = "MUL_MAT_ID", .n_src = 3, .infer = infer, .backward = back, .no_grad = 1u << 2, TANDEM_REF(ref)};
extern const OpDef MUL_MAT_ID_BACK_def{.name = "MUL_MAT_ID_BACK",
                                       .n_src = 3,
                                       .infer = infer_back,
                                       .backward = back_of_back,
                                       .no_grad = 1u << 2,
                                       TANDEM_REF(ref_back)};
extern const OpDef OUT_PROD_ID_def{.name = "OUT_PROD_ID",
                                   .n_src = 3,
                                   .infer = infer_out_prod,
                                   .backward = kNoGrad,
                                   TANDEM_REF(ref_out_prod)};

}  // namespace tandem
