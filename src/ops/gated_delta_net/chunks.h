// Chunks of a value head's tokens, forward: what the kernels of this folder share.  A chunk has up to 64
// tokens; it ends where a sample begins and, so that it does not matter how a sample is cut into ranges,
// before positions that are multiples of 64.  Rows of a chunk's matrices are tokens.  S lies in scratch with
// the value index fastest, except where a product needs it turned.  Source: gradients.md 10.3, 10.6.
#pragma once
#include <math.h>

#include "base/kernel.h"
#include "base/simd.h"
#include "ops/gated_delta_net/gated_delta_net.h"
#include "ops/gated_delta_net/tiles.h"

namespace tandem::TANDEM_ISA {
namespace {

constexpr int64_t kChunk = 64;

enum { kQ, kK, kV, kG, kBeta, kState, kPositions, kDPacked };

// The sizes of a node, and where its rows are.
struct Delta {
  explicit Delta(const KernelArgs& a)
      : args(a),
        d_k(a.src[kQ].ne[0]),
        d_v(a.src[kV].ne[0]),
        n_k(a.src[kQ].ne[1]),
        n_v(a.src[kV].ne[1]),
        group(n_v / n_k),
        n_tokens(a.src[kQ].ne[2]),
        k_stride(stride_of(d_k)),
        v_stride(stride_of(d_v)),
        scale(1.f / sqrtf((float)d_k)),
        grouped(static_cast<const GatedDeltaNetParams*>(a.params)->grouped != 0) {}

  int64_t key_head(int64_t h) const { return grouped ? h / group : h % n_k; }
  // The i-th of the value heads that read a key head.
  int64_t value_head(int64_t key, int64_t i) const { return grouped ? key * group + i : key + i * n_k; }

  // Row {ne0} of a head and a token.
  const float* row(int source, int64_t head, int64_t token) const {
    const NodeView& t = args.src[source];
    return reinterpret_cast<const float*>(static_cast<const char*>(t.data) + head * t.nb[1] +
                                          token * t.nb[2]);
  }
  float gate(int source, int64_t head, int64_t token) const {
    const NodeView& t = args.src[source];
    return *reinterpret_cast<const float*>(static_cast<const char*>(t.data) + head * t.nb[0] +
                                           token * t.nb[1]);
  }
  // Rows of the state are values, their numbers key channels.
  const float* state(int64_t head) const { return row(kState, 0, head); }
  int64_t state_stride() const { return args.src[kState].nb[1] / 4; }
  const int32_t* positions() const { return static_cast<const int32_t*>(args.src[kPositions].data); }
  bool begins(int64_t token) const { return positions()[token] == 0; }

  // Where in a packed result, or its gradient, a token's row and a head's state are.
  int64_t packed_row(int64_t head, int64_t token) const { return (token * n_v + head) * d_v; }
  int64_t packed_state(int64_t head) const { return d_v * n_v * n_tokens + head * d_k * d_v; }

  // The end of the chunk that begins at `lo`.
  int64_t chunk_end(int64_t lo) const {
    const int64_t first = positions()[0] > 0 ? positions()[0] : 0;
    const int64_t most = smaller(n_tokens, lo + (lo ? kChunk : kChunk - first % kChunk));
    int64_t hi = lo + 1;
    while (hi < most && !begins(hi)) ++hi;
    return hi;
  }
  // Chunks that neither begin a sample nor the range: each follows one of 64 tokens, or the range's first.
  int64_t most_stored() const { return n_tokens / kChunk + 1; }

