// FLASH_ATTN  q {D, H, T}, k {D, H_kv, T}, v {Dv, H_kv, T}, k_past {D, H_kv, P}, v_past {Dv, H_kv, P}
//   (both or neither), first_key {T} I32 -> packed, flat: out {Dv, H, T}, lse {H, T}.
//
//   s_j = scale q.k_j for the keys j in [first_key[i], P + i], counted over past and current;
//   lse = log sum_j exp(s_j),  out = sum_j exp(s_j - lse) v_j;  query head h reads kv head h / (H / H_kv).
//   A query that sees no key gives zeros and an lse of -inf.
//
// FLASH_ATTN_BACK  the same six, packed, dpacked (of packed's shape) -> flat: dq, dk, dv and, if there is a
//   past, dk_past, dv_past.
//
//   P_j = exp(s_j - lse),  delta = dout.out - dlse,  dS_j = P_j (dout.v_j - delta);
//   dv_j += P_j dout,  dq += scale dS_j k_j,  dk_j += scale dS_j q.
//
// Gradient: q, k, v, k_past, v_past, through out and through lse.
// Source: gradients.md 6, architectures.md 1.4.
// Difference from ggml's FLASH_ATTN_EXT: first_key in place of a mask tensor; heads before tokens in q, k, v;
// past and current keys are two tensors; the log-sum-exp is part of the result.
#include "ops/flash_attn/flash_attn.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "graph/autodiff.h"
#include "ops/op_util.h"
#include "ops/ops.h"

