#include "base/kernel.h"
#include "base/simd.h"
#include "ops/gated_delta_net/chunks.h"
#include "ops/gated_delta_net/gated_delta_net.h"
#include "ops/gated_delta_net/tiles.h"

namespace tandem::TANDEM_ISA {
namespace {

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

// Solves R + L^T V = D, V = beta R for R (in place of D) and V; L {n, n} strictly lower triangular.
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

}  // namespace

TANDEM_KERNEL(GATED_DELTA_NET_BACK) = {
    refuse, scratch_back, {{units_sweep, run_sweep}, {units_reverse, run_reverse}}};

}  // namespace tandem::TANDEM_ISA
