// MUL_MAT, MUL_MAT_BACK, OUT_PROD: decode a panel of the weight, multiply a block of tokens with it.
#include "ops/mul_mat/mul_mat.h"

#include "ops/mul_mat/gemm.h"
#include "ops/mul_mat/int8.h"

namespace tandem::TANDEM_ISA {
namespace {

Arithmetic arithmetic(const KernelArgs& a) {
  return arithmetic_of(a.src[0], static_cast<const MulMatParams*>(a.params)->precision);
}

const char* refuse(const KernelArgs& a) {
  if (a.src[1].nb[0] != 4 || a.dst.nb[0] != 4) return "activation rows must be contiguous";
  return nullptr;
}

// --- phase 0, not in f32: the activations in the tile's form ---
int64_t convert_units(const KernelArgs& a) {
  return arithmetic(a) == Arithmetic::F32 ? 0 : ceil_div(rows_of(a.src[1]), kConvertRows);
}

void convert(const KernelArgs& a, int64_t lo, int64_t hi, int) {
  for (int64_t u = lo; u < hi; ++u) convert_unit_to(arithmetic(a), a.src[1], a.shared_scratch, u);
}

ScratchBytes scratch(const KernelArgs& a) {
  return {converted_bytes_for(arithmetic(a), a.src[1]), kThreadScratchBytes};
}

// Points the thread's row lists at tokens [t0, t0 + m).
template <class P>
void bind_rows(const KernelArgs& a, int64_t t0, int64_t m, const ThreadScratch& s) {
  for (int64_t i = 0; i < m; ++i) {
    s.a[i] = operand_row<P>(a.src[1], a.shared_scratch, t0 + i);
    s.c[i] = reinterpret_cast<float*>(row_of(a.dst, t0 + i));
  }
}

// --- forward: a unit is one panel of 64 weight rows and one block of tokens ---
int64_t forward_blocks(const KernelArgs& a) {
  return even_blocks(rows_of(a.dst), unit_tokens(kPanelCols * a.src[0].ne[0]));
}

int64_t forward_units(const KernelArgs& a) {
  return ceil_div(a.src[0].ne[1], kPanelCols) * forward_blocks(a);
}

template <class P>
void forward_run(const KernelArgs& a, int64_t lo, int64_t hi, int thread) {
  const ThreadScratch s = thread_scratch(a, thread);
  const int64_t tokens = rows_of(a.dst), blocks = forward_blocks(a),
                panels = ceil_div(a.src[0].ne[1], kPanelCols);
  for (int64_t u = lo; u < hi; ++u) {
    const int64_t i = u / panels, t0 = tokens * i / blocks, m = tokens * (i + 1) / blocks - t0;
    bind_rows<P>(a, t0, m, s);
    forward_unit(P{}, a.src[0], static_cast<const char*>(a.src[0].data), u % panels * kPanelCols, m, s);
  }
}

void forward(const KernelArgs& a, int64_t lo, int64_t hi, int thread) {
  switch (arithmetic(a)) {
    case Arithmetic::F32:
      return forward_run<F32Path>(a, lo, hi, thread);
    case Arithmetic::BF16:
      return forward_run<Bf16Path>(a, lo, hi, thread);
    case Arithmetic::Int8:
      return forward_run<Int8Path>(a, lo, hi, thread);
  }
}

// --- backward: a unit is 256 weight columns and one block of tokens ---
int64_t back_blocks(const KernelArgs& a) {
  return even_blocks(rows_of(a.dst), unit_tokens(kBackCols * a.src[0].ne[1]));
}

int64_t back_units(const KernelArgs& a) { return ceil_div(a.src[0].ne[0], kBackCols) * back_blocks(a); }

template <class P>
void back_run(const KernelArgs& a, int64_t lo, int64_t hi, int thread) {
  const ThreadScratch s = thread_scratch(a, thread);
  const int64_t tokens = rows_of(a.dst), blocks = back_blocks(a),
                chunks = ceil_div(a.src[0].ne[0], kBackCols);
  for (int64_t u = lo; u < hi; ++u) {
    const int64_t i = u / chunks, t0 = tokens * i / blocks, m = tokens * (i + 1) / blocks - t0;
    bind_rows<P>(a, t0, m, s);
    back_unit<P>(a.src[0], static_cast<const char*>(a.src[0].data), u % chunks * kBackCols, m, s);
  }
}

void back(const KernelArgs& a, int64_t lo, int64_t hi, int thread) {
  if (arithmetic(a) == Arithmetic::BF16) return back_run<Bf16Path>(a, lo, hi, thread);
  back_run<F32Path>(a, lo, hi, thread);
}

// --- OUT_PROD ---
const char* refuse_out(const KernelArgs& a) {
  if (a.src[0].nb[0] != 4 || a.src[1].nb[0] != 4) return "rows must be contiguous";
  return nullptr;
}

ScratchBytes out_prod_scratch(const KernelArgs&) { return out_scratch(); }

int64_t out_prod_units(const KernelArgs& a) { return out_units(a.dst.ne[0], a.dst.ne[1]); }

void out_prod(const KernelArgs& args, int64_t lo, int64_t hi, int thread) {
  const NodeView &a = args.src[0], &b = args.src[1];
  const auto a_row = [&](int64_t t) { return reinterpret_cast<const float*>(row_of(a, t)); };
  const auto b_row = [&](int64_t t) { return reinterpret_cast<const float*>(row_of(b, t)); };
  for (int64_t u = lo; u < hi; ++u) {
    out_unit(static_cast<float*>(args.dst.data), args.dst.ne[0], args.dst.ne[1], args.dst.nb[1] / 4, u,
             rows_of(a), a_row, b_row, args.thread_scratch + (size_t)thread * args.thread_scratch_stride);
  }
}

}  // namespace

TANDEM_KERNEL(MUL_MAT) = {refuse, scratch, {{convert_units, convert}, {forward_units, forward}}};
TANDEM_KERNEL(MUL_MAT_BACK) = {refuse, scratch, {{convert_units, convert}, {back_units, back}}};
TANDEM_KERNEL(OUT_PROD) = {refuse_out, out_prod_scratch, {{out_prod_units, out_prod}}};

}  // namespace tandem::TANDEM_ISA
