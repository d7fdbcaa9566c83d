// GATED_DELTA_NET  q, k {d_k, H_k, T}, v {d_v, H_v, T}, g, beta {H_v, T}, state {d_k, d_v, H_v} F32,
//   positions {T} I32 -> packed, flat: out {d_v, H_v, T}, the state after the last token {d_k, d_v, H_v}.
//
//   Of each value head, S {d_k, d_v} from `state`, token after token:
//     S = 0 where positions[t] == 0;  S = exp(g_t) S;  e = v_t - S^T k_t;  S += k_t (beta_t e)^T;
//     out_t = S^T q_t / sqrt(d_k).
//   It reads key head h % H_k, or with `grouped` h / (H_v / H_k); H_k divides H_v, T >= 1.  g is at most 0:
//   no kernel guards against growth.
//
// GATED_DELTA_NET_BACK  the same seven, dpacked (of packed's shape) -> flat: dq, dk, dv, dg, dbeta, dstate.
//   Exact backward through time; no gradient crosses the beginning of a sample.
//
// Gradient: q, k, v, g, beta, state, through out and through the state after.
// Source: architectures.md 2.5, gradients.md 10.
// Difference from ggml's GATED_DELTA_NET: positions in place of a dimension of sequences, `grouped`, a decay
// per head only, one state (the last).
#include "ops/gated_delta_net/gated_delta_net.h"

#include <vector>

#include "graph/autodiff.h"
#include "ops/op_util.h"
#include "ops/ops.h"

namespace tandem {
namespace {

// Sources, in both ops.
enum : size_t { kQ, kK, kV, kG, kBeta, kState, kPositions, kDPacked };

int64_t packed_elements(Sources src) { return src[kV]->elements() + src[kState]->elements(); }

// What both ops ask of the seven sources.
void expect_delta(const Node& y, Sources src) {
  for (int i = 0; i <= static_cast<int>(kState); ++i) expect_f32(y, src, i);
  expect_i32(y, src, kPositions);
  const Shape &q = src[kQ]->ne, &v = src[kV]->ne;
  const int64_t d_k = q[0], d_v = v[0], n_k = q[1], n_v = v[1], n = q[2];
  const bool heads = n_k > 0 && n_v > 0 && n_v % n_k == 0 && d_k > 0 && d_v > 0 && n > 0;
  expect_shapes(heads && q == Shape(d_k, n_k, n) && src[kK]->ne == q && v == Shape(d_v, n_v, n), y, src,
                "q and k {d_k, H_k, T} and v {d_v, H_v, T} with H_k a divisor of H_v are needed");
  expect_shapes(src[kG]->ne == Shape(n_v, n) && src[kBeta]->ne == Shape(n_v, n), y, src,
                "sources 3 and 4, g and beta, must be {H_v, T}");
  expect_shapes(src[kState]->ne == Shape(d_k, d_v, n_v), y, src,
                "source 5, the state, must be {d_k, d_v, H_v}");
  expect_shapes(src[kPositions]->ne == Shape(n), y, src, "source 6, the positions, must be {T}");
}

void infer(Node& y, Sources src) {
  expect_delta(y, src);
  y.ne = Shape(packed_elements(src));
}

void infer_back(Node& y, Sources src) {
  expect_delta(y, src);
  expect_f32(y, src, kDPacked);
  expect_shapes(src[kDPacked]->ne == Shape(packed_elements(src)), y, src,
                "source 7 must have the packed shape of GATED_DELTA_NET's result");
  int64_t n = 0;
  for (size_t i = kQ; i <= kState; ++i) n += src[i]->elements();
  y.ne = Shape(n);
}

DeltaHeads heads_of(const Node& node) {
  return params_of<GatedDeltaNetParams>(node).grouped ? DeltaHeads::Grouped : DeltaHeads::Tiled;
}

void back(BackwardCtx& c) {
  const auto source = [&](size_t i) { return c.src(static_cast<int>(i)); };
  const Tensor packed =
      gated_delta_net_back(source(kQ), source(kK), source(kV), source(kG), source(kBeta), source(kState),
                           source(kPositions), c.dout, heads_of(*c.out.node));
  int64_t offset_bytes = 0;
  for (int i = static_cast<int>(kQ); i <= static_cast<int>(kState); ++i) {
    const Shape& ne = c.src(i).shape();
    if (c.needs(i)) c.grad(i, view(packed, ne, offset_bytes));
    offset_bytes += row_bytes(DType::F32, ne.elements());
  }
}

template <class T>
struct Sizes {
  explicit Sizes(const RefArgs<T>& args)
      : d_k(args.src[kQ].ne[0]),
        d_v(args.src[kV].ne[0]),
        n_k(args.src[kQ].ne[1]),
        n_v(args.src[kV].ne[1]),
        n_tokens(args.src[kQ].ne[2]),
        grouped(args.template params<GatedDeltaNetParams>().grouped != 0),
        scale(T(1) / std::sqrt(T(d_k))) {}
  int64_t key_head(int64_t h) const { return grouped ? h / (n_v / n_k) : h % n_k; }
  const int64_t d_k, d_v, n_k, n_v, n_tokens;
  const bool grouped;
  const T scale;
};

// The state of one value head, {d_k, d_v}, and the tokens that it goes through.
template <class T>
class Recurrence {
 public:
  Recurrence(const RefArgs<T>& args, const Sizes<T>& sizes, int64_t head)
      : args_(args),
        n_(sizes),
        h_(head),
        kh_(sizes.key_head(head)),
        s(size()),
        e(static_cast<size_t>(n_.d_v)) {
    for (int64_t j = 0; j < n_.d_v; ++j)
      for (int64_t i = 0; i < n_.d_k; ++i) at(s, i, j) = args.src[kState](i, j, head);
  }