  const KernelArgs& args;
  const int64_t d_k, d_v, n_k, n_v, group, n_tokens, k_stride, v_stride;
  const float scale;
  const bool grouped;
};

constexpr int64_t kSquare = 80;  // floats from row to row of a matrix {chunk, chunk}: 5 cache lines
static_assert(kSquare >= kChunk && kSquare / 16 % 2 == 1);

// Hands out pieces of a region, or counts what they need if there is none.
struct Pieces {
  float* at = nullptr;
  int64_t n = 0;
  float* take(int64_t floats) {
    float* const p = at ? at + n : nullptr;
    n += ceil_div(floats, 16) * 16;
    return p;
  }
  float* take_square() { return take(kChunk * kSquare); }
};

// What a chunk's log-decays and betas make.  b_t is the sum of g up to and with t.
struct Gates {
  void load_chunk(const Delta& t, int64_t head, int64_t lo, int64_t hi) {
    n = hi - lo;
    double b[kChunk], sum = 0;
    for (int64_t i = 0; i < n; ++i) {
      sum += (double)t.gate(kG, head, lo + i);
      b[i] = sum;
      beta[i] = t.gate(kBeta, head, lo + i);
    }
    // Differences of b are taken of two floats each, in which nothing of the common sum is lost.
    for (int64_t i = 0; i < kChunk; ++i) {
      const double x = i < n ? b[i] : 0;
      high[i] = (float)x;
      low[i] = (float)(x - (double)high[i]);
      before[i] = high[i];
      after[i] = i < n ? (float)(sum - x) : 0;
    }
    for (int64_t i = 0; i < kChunk; i += kLanes) {
      store(before + i, exp(load(before + i)));
      store(after + i, exp(load(after + i)));
    }
    total = before[n - 1];
  }

  // e^(b_i - b_j) for the vector of tokens j that begins at `first`; anything where j > i.
  Vec decay(int64_t i, int64_t first) const {
    return exp(add(sub(set1(high[i]), load(high + first)), sub(set1(low[i]), load(low + first))));
  }

