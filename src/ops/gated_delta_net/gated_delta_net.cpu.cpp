// A value head is worked through in chunks of up to 64 tokens, cut where a sample begins and, so that it does
// not matter how a sample is cut into ranges, where a position is a multiple of 64 behind a range's first.
// Rows of a chunk's matrices are tokens.  S lies in scratch with the value index fastest, except where a
// product needs it turned.  Few tokens (decoding) go through the recurrence as it stands, some rows of the
// state at a time. Source: gradients.md 10.3, 10.4, 10.6.
#include "ops/gated_delta_net/gated_delta_net.h"

#include <math.h>

#include "base/kernel.h"
#include "base/simd.h"
#include "ops/gated_delta_net/tiles.h"

namespace tandem::TANDEM_ISA {
namespace {

constexpr int64_t kChunk = 64;
constexpr int64_t kFewTokens = 16;  // fewer go through the recurrence
constexpr int64_t kFewRows = 32;    // of the state, to a unit of those

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

// e^x of one number, as a lane computes it.
inline float exp_of(float x) { return exp(set1(x))[0]; }

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
void load_keys(const Delta& t, int64_t key, int64_t lo, int64_t n, bool with_q, float* qk, float* k_turned) {
  float* const k = qk + n * t.k_stride;
  for (int64_t i = 0; i < n; ++i) {
    if (with_q) load_row(t.row(kQ, key, lo + i), t.d_k, t.scale, qk + i * t.k_stride);
    load_row(t.row(kK, key, lo + i), t.d_k, 1.f, k + i * t.k_stride);
  }
  transpose(k, t.k_stride, n, t.d_k, k_turned, kSquare);
  pad(k_turned, kSquare, t.d_k, n);
}

// On and below the diagonal, y = P x with P_ij = e^(b_i - b_j); zeros above.  `strict`: on it too.
void apply_decay(const Gates& gates, bool strict, const float* x, float* y) {
  for (int64_t i = 0; i < gates.n; ++i)
    for (int64_t j = 0; j < gates.n; j += kLanes) {
      const float* from = x + i * kSquare + j;
      float* to = y + i * kSquare + j;
      const IVec keep = lanes_from(j) <= (IVec{} + (int32_t)(strict ? i - 1 : i));
      store(to, j <= i ? (keep ? mul(gates.decay(i, j), load(from)) : zero()) : zero());
    }
}

// Solves E + L U = E0, U = beta E for E (in place of E0) and U; L {n, n} strictly lower triangular.
void solve(const Gates& gates, const float* l, int64_t columns, int64_t stride, float* e, float* u) {
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

// The transpose of the same: solves R + L^T V = D, V = beta R for R (in place of D) and V.
void solve_turned(const Gates& gates, const float* l, int64_t columns, int64_t stride, float* r, float* v) {
  const int64_t n = gates.n;
  for (int64_t block = (n - 1) / kTriangle * kTriangle; block >= 0; block -= kTriangle) {
    const int64_t end = smaller(block + kTriangle, n);
    if (end < n) {
      multiply<Into::Sub>(turned(l + end * kSquare + block, kSquare), end - block, n - end, v + end * stride,
                          stride, columns, r + block * stride, stride);
    }
    for (int64_t i = end - 1; i >= block; --i) {
      if (i + 1 < end) {
        multiply<Into::Sub>(turned(l + (i + 1) * kSquare + i, kSquare), 1, end - i - 1, v + (i + 1) * stride,
                            stride, columns, r + i * stride, stride);
      }
      scale_row(r + i * stride, columns, gates.beta[i], v + i * stride);
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
void sweep_chunk(const Delta& t, int64_t head, int64_t lo, int64_t hi, bool fresh, const Sweep& w, bool out,
                 float* error, bool last) {
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

void load_state(const Delta& t, int64_t head, float* s) {
  transpose(t.state(head), t.state_stride(), t.d_v, t.d_k, s, t.v_stride);
  pad(s, t.v_stride, t.d_k, t.d_v);
}

float* scratch_of(const KernelArgs& a, int thread) {
  return reinterpret_cast<float*>(a.thread_scratch + (size_t)thread * a.thread_scratch_stride);
}

void forward_head(const Delta& t, int64_t head, float* scratch) {
  const Sweep w(t, scratch);
  if (!t.begins(0)) load_state(t, head, w.s);
  for (int64_t lo = 0; lo < t.n_tokens;) {
    const int64_t hi = t.chunk_end(lo);
    sweep_chunk(t, head, lo, hi, t.begins(lo), w, true, nullptr, false);
    lo = hi;
  }
  float* const dst = static_cast<float*>(t.args.dst.data);
  transpose(w.s, t.v_stride, t.d_k, t.d_v, dst + t.packed_state(head), t.d_k);
}

// --- few tokens

struct FewTokens {
  FewTokens(const Delta& t, float* scratch) {
    Pieces p{scratch};
    q = p.take(kFewTokens * t.k_stride);
    k = p.take(kFewTokens * t.k_stride);
    rows = p.take(4 * t.k_stride);
    n_floats = p.n;
  }
  float *q, *k, *rows;
  float decay[kFewTokens], beta[kFewTokens];
  int64_t n_floats;
};

// Rows [first, first + R) of a head's state through all tokens.
template <int R>
TANDEM_INLINE void recur(const Delta& t, int64_t head, int64_t first, const FewTokens& w) {
  float* const dst = static_cast<float*>(t.args.dst.data);
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r)
    load_row(t.state(head) + (first + r) * t.state_stride(), t.d_k, 1.f, w.rows + r * t.k_stride);
  for (int64_t i = 0; i < t.n_tokens; ++i) {
    if (t.begins(i)) fill_zero(w.rows, t.k_stride, R);
    const float *const q = w.q + i * t.k_stride, *const k = w.k + i * t.k_stride;
    const float* const v = t.row(kV, head, i) + first;
    const Vec decay = set1(w.decay[i]);
    Vec sum[R], u[R];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) sum[r] = zero();
    for (int64_t e = 0; e < t.d_k; e += kLanes) {
      const Vec key = load(k + e);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        float* const x = w.rows + r * t.k_stride + e;
        const Vec s = mul(decay, load(x));
        store(x, s);
        sum[r] = fma(s, key, sum[r]);
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      u[r] = set1(w.beta[i] * (v[r] - reduce_add(sum[r])));
      sum[r] = zero();
    }
    for (int64_t e = 0; e < t.d_k; e += kLanes) {
      const Vec key = load(k + e), query = load(q + e);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        float* const x = w.rows + r * t.k_stride + e;
        const Vec s = fma(u[r], key, load(x));
        store(x, s);
        sum[r] = fma(s, query, sum[r]);
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) dst[t.packed_row(head, i) + first + r] = reduce_add(sum[r]);
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r)
    store_row(w.rows + r * t.k_stride, t.d_k, 1.f, dst + t.packed_state(head) + (first + r) * t.d_k);
}

void few_tokens(const Delta& t, int64_t head, int64_t lo, int64_t hi, float* scratch) {
  FewTokens w(t, scratch);
  for (int64_t i = 0; i < t.n_tokens; ++i) {
    load_row(t.row(kQ, t.key_head(head), i), t.d_k, t.scale, w.q + i * t.k_stride);
    load_row(t.row(kK, t.key_head(head), i), t.d_k, 1.f, w.k + i * t.k_stride);
    w.decay[i] = exp_of(t.gate(kG, head, i));
    w.beta[i] = t.gate(kBeta, head, i);
  }
  int64_t j = lo;
  for (; j + 4 <= hi; j += 4) recur<4>(t, head, j, w);
  for (; j < hi; ++j) recur<1>(t, head, j, w);
}

int64_t units(const KernelArgs& a) {
  const Delta t(a);
  return t.n_tokens < kFewTokens ? t.n_v * ceil_div(t.d_v, kFewRows) : t.n_v;
}

void run(const KernelArgs& a, int64_t begin, int64_t end, int thread) {
  const Delta t(a);
  for (int64_t u = begin; u < end; ++u) {
    if (t.n_tokens >= kFewTokens) {
      forward_head(t, u, scratch_of(a, thread));
      continue;
    }
    const int64_t per_head = ceil_div(t.d_v, kFewRows), lo = u % per_head * kFewRows;
    few_tokens(t, u / per_head, lo, smaller(lo + kFewRows, t.d_v), scratch_of(a, thread));
  }
}

ScratchBytes scratch(const KernelArgs& a) {
  const Delta t(a);
  const int64_t n = t.n_tokens < kFewTokens ? FewTokens(t, nullptr).n_floats : Sweep(t, nullptr).n_floats;
  return {0, (size_t)n * sizeof(float)};
}

// --- backward

// What the first phase leaves of each value head.
struct Kept {
  explicit Kept(const Delta& t, float* shared) {
    Pieces p{shared};
    states = p.take(t.n_v * t.most_stored() * t.d_v * t.k_stride);
    errors = p.take(t.n_v * t.n_tokens * t.v_stride);
    n_floats = p.n;
  }
  // S before the i-th of the chunks that begin neither a sample nor the range, key index fastest.
  float* state(const Delta& t, int64_t head, int64_t i) const {
    return states + (head * t.most_stored() + i) * t.d_v * t.k_stride;
  }
  // E of a token and those behind it.
  float* error(const Delta& t, int64_t head, int64_t token) const {
    return errors + (head * t.n_tokens + token) * t.v_stride;
  }
  float *states, *errors;
  int64_t n_floats;
};

Kept kept_of(const Delta& t) { return Kept(t, reinterpret_cast<float*>(t.args.shared_scratch)); }

int64_t units_sweep(const KernelArgs& a) { return a.src[kV].ne[1]; }

void run_sweep(const KernelArgs& a, int64_t begin, int64_t end, int thread) {
  const Delta t(a);
  const Kept kept = kept_of(t);
  const Sweep w(t, scratch_of(a, thread));
  for (int64_t head = begin; head < end; ++head) {
    if (!t.begins(0)) load_state(t, head, w.s);
    int64_t stored = 0;
    for (int64_t lo = 0; lo < t.n_tokens;) {
      const int64_t hi = t.chunk_end(lo);
      if (lo && !t.begins(lo)) {
        float* const to = kept.state(t, head, stored++);
        transpose(w.s, t.v_stride, t.d_k, t.d_v, to, t.k_stride);
        pad(to, t.k_stride, t.d_v, t.d_k);
      }
      const bool last = hi == t.n_tokens || t.begins(hi);
      sweep_chunk(t, head, lo, hi, t.begins(lo), w, false, kept.error(t, head, lo), last);
      lo = hi;
    }
  }
}

// The scratch of the second phase, for one key head.
struct Reverse {
  Reverse(const Delta& t, float* scratch) {
    Pieces p{scratch};
    ends = reinterpret_cast<int64_t*>(p.take(2 * t.n_tokens));
    qk = p.take(2 * kChunk * t.k_stride);
    k_turned = p.take(t.d_k * kSquare);
    dq = p.take(kChunk * t.k_stride);
    dk = p.take(kChunk * t.k_stride);
    ds = p.take(t.group * t.d_k * t.v_stride);
    ds_turned = p.take(t.d_v * t.k_stride);
    s_turned = p.take(t.d_v * t.k_stride);
    d_out = p.take(kChunk * t.v_stride);
    u = p.take(kChunk * t.v_stride);
    u_turned = p.take(t.d_v * kSquare);
    du = p.take(kChunk * t.v_stride);
    dv = p.take(kChunk * t.v_stride);
    y = p.take(2 * kChunk * t.v_stride);
    z = p.take(2 * kChunk * t.k_stride);
    kk_square = p.take_square();
    qk_square = p.take_square();
    p_square = p.take_square();
    l_square = p.take_square();
    a_square = p.take_square();
    da_square = p.take_square();
    w_square = p.take_square();
    mix = p.take(2 * kChunk * kSquare);
    n_floats = p.n;
  }
  int64_t* ends;  // of the chunks
  // Of the key head.
  float *qk, *k_turned, *dq, *dk;
  // Of a value head: the gradient of S, one for each head and the one at work turned; S before the chunk.
  float *ds, *ds_turned, *s_turned;
  // Rows of tokens: d_out, u and the gradients of u (then of R) and v.
  float *d_out, *u, *u_turned, *du, *dv;
  float* y;  // e^b d_out, then -e^b dv
  float* z;  // y S^T
  // {chunk, chunk}: k k^T and q k^T as they are; P; P k k^T below the diagonal; P q k^T; the gradient of the
  // latter; dv u^T below the diagonal.
  float *kk_square, *qk_square, *p_square, *l_square, *a_square, *da_square, *w_square;
  float* mix;  // what multiplies [q; k] into dk, one below the other
  int64_t n_floats;
};

// db, of which dg is the sum from a token to the chunk's end.
struct DecayGradient {
  float of[kChunk];
  float columns[kChunk];  // sums over the rows of Y
};

// mix = [dA P; N] with N = M + M^T, M = -(dv u^T) P below the diagonal; row and column sums of Y.
// Y = dA A - (dv u^T) L below the diagonal.  Source: gradients.md 10.4, where M = dL D(beta) P and dR beta =
// dv.
void mix_squares(const Gates& gates, const Reverse& w, DecayGradient& db) {
  const int64_t n = gates.n;
  for (int64_t j = 0; j < kChunk; ++j) db.columns[j] = 0;
  for (int64_t i = 0; i < n; ++i) {
    Vec row_sum = zero();
    for (int64_t j = 0; j < n; j += kLanes) {
      const int64_t at = i * kSquare + j;
      const IVec below = lanes_from(j) < (IVec{} + (int32_t)i),
                 within = lanes_from(j) <= (IVec{} + (int32_t)i);
      const Vec da = within ? load(w.da_square + at) : zero(), wij = below ? load(w.w_square + at) : zero();
      const Vec p = load(w.p_square + at);
      store(w.mix + at, mul(da, p));
      store(w.mix + n * kSquare + at, mul(sub(zero(), wij), p));
      const Vec a = below ? load(w.a_square + at) : zero();
      const Vec y = sub(mul(da, a), mul(wij, load(w.l_square + at)));
      row_sum = add(row_sum, y);
      store(db.columns + j, add(load(db.columns + j), y));
    }
    db.of[i] = reduce_add(row_sum);
  }
  float* const m = w.mix + n * kSquare;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < i; ++j) m[j * kSquare + i] = m[i * kSquare + j];
}

// One chunk of a value head, backward: adds to dq (of the scaled q) and dk, writes dv, dg and dbeta, and
// turns the gradient of S after the chunk into that of S before it.  s: S before it, key index fastest; null:
// zero.
void reverse_chunk(const Delta& t, int64_t head, int64_t lo, int64_t n, const float* s, const float* error,
                   const Reverse& w, float* ds) {
  const float* const dpacked = static_cast<const float*>(t.args.src[kDPacked].data);
  float* const dst = static_cast<float*>(t.args.dst.data);
  const int64_t ks = t.k_stride, vs = t.v_stride;
  const float* const k = w.qk + n * ks;
  Gates gates;
  gates.load_chunk(t, head, lo, lo + n);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; j += kLanes) {
      const IVec keep = lanes_from(j) <= (IVec{} + (int32_t)i);
      store(w.p_square + i * kSquare + j, j <= i ? (keep ? gates.decay(i, j) : zero()) : zero());
    }
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; j += kLanes) {
      const int64_t at = i * kSquare + j;
      const IVec below = lanes_from(j) < (IVec{} + (int32_t)i),
                 within = lanes_from(j) <= (IVec{} + (int32_t)i);
      const Vec p = load(w.p_square + at);
      store(w.l_square + at, below ? mul(p, load(w.kk_square + at)) : zero());
      store(w.a_square + at, within ? mul(p, load(w.qk_square + at)) : zero());
    }
  for (int64_t i = 0; i < n; ++i) {
    load_row(dpacked + t.packed_row(head, lo + i), t.d_v, 1.f, w.d_out + i * vs);
    scale_row(error + i * vs, t.d_v, gates.beta[i], w.u + i * vs);
  }
  transpose(w.u, vs, n, t.d_v, w.u_turned, kSquare);
  pad(w.u_turned, kSquare, t.d_v, n);
  transpose(ds, vs, t.d_k, t.d_v, w.ds_turned, ks);
  pad(w.ds_turned, ks, t.d_v, t.d_k);

  // The gradient of u, then of R = beta E0 and of v.
  float tau[kChunk];
  multiply<Into::Set>(plain(k, ks), n, t.d_k, ds, vs, t.d_v, w.du, vs);
  for (int64_t i = 0; i < n; ++i) {
    scale_row(w.du + i * vs, t.d_v, gates.after[i], w.du + i * vs);
    tau[i] = dot(w.du + i * vs, w.u + i * vs, t.d_v);
  }
  multiply_lower_turned<Into::Add>(w.a_square, kSquare, n, n, w.d_out, vs, t.d_v, w.du, vs);
  solve_turned(gates, w.l_square, t.d_v, vs, w.du, w.dv);

  multiply_to_lower(w.d_out, vs, n, t.d_v, w.u_turned, kSquare, w.da_square, kSquare);
  multiply_to_lower(w.dv, vs, n, t.d_v, w.u_turned, kSquare, w.w_square, kSquare);
  DecayGradient db;
  mix_squares(gates, w, db);

  for (int64_t i = 0; i < n; ++i) {
    scale_row(w.d_out + i * vs, t.d_v, gates.before[i], w.y + i * vs);
    scale_row(w.dv + i * vs, t.d_v, -gates.before[i], w.y + (n + i) * vs);
    scale_row(w.u + i * vs, t.d_v, gates.after[i], w.u + i * vs);
  }
  if (s) {
    multiply<Into::Set>(plain(w.y, vs), 2 * n, t.d_v, s, ks, t.d_k, w.z, ks);
    for (int64_t i = 0; i < n; ++i) {
      const float *const zq = w.z + i * ks, *const zk = w.z + (n + i) * ks;
      db.of[i] += dot(w.qk + i * ks, zq, t.d_k) + dot(k + i * ks, zk, t.d_k);
      for (int64_t e = 0; e < t.d_k; e += kLanes) {
        float *const dq = w.dq + i * ks + e, *const dk = w.dk + i * ks + e;
        store(dq, add(load(dq), load(zq + e)));
        store(dk, add(load(dk), load(zk + e)));
      }
    }
  }
  multiply_lower<Into::Add>(w.mix, kSquare, n, k, ks, t.d_k, w.dq, ks);
  multiply_lower_turned<Into::Add>(w.mix, kSquare, n, 2 * n, w.qk, ks, t.d_k, w.dk, ks);
  multiply<Into::Add>(plain(w.u, vs), n, t.d_v, w.ds_turned, ks, t.d_k, w.dk, ks);

  float of_total = 0, of_after = 0;
  for (int64_t j = 0; s && j < t.d_v; ++j) of_total += dot(w.ds_turned + j * ks, s + j * ks, t.d_k);
  for (int64_t i = 0; i < n; ++i) of_after += tau[i];
  double sum = (double)of_after + (double)(gates.total * of_total);
  const int64_t at_dv = 2 * t.d_k * t.n_k * t.n_tokens, at_dg = at_dv + t.d_v * t.n_v * t.n_tokens,
                at_dbeta = at_dg + t.n_v * t.n_tokens;
  for (int64_t i = n - 1; i >= 0; --i) {
    sum += (double)db.of[i] - (double)db.columns[i] - (double)tau[i];
    const int64_t gate = (lo + i) * t.n_v + head;
    dst[at_dg + gate] = (float)sum;
    dst[at_dbeta + gate] = dot(w.du + i * vs, error + i * vs, t.d_v);
    store_row(w.dv + i * vs, t.d_v, 1.f, dst + at_dv + t.packed_row(head, lo + i));
  }
  if (s) multiply<Into::Scaled>(turned(w.qk, ks), t.d_k, 2 * n, w.y, vs, t.d_v, ds, vs, gates.total);
}

int64_t units_reverse(const KernelArgs& a) { return a.src[kK].ne[1]; }

void reverse_key_head(const Delta& t, int64_t key, const Reverse& w) {
  const Kept kept = kept_of(t);
  float* const dst = static_cast<float*>(t.args.dst.data);
  const float* const dpacked = static_cast<const float*>(t.args.src[kDPacked].data);
  const int64_t at_dk = t.d_k * t.n_k * t.n_tokens, at_dstate = 2 * at_dk + (t.d_v + 2) * t.n_v * t.n_tokens,
                ks = t.k_stride;
  int64_t n_chunks = 0, stored = 0;
  for (int64_t lo = 0; lo < t.n_tokens; lo = w.ends[n_chunks - 1]) {
    if (lo && !t.begins(lo)) ++stored;
    w.ends[n_chunks++] = t.chunk_end(lo);
  }
  for (int64_t i = 0; i < t.group; ++i) {
    float* const ds = w.ds + i * t.d_k * t.v_stride;
    transpose(dpacked + t.packed_state(t.value_head(key, i)), t.d_k, t.d_v, t.d_k, ds, t.v_stride);
    pad(ds, t.v_stride, t.d_k, t.d_v);
  }
  for (int64_t c = n_chunks - 1; c >= 0; --c) {
    const int64_t lo = c ? w.ends[c - 1] : 0, n = w.ends[c] - lo;
    const bool fresh = t.begins(lo);
    if (lo && !fresh) --stored;
    load_keys(t, key, lo, n, true, w.qk, w.k_turned);
    const float* const k = w.qk + n * ks;
    multiply_to_lower(k, ks, n, t.d_k, w.k_turned, kSquare, w.kk_square, kSquare);
    multiply_to_lower(w.qk, ks, n, t.d_k, w.k_turned, kSquare, w.qk_square, kSquare);
    fill_zero(w.dq, ks, n);
    fill_zero(w.dk, ks, n);
    for (int64_t i = 0; i < t.group; ++i) {
      const int64_t head = t.value_head(key, i);
      const float* s = nullptr;
      if (!fresh && lo) s = kept.state(t, head, stored);
      if (!fresh && !lo) {
        for (int64_t j = 0; j < t.d_v; ++j)
          load_row(t.state(head) + j * t.state_stride(), t.d_k, 1.f, w.s_turned + j * ks);
        s = w.s_turned;
      }
      float* const ds = w.ds + i * t.d_k * t.v_stride;
      reverse_chunk(t, head, lo, n, s, kept.error(t, head, lo), w, ds);
      if (fresh) fill_zero(ds, t.v_stride, t.d_k);  // what lies before is another sample
    }
    for (int64_t i = 0; i < n; ++i) {
      const int64_t row = ((lo + i) * t.n_k + key) * t.d_k;
      store_row(w.dq + i * ks, t.d_k, t.scale, dst + row);
      store_row(w.dk + i * ks, t.d_k, 1.f, dst + at_dk + row);
    }
  }
  for (int64_t i = 0; i < t.group; ++i) {
    const int64_t head = t.value_head(key, i);
    transpose(w.ds + i * t.d_k * t.v_stride, t.v_stride, t.d_k, t.d_v, dst + at_dstate + head * t.d_k * t.d_v,
              t.d_k);
  }
}

void run_reverse(const KernelArgs& a, int64_t begin, int64_t end, int thread) {
  const Delta t(a);
  const Reverse w(t, scratch_of(a, thread));
  for (int64_t key = begin; key < end; ++key) reverse_key_head(t, key, w);
}

ScratchBytes scratch_back(const KernelArgs& a) {
  const Delta t(a);
  const int64_t sweep = Sweep(t, nullptr).n_floats, reverse = Reverse(t, nullptr).n_floats;
  return {(size_t)Kept(t, nullptr).n_floats * sizeof(float),
          (size_t)(sweep > reverse ? sweep : reverse) * sizeof(float)};
}

// q, k, v may have any strides between heads and tokens, g and beta any at all; the state's rows are
// contiguous.
const char* refuse(const KernelArgs& a) {
  for (int s = 0; s < a.n_src; ++s)
    if (s != kG && s != kBeta && a.src[s].nb[0] != 4) return "rows must be contiguous";
  return nullptr;
}

}  // namespace

TANDEM_KERNEL(GATED_DELTA_NET) = {refuse, scratch, {{units, run}}};
TANDEM_KERNEL(GATED_DELTA_NET_BACK) = {
    refuse, scratch_back, {{units_sweep, run_sweep}, {units_reverse, run_reverse}}};

}  // namespace tandem::TANDEM_ISA
