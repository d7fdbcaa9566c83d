// GET_ROWS  x {n, rows, B} any decodable type, ids {k, B} I32 -> y {n, k, B} F32: y[:, i, j] = x[:, ids[i,
// j], j]. GET_ROWS_BACK  dy {n, k, B}, ids -> dx {n, rows, B}: rows gathered more than once add up, the
// others are zero. Gradient: x where it is F32.  Ids lie in [0, rows); they are checked where they enter the
// program. Source: gradients.md 2.3.  Difference from ggml: GET_ROWS_BACK takes batches.
#include "ops/get_rows/get_rows.h"

#include "graph/autodiff.h"
#include "ops/op_util.h"
#include "ops/ops.h"

namespace tandem {

Tensor get_rows(Tensor x, Tensor ids) { return x.graph->emit(Op::GET_ROWS, {x, ids}); }

Tensor get_rows_back(Tensor dy, Tensor ids, int64_t rows) {
  return dy.graph->emit(Op::GET_ROWS_BACK, {dy, ids}, GetRowsBackParams{rows});
}

namespace {

void infer(Node& y, Sources src) {
  const Shape &x = src[0]->ne, &ids = src[1]->ne;
  expect_i32(y, src, 1);
  if (!decodable(src[0]->type)) {
    fail(Code::Unsupported, "GET_ROWS: rows of {} cannot be decoded here", name_of(src[0]->type));
  }
  expect_shapes(x[3] == 1 && ids[2] == 1 && ids[3] == 1 && ids[1] == x[2], y, src,
                "x {n, rows, B} needs ids {k, B}");
  y.ne = {x[0], ids[0], x[2]};
}

void infer_back(Node& y, Sources src) {
  const Shape &dy = src[0]->ne, &ids = src[1]->ne;
  expect_f32(y, src, 0);
  expect_i32(y, src, 1);
  expect_shapes(dy[3] == 1 && ids[2] == 1 && ids[3] == 1 && ids[0] == dy[1] && ids[1] == dy[2], y, src,
                "dy {n, k, B} needs ids {k, B}");
  y.ne = {dy[0], params_of<GetRowsBackParams>(y).rows, dy[2]};
}

void back(BackwardCtx& c) {
  if (c.needs(0)) c.grad(0, get_rows_back(c.dout, c.src(1), c.src(0).ne(1)));
}

template <class T>
void ref(const RefArgs<T>& args) {
  const RefTensor<T>&x = args.src[0], &ids = args.src[1], &y = args.dst;
  for (int64_t j = 0; j < y.ne[2]; ++j)
    for (int64_t i = 0; i < y.ne[1]; ++i)
      for (int64_t a = 0; a < y.ne[0]; ++a) y(a, i, j) = x(a, ids.id(i, j), j);
}

template <class T>
void ref_back(const RefArgs<T>& args) {
  const RefTensor<T>&dy = args.src[0], &ids = args.src[1], &dx = args.dst;
  for_rows(dx, [&](int64_t a, int64_t b, int64_t d) {
    for (int64_t i = 0; i < dx.ne[0]; ++i) dx(i, a, b, d) = T(0);
  });
  for (int64_t j = 0; j < dy.ne[2]; ++j)
    for (int64_t i = 0; i < dy.ne[1]; ++i)
      for (int64_t a = 0; a < dy.ne[0]; ++a) dx(a, ids.id(i, j), j) += dy(a, i, j);
}

}  // namespace

extern const OpDef GET_ROWS_def{
    .name = "GET_ROWS", .n_src = 2, .infer = infer, .backward = back, .no_grad = 2, TANDEM_REF(ref)};
extern const OpDef GET_ROWS_BACK_def{
    .name = "GET_ROWS_BACK", .n_src = 2, .infer = infer_back, .backward = kNoGrad, TANDEM_REF(ref_back)};

}  // namespace tandem