  size_t size() const { return static_cast<size_t>(n_.d_k * n_.d_v); }
  T& at(std::vector<T>& x, int64_t i, int64_t j) const { return x[static_cast<size_t>(i + j * n_.d_k)]; }
  T q(int64_t t, int64_t i) const { return args_.src[kQ](i, kh_, t); }
  T k(int64_t t, int64_t i) const { return args_.src[kK](i, kh_, t); }
  T beta(int64_t t) const { return args_.src[kBeta](h_, t); }
  T decay(int64_t t) const { return std::exp(args_.src[kG](h_, t)); }
  bool begins(int64_t t) const { return args_.src[kPositions].id(t) == 0; }

  // S as token t finds it, decayed, and e = v - S^T k.
  void meet(int64_t t) {
    const T gamma = decay(t);
    for (T& x : s) x = begins(t) ? T(0) : gamma * x;
    for (int64_t j = 0; j < n_.d_v; ++j) {
      T sum = args_.src[kV](j, h_, t);
      for (int64_t i = 0; i < n_.d_k; ++i) sum -= at(s, i, j) * k(t, i);
      e[static_cast<size_t>(j)] = sum;
    }
  }
  // S += k (beta e)^T.
  void write(int64_t t) {
    for (int64_t j = 0; j < n_.d_v; ++j)
      for (int64_t i = 0; i < n_.d_k; ++i) at(s, i, j) += k(t, i) * beta(t) * e[static_cast<size_t>(j)];
  }

 private:
  const RefArgs<T>& args_;
  const Sizes<T>& n_;
  const int64_t h_, kh_;