namespace tandem {
namespace {

// Sources, in both ops.
enum : size_t { kQ, kK, kV, kKPast, kVPast, kFirstKey, kPacked, kDPacked };

int64_t packed_elements(const Shape& q, const Shape& v) { return (v[0] + 1) * q[1] * q[2]; }

void expect_source(const Node& y, Sources src, size_t i) {
  if (!src[i]) fail(Code::Internal, "{}: source {} is absent", op_name(y.op), i);
}

// What both ops ask of q, k, v, the past and first_key.
void expect_attention(const Node& y, Sources src) {
  for (int i = 0; i <= static_cast<int>(kVPast); ++i) expect_f32(y, src, i);
  expect_source(y, src, kFirstKey);
  expect_i32(y, src, kFirstKey);
  const Shape &q = src[kQ]->ne, &k = src[kK]->ne, &v = src[kV]->ne;
  const bool heads =
      k[1] > 0 && q[1] % k[1] == 0 && k == Shape(q[0], k[1], q[2]) && v == Shape(v[0], k[1], q[2]);
  expect_shapes(heads && q[3] == 1, y, src,
                "q {D, H, T}, k {D, H_kv, T} and v {Dv, H_kv, T} with H_kv a divisor of H are needed");
  expect_shapes(src[kFirstKey]->ne == Shape(q[2]), y, src, "source 5, first_key, must be {T}");
  expect_shapes(!src[kKPast] == !src[kVPast], y, src,
                "sources 3 and 4, the past, must be both present or both absent");
  if (!src[kKPast]) return;
  const int64_t n_past = src[kKPast]->ne[2];
  expect_shapes(src[kKPast]->ne == Shape(k[0], k[1], n_past) && src[kVPast]->ne == Shape(v[0], k[1], n_past),
                y, src, "sources 3 and 4, the past, must be {D, H_kv, P} and {Dv, H_kv, P}");
}

void infer(Node& y, Sources src) {
  expect_attention(y, src);
  y.ne = Shape(packed_elements(src[kQ]->ne, src[kV]->ne));
}

void infer_back(Node& y, Sources src) {
  expect_attention(y, src);
  const Shape packed(packed_elements(src[kQ]->ne, src[kV]->ne));
  for (size_t i : {kPacked, kDPacked}) {
    expect_source(y, src, i);
    expect_f32(y, src, static_cast<int>(i));
    expect_shapes(src[i]->ne == packed, y, src,
                  "sources 6 and 7 must have the packed shape of FLASH_ATTN's result");
  }
  int64_t n = 0;
  for (size_t i : {kQ, kK, kV, kKPast, kVPast}) n += src[i] ? src[i]->elements() : 0;
  y.ne = Shape(n);
}

void back(BackwardCtx& c) {
  const auto source = [&](size_t i) { return c.src(static_cast<int>(i)); };
  const float scale = params_of<FlashAttnNodeParams>(*c.out.node).scale;
  const Tensor packed = flash_attn_back(source(kQ), source(kK), source(kV), source(kKPast), source(kVPast),
                                        source(kFirstKey), c.out, c.dout, scale);
  int64_t offset_bytes = 0;
  for (int i = static_cast<int>(kQ); i <= static_cast<int>(kVPast); ++i) {
    const Tensor s = c.src(i);
    if (!s) continue;
    if (c.needs(i)) c.grad(i, view(packed, s.shape(), offset_bytes));
    offset_bytes += row_bytes(DType::F32, s.shape().elements());
  }
}

// The keys and values of a node as one sequence: past, then current.
template <class T>
struct Keys {
  const RefArgs<T>& args;
  int64_t n_past() const { return args.src[kKPast] ? args.src[kKPast].ne[2] : 0; }
  T& k(int64_t d, int64_t head, int64_t j) const { return at(kK, kKPast, d, head, j); }
  T& v(int64_t d, int64_t head, int64_t j) const { return at(kV, kVPast, d, head, j); }
  T& at(size_t current, size_t past, int64_t d, int64_t head, int64_t j) const {
    return j < n_past() ? args.src[past](d, head, j) : args.src[current](d, head, j - n_past());
  }
};

// Calls body(token, head, kv head, first key, last key) for every query.
template <class T, class Body>
void for_queries(const RefArgs<T>& args, Body body) {
  const RefTensor<T>&q = args.src[kQ], &first_key = args.src[kFirstKey];
  const int64_t group = q.ne[1] / args.src[kK].ne[1], n_past = Keys<T>{args}.n_past();
  for (int64_t i = 0; i < q.ne[2]; ++i) {
    for (int64_t h = 0; h < q.ne[1]; ++h) {
      body(i, h, h / group, std::max<int64_t>(first_key.id(i), 0), n_past + i);
    }
  }
}

template <class T>
T score(const RefArgs<T>& args, int64_t i, int64_t head, int64_t head_kv, int64_t j) {
  const RefTensor<T>& q = args.src[kQ];
  T dot = 0;
  for (int64_t d = 0; d < q.ne[0]; ++d) dot += q(d, head, i) * Keys<T>{args}.k(d, head_kv, j);
  return dot * T(args.template params<FlashAttnNodeParams>().scale);
}

template <class T>
void ref(const RefArgs<T>& args) {
  const Keys<T> keys{args};
  const int64_t n_head = args.src[kQ].ne[1], n_out = args.src[kV].ne[0],
                n_query = n_head * args.src[kQ].ne[2];
  std::vector<T> s(static_cast<size_t>(keys.n_past() + args.src[kQ].ne[2]));
  for_queries(args, [&](int64_t i, int64_t head, int64_t head_kv, int64_t first, int64_t last) {
    double top = -std::numeric_limits<double>::infinity();
    for (int64_t j = first; j <= last; ++j) {
      s[static_cast<size_t>(j)] = score(args, i, head, head_kv, j);
      top = std::max(top, re(s[static_cast<size_t>(j)]));
    }
    T sum = 0;
    for (int64_t j = first; j <= last; ++j) {
      T& p = s[static_cast<size_t>(j)];
      p = std::exp(p - T(top));
      sum += p;
    }
    const int64_t query = i * n_head + head;
    for (int64_t d = 0; d < n_out; ++d) {
      T out = 0;
      for (int64_t j = first; j <= last; ++j) out += s[static_cast<size_t>(j)] * keys.v(d, head_kv, j);
      args.dst(query * n_out + d) = first <= last ? out / sum : T(0);
    }
    args.dst(n_query * n_out + query) = first <= last ? T(top) + std::log(sum) : T(top);
  });
}

template <class T>
void ref_back(const RefArgs<T>& args) {
  const Keys<T> keys{args};
  const RefTensor<T>&q = args.src[kQ], &packed = args.src[kPacked], &dpacked = args.src[kDPacked];
  const int64_t n = q.ne[0], n_out = args.src[kV].ne[0], n_head = q.ne[1], n_head_kv = args.src[kK].ne[1];
  const int64_t n_query = n_head * q.ne[2], n_kv = n_head_kv * q.ne[2], n_kv_past = n_head_kv * keys.n_past();
  const int64_t at_dk = n * n_query, at_dv = at_dk + n * n_kv, at_dk_past = at_dv + n_out * n_kv;
  const int64_t at_dv_past = at_dk_past + n * n_kv_past;
  const T scale(args.template params<FlashAttnNodeParams>().scale);
  for (int64_t e = 0; e < args.dst.ne[0]; ++e) args.dst(e) = T(0);
  for_queries(args, [&](int64_t i, int64_t head, int64_t head_kv, int64_t first, int64_t last) {
    const int64_t query = i * n_head + head;
    const auto dout = [&](int64_t d) { return dpacked(query * n_out + d); };
    T delta = -dpacked(n_query * n_out + query);
    for (int64_t d = 0; d < n_out; ++d) delta += dout(d) * packed(query * n_out + d);
    for (int64_t j = first; j <= last; ++j) {
      const bool past = j < keys.n_past();
      const int64_t row = (past ? j : j - keys.n_past()) * n_head_kv + head_kv;
      const int64_t dk = (past ? at_dk_past : at_dk) + row * n,
                    dv = (past ? at_dv_past : at_dv) + row * n_out;
      const T p = std::exp(score(args, i, head, head_kv, j) - packed(n_query * n_out + query));
      T dp = 0;
      for (int64_t d = 0; d < n_out; ++d) {
        dp += dout(d) * keys.v(d, head_kv, j);
        args.dst(dv + d) += p * dout(d);
      }
      const T ds = scale * p * (dp - delta);
      for (int64_t d = 0; d < n; ++d) {
        args.dst(query * n + d) += ds * keys.k(d, head_kv, j);
        args.dst(dk + d) += ds * q(d, head, i);
      }
    }
  });
}

}  // namespace

Tensor flash_attn(Tensor q, Tensor k, Tensor v, Tensor k_past, Tensor v_past, Tensor first_key, float scale) {
  return q.graph->emit(Op::FLASH_ATTN, {q, k, v, k_past, v_past, first_key}, FlashAttnNodeParams{scale});
}

Tensor attn_out(Tensor packed, Tensor q, Tensor v) { return view(packed, {v.ne(0), q.ne(1), q.ne(2)}); }

Tensor attn_lse(Tensor packed, Tensor q, Tensor v) {
  return view(packed, {q.ne(1), q.ne(2)}, row_bytes(DType::F32, v.ne(0) * q.ne(1) * q.ne(2)));
}

Tensor flash_attn_back(Tensor q, Tensor k, Tensor v, Tensor k_past, Tensor v_past, Tensor first_key,
                       Tensor packed, Tensor dout, float scale) {
  return q.graph->emit(Op::FLASH_ATTN_BACK, {q, k, v, k_past, v_past, first_key, packed, dout},
                       FlashAttnNodeParams{scale});
}

// Absent sources are checked by the shape rules: the optional ones stand between required ones.
extern const OpDef FLASH_ATTN_def{.name = "FLASH_ATTN",
                                  .n_src = 6,
                                  .n_required = 3,
                                  .infer = infer,
                                  .backward = back,
                                  .no_grad = 1u << kFirstKey,
                                  TANDEM_REF(ref)};
extern const OpDef FLASH_ATTN_BACK_def{.name = "FLASH_ATTN_BACK",
                                       .n_src = 8,
                                       .n_required = 3,
                                       .infer = infer_back,
                                       .backward = kNoGrad,
                                       TANDEM_REF(ref_back)};

}  // namespace tandem
