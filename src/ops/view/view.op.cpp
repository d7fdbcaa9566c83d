// VIEW  x -> y, a window onto x's bytes: ne, nb and an offset.  Computes nothing, moves nothing.
// VIEW_BACK  dy {window} F32 -> dx, contiguous: zeros, with dy added where the window looks; overlaps add up.
// CONT  x F32 or I32, any strides -> the same elements in contiguous memory.
// Gradient: x.  Source: gradients.md 2.4.  Difference from ggml: VIEW takes all strides, VIEW_BACK is an op
// of its own and fills with true zeros, so a NaN in the parent does not reach its gradient.
#include "ops/view/view.h"

#include "graph/autodiff.h"
#include "ops/op_util.h"
#include "ops/ops.h"

namespace tandem {
namespace {

using Strides = std::array<int64_t, kMaxDims>;

ViewParams view_params(const Shape& ne, const Strides& nb, int64_t offset_bytes) {
  return {{ne[0], ne[1], ne[2], ne[3]}, {nb[1], nb[2], nb[3]}, offset_bytes};
}

Shape shape_of(const ViewParams& p) { return {p.ne[0], p.ne[1], p.ne[2], p.ne[3]}; }

// Bytes from the first element to the end of the last one.
int64_t span_bytes(DType type, const Shape& ne, const int64_t* nb_from_1) {
  int64_t bytes = row_bytes(type, ne[0]);
  for (int i = 1; i < kMaxDims; ++i) bytes += (ne[i] - 1) * nb_from_1[i - 1];
  return bytes;
}

// Throws Internal unless a window of this shape stays within `bytes`.
void expect_inside(Op op, DType type, const Shape& ne, const ViewParams& p, int64_t bytes) {
  const TypeInfo& info = type_info(type);
  bool fits =
      p.offset_bytes >= 0 && p.offset_bytes % info.block_bytes == 0 && ne[0] % info.block_elements == 0;
  for (int i = 0; i < kMaxDims; ++i) fits = fits && ne[i] >= 0;
  for (const int64_t nb : p.nb) fits = fits && nb >= 0 && nb % info.block_bytes == 0;
  if (fits && ne.elements() > 0) fits = p.offset_bytes + span_bytes(type, ne, p.nb) <= bytes;
  if (fits) return;
  fail(Code::Internal,
       "{}: a window of shape {} with strides {}, {}, {} at byte {} does not lie in {} bytes of {}",
       op_name(op), to_string(ne), p.nb[0], p.nb[1], p.nb[2], p.offset_bytes, bytes, name_of(type));
}

void infer_view(Node& y, Sources src) {
  const ViewParams& p = params_of<ViewParams>(y);
  const Node& x = *src[0];
  const Shape ne = shape_of(p);
  TANDEM_CHECK(x.contiguous());
  expect_inside(y.op, x.type, ne, p, x.elements() > 0 ? row_bytes(x.type, x.elements()) : 0);
  y.type = x.type;
  y.ne = ne;
  y.nb = {type_info(x.type).block_bytes, p.nb[0], p.nb[1], p.nb[2]};
  y.root = x.root;
  y.root_offset_bytes = x.root_offset_bytes + p.offset_bytes;
  y.home = x.home;
}

void back_view(BackwardCtx& c) {
  if (!c.needs(0)) return;
  const Node &y = *c.out.node, &x = *y.src[0];
  if (y.elements() == x.elements() && y.contiguous() && c.dout.node->contiguous()) {
    c.grad(0, reshape(c.dout, x.ne));  // all of x: nothing to spread out
    return;
  }
  c.grad(0, view_back(c.dout, x.ne, y.nb, params_of<ViewParams>(y).offset_bytes));
}

// Nothing to do: whoever runs references lets dst look into the source's numbers, as the executors do.
template <class T>
void ref_view(const RefArgs<T>&) {}

void infer_view_back(Node& y, Sources src) {
  const ViewParams& p = params_of<ViewParams>(y);
  expect_f32(y, src, 0);
  y.ne = shape_of(p);
  expect_inside(y.op, DType::F32, src[0]->ne, p, row_bytes(DType::F32, y.ne.elements()));
}

template <class T>
void ref_view_back(const RefArgs<T>& args) {
  const RefTensor<T>&dx = args.dst, &dy = args.src[0];
  const ViewParams& p = args.template params<ViewParams>();
  for_rows(dx, [&](int64_t a, int64_t b, int64_t d) {
    for (int64_t i = 0; i < dx.ne[0]; ++i) dx(i, a, b, d) = T(0);
  });
  for_rows(dy, [&](int64_t a, int64_t b, int64_t d) {
    const int64_t row = (p.offset_bytes + a * p.nb[0] + b * p.nb[1] + d * p.nb[2]) / 4;
    for (int64_t i = 0; i < dy.ne[0]; ++i) {
      const int64_t at = row + i, n0 = dx.ne[0], n1 = dx.ne[1], n2 = dx.ne[2];
      dx(at % n0, at / n0 % n1, at / (n0 * n1) % n2, at / (n0 * n1 * n2)) += dy(i, a, b, d);
    }
  });
}

void infer_cont(Node& y, Sources src) {
  if (src[0]->type != DType::F32) expect_i32(y, src, 0);
  y.type = src[0]->type;
  y.ne = src[0]->ne;
}

void back_cont(BackwardCtx& c) {
  if (c.needs(0)) c.grad(0, c.dout);
}

template <class T>
void ref_cont(const RefArgs<T>& args) {
  const RefTensor<T>&y = args.dst, &x = args.src[0];
  for_rows(y, [&](int64_t a, int64_t b, int64_t d) {
    for (int64_t i = 0; i < y.ne[0]; ++i) {
      if (y.f) {
        y(i, a, b, d) = x(i, a, b, d);
      } else {
        y.id(i, a, b, d) = x.id(i, a, b, d);
      }
    }
  });
}

}  // namespace

Tensor view_strided(Tensor x, const Shape& ne, const Strides& nb, int64_t offset_bytes) {
  TANDEM_CHECK(nb[0] == type_info(x.type()).block_bytes);
  // A window onto a window is one onto what that one shows, so the source of a VIEW is always contiguous.
  if (x.node->op == Op::VIEW) {
    const Node& window = *x.node;
    expect_inside(Op::VIEW, window.type, ne, view_params(ne, nb, offset_bytes),
                  window.elements() > 0 ? span_bytes(window.type, window.ne, window.nb.data() + 1) : 0);
    offset_bytes += params_of<ViewParams>(window).offset_bytes;
    x = {window.src[0], x.graph};
  }
  return x.graph->emit(Op::VIEW, {x}, view_params(ne, nb, offset_bytes));
}

Tensor view(Tensor x, const Shape& ne, int64_t offset_bytes) {
  const int64_t nb1 = row_bytes(x.type(), ne[0]);
  const Strides nb{type_info(x.type()).block_bytes, nb1, nb1 * ne[1], nb1 * ne[1] * ne[2]};
  return view_strided(x, ne, nb, offset_bytes);
}

Tensor reshape(Tensor x, const Shape& ne) {
  if (!x.node->contiguous() || x.shape().elements() != ne.elements()) {
    fail(Code::Internal, "reshape: {} tensor of shape {} cannot become {}",
         x.node->contiguous() ? "a contiguous" : "a strided", to_string(x.shape()), to_string(ne));
  }
  return view(x, ne, 0);
}

Tensor view_back(Tensor dy, const Shape& ne, const Strides& nb, int64_t offset_bytes) {
  TANDEM_CHECK(nb[0] == type_info(DType::F32).block_bytes);
  return dy.graph->emit(Op::VIEW_BACK, {dy}, view_params(ne, nb, offset_bytes));
}

Tensor cont(Tensor x) { return x.graph->emit(Op::CONT, {x}); }

extern const OpDef VIEW_def{
    .name = "VIEW", .n_src = 1, .infer = infer_view, .backward = back_view, TANDEM_REF(ref_view)};
extern const OpDef VIEW_BACK_def{.name = "VIEW_BACK",
                                 .n_src = 1,
                                 .infer = infer_view_back,
                                 .backward = kNoGrad,
                                 TANDEM_REF(ref_view_back)};
extern const OpDef CONT_def{
    .name = "CONT", .n_src = 1, .infer = infer_cont, .backward = back_cont, TANDEM_REF(ref_cont)};

}  // namespace tandem