 public:
  std::vector<T> s, e;
};

template <class T>
void ref(const RefArgs<T>& args) {
  const Sizes<T> n(args);
  for (int64_t h = 0; h < n.n_v; ++h) {
    Recurrence<T> r(args, n, h);
    for (int64_t t = 0; t < n.n_tokens; ++t) {
      r.meet(t);
      r.write(t);
      for (int64_t j = 0; j < n.d_v; ++j) {
        T sum = 0;
        for (int64_t i = 0; i < n.d_k; ++i) sum += r.at(r.s, i, j) * r.q(t, i);
        args.dst(j + n.d_v * (h + n.n_v * t)) = n.scale * sum;
      }
    }
    const int64_t states = n.d_v * n.n_v * n.n_tokens + n.d_k * n.d_v * h;
    for (size_t i = 0; i < r.size(); ++i) args.dst(states + static_cast<int64_t>(i)) = r.s[i];
  }
}

template <class T>
void ref_back(const RefArgs<T>& args) {
  const Sizes<T> n(args);
  const RefTensor<T>& dpacked = args.src[kDPacked];
  const int64_t at_dk = n.d_k * n.n_k * n.n_tokens, at_dv = 2 * at_dk,
                at_dg = at_dv + n.d_v * n.n_v * n.n_tokens, at_dbeta = at_dg + n.n_v * n.n_tokens,
                at_dstate = at_dbeta + n.n_v * n.n_tokens, n_out = n.d_v * n.n_v * n.n_tokens;
  for (int64_t i = 0; i < at_dv; ++i) args.dst(i) = T(0);  // dq and dk: value heads add up
  for (int64_t h = 0; h < n.n_v; ++h) {
    Recurrence<T> r(args, n, h);
    // The decayed states and the errors that each token found.
    std::vector<std::vector<T>> found, error;
    for (int64_t t = 0; t < n.n_tokens; ++t) {
      r.meet(t);
      found.push_back(r.s);
      error.push_back(r.e);
      r.write(t);
    }
    std::vector<T> ds(r.size());  // the gradient of the state after a token
    for (size_t i = 0; i < r.size(); ++i)
      ds[i] = dpacked(n_out + n.d_k * n.d_v * h + static_cast<int64_t>(i));
    for (int64_t t = n.n_tokens - 1; t >= 0; --t) {
      std::vector<T>&s = found[static_cast<size_t>(t)], &e = error[static_cast<size_t>(t)];
      const T beta = r.beta(t), gamma = r.decay(t);
      const int64_t row_k = n.d_k * (n.key_head(h) + n.n_k * t), row_v = n.d_v * (h + n.n_v * t);
      T dbeta = 0, dg = 0;
      for (int64_t j = 0; j < n.d_v; ++j) {
        const T ej = e[static_cast<size_t>(j)], d_out = dpacked(row_v + j) * n.scale;
        T du = 0;
        for (int64_t i = 0; i < n.d_k; ++i) {
          args.dst(row_k + i) += d_out * (r.at(s, i, j) + r.k(t, i) * beta * ej);
          r.at(ds, i, j) += r.q(t, i) * d_out;
          du += r.at(ds, i, j) * r.k(t, i);
        }
        dbeta += du * ej;
        const T de = beta * du;
        args.dst(at_dv + row_v + j) = de;
        for (int64_t i = 0; i < n.d_k; ++i) {
          args.dst(at_dk + row_k + i) += r.at(ds, i, j) * beta * ej - r.at(s, i, j) * de;
          r.at(ds, i, j) -= r.k(t, i) * de;
          dg += r.at(ds, i, j) * r.at(s, i, j);
          r.at(ds, i, j) = r.begins(t) ? T(0) : gamma * r.at(ds, i, j);
        }
      }
      args.dst(at_dg + h + n.n_v * t) = dg;
      args.dst(at_dbeta + h + n.n_v * t) = dbeta;
    }
    for (size_t i = 0; i < r.size(); ++i)
      args.dst(at_dstate + n.d_k * n.d_v * h + static_cast<int64_t>(i)) = ds[i];
  }
}

GatedDeltaNetParams params_for(DeltaHeads heads) { return {heads == DeltaHeads::Grouped}; }

}  // namespace

Tensor gated_delta_net(Tensor q, Tensor k, Tensor v, Tensor g, Tensor beta, Tensor state, Tensor positions,
                       DeltaHeads heads) {
  return q.graph->emit(Op::GATED_DELTA_NET, {q, k, v, g, beta, state, positions}, params_for(heads));
}

Tensor delta_out(Tensor packed, Tensor v) { return view(packed, v.shape()); }

Tensor delta_state(Tensor packed, Tensor v, Tensor state) {
  return view(packed, state.shape(), row_bytes(DType::F32, v.shape().elements()));
}

Tensor gated_delta_net_back(Tensor q, Tensor k, Tensor v, Tensor g, Tensor beta, Tensor state,
                            Tensor positions, Tensor dpacked, DeltaHeads heads) {
  return q.graph->emit(Op::GATED_DELTA_NET_BACK, {q, k, v, g, beta, state, positions, dpacked},
                       params_for(heads));
}

extern const OpDef GATED_DELTA_NET_def{.name = "GATED_DELTA_NET",
                                       .n_src = 7,
                                       .infer = infer,
                                       .backward = back,
                                       .no_grad = 1u << kPositions,
                                       TANDEM_REF(ref)};
extern const OpDef GATED_DELTA_NET_BACK_def{.name = "GATED_DELTA_NET_BACK",
                                            .n_src = 8,
                                            .infer = infer_back,
                                            .backward = kNoGrad,
                                            TANDEM_REF(ref_back)};

}  // namespace tandem