  int64_t n = 0;
  float total = 0;  // the decay of the state over the chunk
  float beta[kChunk];
  float before[kChunk];             // e^b: the decay of the state before the chunk
  float after[kChunk];              // the decay from a token to the chunk's end
  float high[kChunk], low[kChunk];  // b
};

// The numbers of the lanes, counted from `first`.
inline IVec lanes_from(int64_t first) {
  IVec v;
  for (int i = 0; i < kLanes; ++i) v[i] = i;
  return v + (int32_t)first;
}

// Q scaled, then K, one below the other: {d_k, 2n}; and K transposed, {n, d_k}.
inline void load_keys(const Delta& t, int64_t key, int64_t lo, int64_t n, bool with_q, float* qk,
                      float* k_turned) {
  float* const k = qk + n * t.k_stride;
  for (int64_t i = 0; i < n; ++i) {
    if (with_q) load_row(t.row(kQ, key, lo + i), t.d_k, t.scale, qk + i * t.k_stride);
    load_row(t.row(kK, key, lo + i), t.d_k, 1.f, k + i * t.k_stride);
  }
  transpose(k, t.k_stride, n, t.d_k, k_turned, kSquare);
  pad(k_turned, kSquare, t.d_k, n);
}

// On and below the diagonal, y = P x with P_ij = e^(b_i - b_j); zeros above.  `strict`: on it too.
inline void apply_decay(const Gates& gates, bool strict, const float* x, float* y) {
  for (int64_t i = 0; i < gates.n; ++i)
    for (int64_t j = 0; j < gates.n; j += kLanes) {
      const float* from = x + i * kSquare + j;
      float* to = y + i * kSquare + j;
      const IVec keep = lanes_from(j) <= (IVec{} + (int32_t)(strict ? i - 1 : i));
      store(to, j <= i ? (keep ? mul(gates.decay(i, j), load(from)) : zero()) : zero());
    }
}

// Solves E + L U = E0, U = beta E for E (in place of E0) and U; L {n, n} strictly lower triangular.
inline void solve(const Gates& gates, const float* l, int64_t columns, int64_t stride, float* e, float* u) {
  for (int64_t block = 0; block < gates.n; block += kTriangle) {
    const int64_t end = smaller(block + kTriangle, gates.n);
    if (block) {
      multiply<Into::Sub>(plain(l + block * kSquare, kSquare), end - block, block, u, stride, columns,
                          e + block * stride, stride);
    }
    for (int64_t i = block; i < end; ++i) {
      if (i > block) {
        multiply<Into::Sub>(plain(l + i * kSquare + block, kSquare), 1, i - block, u + block * stride, stride,
                            columns, e + i * stride, stride);
      }
      scale_row(e + i * stride, columns, gates.beta[i], u + i * stride);
    }
  }
}

// The scratch of a sweep forward over one value head.
struct Sweep {
  Sweep(const Delta& t, float* scratch) {
    Pieces p{scratch};
    s = p.take(t.d_k * t.v_stride);
    qk = p.take(2 * kChunk * t.k_stride);
    k_turned = p.take(t.d_k * kSquare);
    read = p.take(2 * kChunk * t.v_stride);
    e = p.take(kChunk * t.v_stride);
    u = p.take(kChunk * t.v_stride);
    qk_square = p.take_square();
    kk_square = p.take_square();
    n_floats = p.n;
  }
  float *s, *qk, *k_turned;
  float* read;  // Q S, then K S
  float *e, *u;
  float *qk_square, *kk_square;
  int64_t n_floats;
};

// One chunk of a value head: from S before it to S after it.  With `out`, its rows of the result; with
// `error` {d_v, n}, E instead.  `last`: nobody needs S after it.
inline void sweep_chunk(const Delta& t, int64_t head, int64_t lo, int64_t hi, bool fresh, const Sweep& w,
                        bool out, float* error, bool last) {
  const int64_t n = hi - lo;
  Gates gates;
  gates.load_chunk(t, head, lo, hi);
  load_keys(t, t.key_head(head), lo, n, out, w.qk, w.k_turned);
  const float* const k = w.qk + n * t.k_stride;
  float* const read_k = w.read + n * t.v_stride;
  if (fresh) {
    fill_zero(w.read, t.v_stride, 2 * n);
  } else if (out) {
    multiply<Into::Set>(plain(w.qk, t.k_stride), 2 * n, t.d_k, w.s, t.v_stride, t.d_v, w.read, t.v_stride);
  } else {
    multiply<Into::Set>(plain(k, t.k_stride), n, t.d_k, w.s, t.v_stride, t.d_v, read_k, t.v_stride);
  }
  multiply_to_lower(k, t.k_stride, n, t.d_k, w.k_turned, kSquare, w.kk_square, kSquare);
  apply_decay(gates, true, w.kk_square, w.kk_square);
  float* const e = error ? error : w.e;
  for (int64_t i = 0; i < n; ++i) {
    load_row(t.row(kV, head, lo + i), t.d_v, 1.f, e + i * t.v_stride);
    const Vec f = set1(-gates.before[i]);
    for (int64_t j = 0; j < t.d_v; j += kLanes) {
      float* x = e + i * t.v_stride + j;
      store(x, fma(f, load(read_k + i * t.v_stride + j), load(x)));
    }
  }
  solve(gates, w.kk_square, t.d_v, t.v_stride, e, w.u);
  if (out) {
    multiply_to_lower(w.qk, t.k_stride, n, t.d_k, w.k_turned, kSquare, w.qk_square, kSquare);
    apply_decay(gates, false, w.qk_square, w.qk_square);
    for (int64_t i = 0; i < n; ++i)
      scale_row(w.read + i * t.v_stride, t.d_v, gates.before[i], w.read + i * t.v_stride);
    multiply_lower<Into::Add>(w.qk_square, kSquare, n, w.u, t.v_stride, t.d_v, w.read, t.v_stride);
    float* const dst = static_cast<float*>(t.args.dst.data);
    for (int64_t i = 0; i < n; ++i)
      store_row(w.read + i * t.v_stride, t.d_v, 1.f, dst + t.packed_row(head, lo + i));
  }
  if (last) return;
  for (int64_t i = 0; i < n; ++i)
    scale_row(w.u + i * t.v_stride, t.d_v, gates.after[i], w.u + i * t.v_stride);
  if (fresh) {
    multiply<Into::Set>(turned(k, t.k_stride), t.d_k, n, w.u, t.v_stride, t.d_v, w.s, t.v_stride);
  } else {
    multiply<Into::Scaled>(turned(k, t.k_stride), t.d_k, n, w.u, t.v_stride, t.d_v, w.s, t.v_stride,
                           gates.total);
  }
}

inline void load_state(const Delta& t, int64_t head, float* s) {
  transpose(t.state(head), t.state_stride(), t.d_v, t.d_k, s, t.v_stride);
  pad(s, t.v_stride, t.d_k, t.d_v);
}

inline float* scratch_of(const KernelArgs& a, int thread) {
  return reinterpret_cast<float*>(a.thread_scratch + (size_t)thread * a.thread_scratch_stride);
}

// Of both ops: q, k, v may have any strides between heads and tokens, g and beta any at all; the state's rows
// are contiguous.
inline const char* refuse(const KernelArgs& a) {
  for (int s = 0; s < a.n_src; ++s)
    if (s != kG && s != kBeta && a.src[s].nb[0] != 4) return "rows must be contiguous";
  return nullptr;
}

}  // namespace
}  // namespace tandem::TANDEM_ISA
