// Lanes run over what a unit owns: queries in the forward and in the pass for dq, keys in the pass for dk and
// dv.  The other side is read where it lies, one number at a time, and multiplied into all lanes; only the
// unit's own rows are transposed, once.  Every product is a chain of fma in ascending order of channels or
// keys, and the running maximum moves at multiples of 64 keys, counted from the first key of the past: a
// query's result does not depend on the lanes beside it, on where the past ends, or on the number of threads.
// Values are finite: a masked key enters as 0 times v.
#include "ops/flash_attn/flash_attn.h"

#include <float.h>
#include <math.h>

#include "base/kernel.h"
#include "base/simd.h"

namespace tandem::TANDEM_ISA {
namespace {

constexpr int kTile = 64;  // rows of the other side between two looks at the running maximum
#if defined(__AVX512F__)
constexpr int kVecs = 3;           // vectors of lanes in the largest unit
constexpr int kAccumulators = 24;  // of 32 registers
#else
constexpr int kVecs = 2;
constexpr int kAccumulators = 8;  // of 16 registers
#endif
constexpr int kMaxLanes = kVecs * kLanes;
// Of a unit: about 0.1 ms with AVX-512.  A long past exceeds it, since a unit has kLanes queries or keys at
// least.
constexpr double kUnitFlops = 16e6;

enum { kQ, kK, kV, kKPast, kVPast, kFirstKey, kPacked, kDPacked };

int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

// The sizes of a node, and where its rows are.
struct Attention {
  explicit Attention(const KernelArgs& a)
      : args(a),
        d(a.src[kQ].ne[0]),
        dv(a.src[kV].ne[0]),
        n_head(a.src[kQ].ne[1]),
        n_head_kv(a.src[kK].ne[1]),
        group(n_head / n_head_kv),
        n_tokens(a.src[kQ].ne[2]),
        n_past(a.src[kKPast].ne[0] ? a.src[kKPast].ne[2] : 0),
        n_keys(n_past + n_tokens) {}

  // Row {ne0} of a head and a token.
  const float* row(int source, int64_t head, int64_t token) const {
    const NodeView& t = args.src[source];
    return reinterpret_cast<const float*>(static_cast<const char*>(t.data) + head * t.nb[1] +
                                          token * t.nb[2]);
  }
  int64_t token_stride(int source) const { return args.src[source].nb[2] / 4; }
  const float* key(int64_t head, int64_t j) const {
    return j < n_past ? row(kKPast, head, j) : row(kK, head, j - n_past);
  }
  const float* value(int64_t head, int64_t j) const {
    return j < n_past ? row(kVPast, head, j) : row(kV, head, j - n_past);
  }
  // The first key that a token sees; it sees those up to n_past + token.
  int64_t first_key(int64_t token) const {
    return larger(static_cast<const int32_t*>(args.src[kFirstKey].data)[token], 0);
  }
  // Queries are counted by token, then head: the order of out and lse in a packed tensor.
  int64_t query(int64_t token, int64_t head) const { return token * n_head + head; }
  const float* out(int packed, int64_t query) const {
    return static_cast<float*>(args.src[packed].data) + query * dv;
  }
  float lse(int packed, int64_t query) const {
    return static_cast<float*>(args.src[packed].data)[dv * n_head * n_tokens + query];
  }

  const KernelArgs& args;
  const int64_t d, dv, n_head, n_head_kv, group, n_tokens, n_past, n_keys;
};

// Calls body(rows, floats from one to the next, lo, hi) for the keys [lo, hi) of a head that lie in one
// tensor.
template <class Body>
TANDEM_INLINE void for_runs(const Attention& t, int past, int current, int64_t head, int64_t lo, int64_t hi,
                            Body body) {
  const int64_t split = larger(lo, smaller(hi, t.n_past));
  if (lo < split) body(t.row(past, head, lo), t.token_stride(past), lo, split);
  if (split < hi) body(t.row(current, head, split - t.n_past), t.token_stride(current), split, hi);
}

// c[i][lane] (+)= sum over k < n of a[i * a_row + k * a_step] * b[k][lane], for R rows i and NV vectors of
// lanes.
template <int R, int NV, bool kAdd>
TANDEM_INLINE void multiply_block(const float* a, int64_t a_row, int64_t a_step, int64_t n, const float* b,
                                  float* c) {
  constexpr int kWidth = NV * kLanes;
  Vec sum[R][NV];
#pragma GCC unroll 8
  for (int i = 0; i < R; ++i)
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) sum[i][v] = kAdd ? load(c + i * kWidth + v * kLanes) : zero();
  for (int64_t k = 0; k < n; ++k, b += kWidth) {
    Vec bv[NV];
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) bv[v] = load(b + v * kLanes);
#pragma GCC unroll 8
    for (int i = 0; i < R; ++i) {
      const Vec x = set1(a[i * a_row + k * a_step]);
#pragma GCC unroll 8
      for (int v = 0; v < NV; ++v) sum[i][v] = fma(x, bv[v], sum[i][v]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < R; ++i)
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) store(c + i * kWidth + v * kLanes, sum[i][v]);
}

template <int NV, bool kAdd>
TANDEM_INLINE void multiply(const float* a, int64_t a_row, int64_t a_step, int64_t rows, int64_t n,
                            const float* b, float* c) {
  constexpr int kRows = kAccumulators / NV > 8 ? 8 : kAccumulators / NV;
  int64_t i = 0;
  for (; i + kRows <= rows; i += kRows) {
    multiply_block<kRows, NV, kAdd>(a + i * a_row, a_row, a_step, n, b, c + i * NV * kLanes);
  }
  for (; i < rows; ++i) multiply_block<1, NV, kAdd>(a + i * a_row, a_row, a_step, n, b, c + i * NV * kLanes);
}

// c[i][lane] = <row i of a, column of b>: a has `rows` rows of n numbers, b is {n}[lanes].
template <int NV>
void dots(const float* a, int64_t a_row, int64_t rows, int64_t n, const float* b, float* c) {
  multiply<NV, false>(a, a_row, 1, rows, n, b, c);
}

// c[e][lane] += sum over the rows k of a[k][e] * b[k][lane]: a has `rows` rows of n numbers, c is {n}[lanes].
template <int NV>
void add_weighted(const float* a, int64_t a_row, int64_t rows, int64_t n, const float* b, float* c) {
  multiply<NV, true>(a, 1, a_row, n, rows, b, c);
}

typedef float Quad __attribute__((vector_size(16)));

// y = x transposed.
TANDEM_INLINE void turn_block(const Quad (&x)[4], Quad (&y)[4]) {
  const Quad a = __builtin_shufflevector(x[0], x[1], 0, 4, 1, 5),
             b = __builtin_shufflevector(x[0], x[1], 2, 6, 3, 7);
  const Quad c = __builtin_shufflevector(x[2], x[3], 0, 4, 1, 5),
             d = __builtin_shufflevector(x[2], x[3], 2, 6, 3, 7);
  y[0] = __builtin_shufflevector(a, c, 0, 1, 4, 5);
  y[1] = __builtin_shufflevector(a, c, 2, 3, 6, 7);
  y[2] = __builtin_shufflevector(b, d, 0, 1, 4, 5);
  y[3] = __builtin_shufflevector(b, d, 2, 3, 6, 7);
}

// columns[e][r] = factor * rows[r][e] for n_rows rows of n numbers; the other lanes become zero.
void to_columns(const float* const* rows, int n_rows, int64_t n, float factor, float* columns, int width) {
  const int whole = n_rows / 4 * 4;
  int64_t e = 0;
  for (; e + 4 <= n; e += 4) {
    for (int r = 0; r < whole; r += 4) {
      Quad x[4], y[4];
      for (int i = 0; i < 4; ++i) memcpy(&x[i], rows[r + i] + e, 16);
      turn_block(x, y);
      for (int i = 0; i < 4; ++i) {
        y[i] *= factor;
        memcpy(columns + (e + i) * width + r, &y[i], 16);
      }
    }
    for (int r = whole; r < n_rows; ++r)
      for (int i = 0; i < 4; ++i) columns[(e + i) * width + r] = factor * rows[r][e + i];
  }
  for (; e < n; ++e)
    for (int r = 0; r < n_rows; ++r) columns[e * width + r] = factor * rows[r][e];
  for (e = 0; e < n; ++e)
    for (int r = n_rows; r < width; ++r) columns[e * width + r] = 0;
}

// rows[r][e] = columns[e][r].
void to_rows(const float* columns, int width, int n_rows, int64_t n, float* const* rows) {
  const int whole = n_rows / 4 * 4;
  int64_t e = 0;
  for (; e + 4 <= n; e += 4) {
    for (int r = 0; r < whole; r += 4) {
      Quad x[4], y[4];
      for (int i = 0; i < 4; ++i) memcpy(&x[i], columns + (e + i) * width + r, 16);
      turn_block(x, y);
      for (int i = 0; i < 4; ++i) memcpy(rows[r + i] + e, &y[i], 16);
    }
    for (int r = whole; r < n_rows; ++r)
      for (int i = 0; i < 4; ++i) rows[r][e + i] = columns[(e + i) * width + r];
  }
  for (; e < n; ++e)
    for (int r = 0; r < n_rows; ++r) rows[r][e] = columns[e * width + r];
}

// Multiplies each column of {n}[lanes] by its lane of `factor`.  The sum with zero turns -0 into 0: a masked
// key may or may not have done so before.
template <int NV>
void scale_columns(float* columns, int64_t n, const Vec (&factor)[NV]) {
  for (int64_t e = 0; e < n; ++e, columns += NV * kLanes)
    for (int v = 0; v < NV; ++v)
      store(columns + v * kLanes, fma(load(columns + v * kLanes), factor[v], zero()));
}

TANDEM_INLINE IVec load_ids(const int32_t* p) {
  IVec v;
  memcpy(&v, p, sizeof v);
  return v;
}

TANDEM_INLINE IVec set1_id(int64_t x) { return IVec{} + (int32_t)x; }

// The queries of a unit: some consecutive (token, head) pairs among those of one kv head.
struct QueryLanes {
  QueryLanes(const Attention& t, int64_t kv, int64_t lo, int64_t hi) : head_kv(kv), n((int)(hi - lo)) {
    for (int r = 0; r < n; ++r) {
      const int64_t at = lo + r, i = at / t.group;
      token[r] = i;
      head[r] = kv * t.group + at % t.group;
      first[r] = (int32_t)t.first_key(i);
      last[r] = (int32_t)(t.n_past + i);
      if (first[r] > last[r]) first[r] = INT32_MAX;  // sees nothing: starts behind every key
      any_first = smaller(any_first, first[r]);
      all_first = larger(all_first, first[r]);
    }
    all_last = t.n_past + lo / t.group;
    any_last = t.n_past + (hi - 1) / t.group;
    for (int r = n; r < kMaxLanes; ++r) {  // idle lanes follow the last query
      first[r] = first[n - 1];
      last[r] = last[n - 1];
    }
  }

  int64_t head_kv;
  int n;
  int64_t token[kMaxLanes], head[kMaxLanes];
  int32_t first[kMaxLanes], last[kMaxLanes];  // keys that each query sees
  int64_t any_first = INT32_MAX, any_last;    // keys that some query sees lie between these
  int64_t all_first = 0, all_last;            // keys between these are seen by all
};

// What the lanes see of key j: a mask per vector.
template <int NV>
struct Sight {
  explicit Sight(const QueryLanes& q) {
    for (int v = 0; v < NV; ++v) {
      first[v] = load_ids(q.first + v * kLanes);
      last[v] = load_ids(q.last + v * kLanes);
    }
  }
  Vec keep(int v, int64_t j, Vec seen, Vec unseen) const {
    const IVec id = set1_id(j);
    return ((id >= first[v]) & (id <= last[v])) ? seen : unseen;
  }
  IVec first[NV], last[NV];
};

template <int NV>
void forward_unit(const Attention& t, const QueryLanes& q, float* scratch) {
  constexpr int kWidth = NV * kLanes;
  float *const qt = scratch, *const ot = qt + t.d * kWidth, *const p = ot + t.dv * kWidth;
  const float* q_rows[kMaxLanes];
  for (int r = 0; r < q.n; ++r) q_rows[r] = t.row(kQ, q.head[r], q.token[r]);
  to_columns(q_rows, q.n, t.d, static_cast<const FlashAttnNodeParams*>(t.args.params)->scale, qt, kWidth);
  for (int64_t e = 0; e < t.dv * kWidth; e += kLanes) store(ot + e, zero());

  const Sight<NV> sight(q);
  Vec top[NV], sum[NV];
  for (int v = 0; v < NV; ++v) {
    top[v] = set1(-FLT_MAX);  // finite, so that a masked score stays behind it
    sum[v] = zero();
  }
  for (int64_t tile = q.any_first / kTile * kTile; tile <= q.any_last; tile += kTile) {
    const int64_t lo = larger(tile, q.any_first), hi = smaller(tile + kTile, q.any_last + 1);
    for_runs(t, kKPast, kK, q.head_kv, lo, hi, [&](const float* k, int64_t stride, int64_t from, int64_t to) {
      dots<NV>(k, stride, to - from, t.d, qt, p + (from - lo) * kWidth);
    });
    Vec new_top[NV], tile_sum[NV];
    for (int v = 0; v < NV; ++v) {
      new_top[v] = top[v];
      tile_sum[v] = zero();
    }
    for (int64_t j = lo; j < hi; ++j) {
      float* s = p + (j - lo) * kWidth;
      if (j >= q.all_first && j <= q.all_last) {
        for (int v = 0; v < NV; ++v) new_top[v] = max(load(s + v * kLanes), new_top[v]);
        continue;
      }
      for (int v = 0; v < NV; ++v) {
        const Vec x = sight.keep(v, j, load(s + v * kLanes), set1(-INFINITY));
        store(s + v * kLanes, x);
        new_top[v] = max(x, new_top[v]);
      }
    }
    for (int64_t j = lo; j < hi; ++j) {
      float* s = p + (j - lo) * kWidth;
      for (int v = 0; v < NV; ++v) {
        const Vec x = exp(sub(load(s + v * kLanes), new_top[v]));
        store(s + v * kLanes, x);
        tile_sum[v] = add(tile_sum[v], x);
      }
    }
    for (int v = 0; v < NV; ++v) {
      const Vec decay = exp(sub(top[v], new_top[v]));
      sum[v] = fma(sum[v], decay, tile_sum[v]);
      top[v] = new_top[v];
      new_top[v] = decay;
    }
    scale_columns<NV>(ot, t.dv, new_top);
    for_runs(t, kVPast, kV, q.head_kv, lo, hi, [&](const float* v, int64_t stride, int64_t from, int64_t to) {
      add_weighted<NV>(v, stride, to - from, t.dv, p + (from - lo) * kWidth, ot);
    });
  }

  float tops[kWidth], sums[kWidth];
  for (int v = 0; v < NV; ++v) {
    store(tops + v * kLanes, top[v]);
    store(sums + v * kLanes, sum[v]);
    sum[v] = sum[v] > zero() ? set1(1.f) / sum[v] : sum[v];
  }
  scale_columns<NV>(ot, t.dv, sum);
  float* const out = static_cast<float*>(t.args.dst.data);
  float* out_rows[kMaxLanes];
  for (int r = 0; r < q.n; ++r) {
    const int64_t query = t.query(q.token[r], q.head[r]);
    out_rows[r] = out + query * t.dv;
    out[t.dv * t.n_head * t.n_tokens + query] = sums[r] == 0 ? -INFINITY : tops[r] + logf(sums[r]);
  }
  to_rows(ot, kWidth, q.n, t.dv, out_rows);
}

// dq of a unit's queries.  delta {H, T}: see run_delta.
template <int NV>
void dq_unit(const Attention& t, const QueryLanes& q, const float* delta, float* scratch) {
  constexpr int kWidth = NV * kLanes;
  const float scale = static_cast<const FlashAttnNodeParams*>(t.args.params)->scale;
  float *const qt = scratch, *const dot = qt + t.d * kWidth, *const dqt = dot + t.dv * kWidth;
  float *const ds = dqt + t.d * kWidth, *const dp = ds + kTile * kWidth;
  const float *q_rows[kMaxLanes], *dout_rows[kMaxLanes];
  float *dq_rows[kMaxLanes], lses[kMaxLanes] = {}, deltas[kMaxLanes] = {};
  for (int r = 0; r < q.n; ++r) {
    const int64_t query = t.query(q.token[r], q.head[r]);
    q_rows[r] = t.row(kQ, q.head[r], q.token[r]);
    dout_rows[r] = t.out(kDPacked, query);
    dq_rows[r] = static_cast<float*>(t.args.dst.data) + query * t.d;
    lses[r] = t.lse(kPacked, query);
    deltas[r] = delta[query];
  }
  to_columns(q_rows, q.n, t.d, scale, qt, kWidth);
  to_columns(dout_rows, q.n, t.dv, 1.f, dot, kWidth);
  for (int64_t e = 0; e < t.d * kWidth; e += kLanes) store(dqt + e, zero());

  const Sight<NV> sight(q);
  for (int64_t tile = q.any_first / kTile * kTile; tile <= q.any_last; tile += kTile) {
    const int64_t lo = larger(tile, q.any_first), hi = smaller(tile + kTile, q.any_last + 1);
    for_runs(t, kKPast, kK, q.head_kv, lo, hi, [&](const float* k, int64_t stride, int64_t from, int64_t to) {
      dots<NV>(k, stride, to - from, t.d, qt, ds + (from - lo) * kWidth);
    });
    for_runs(t, kVPast, kV, q.head_kv, lo, hi, [&](const float* v, int64_t stride, int64_t from, int64_t to) {
      dots<NV>(v, stride, to - from, t.dv, dot, dp + (from - lo) * kWidth);
    });
    for (int64_t j = lo; j < hi; ++j) {
      const bool seen_by_all = j >= q.all_first && j <= q.all_last;
      for (int v = 0; v < NV; ++v) {
        float* s = ds + (j - lo) * kWidth + v * kLanes;
        const Vec x = exp(sub(load(s), load(lses + v * kLanes)));
        const Vec y = mul(x, sub(load(dp + (j - lo) * kWidth + v * kLanes), load(deltas + v * kLanes)));
        store(s, seen_by_all ? y : sight.keep(v, j, y, zero()));
      }
    }
    for_runs(t, kKPast, kK, q.head_kv, lo, hi, [&](const float* k, int64_t stride, int64_t from, int64_t to) {
      add_weighted<NV>(k, stride, to - from, t.d, ds + (from - lo) * kWidth, dqt);
    });
  }
  Vec factor[NV];
  for (int v = 0; v < NV; ++v) factor[v] = set1(scale);
  scale_columns<NV>(dqt, t.d, factor);
  to_rows(dqt, kWidth, q.n, t.d, dq_rows);
}

// dk and dv of the keys [key0, key0 + n) of a kv head, over all queries of its group that see one of them.
template <int NV>
void dkv_unit(const Attention& t, int64_t head_kv, int64_t key0, int n, const float* delta, float* scratch) {
  constexpr int kWidth = NV * kLanes;
  const float scale = static_cast<const FlashAttnNodeParams*>(t.args.params)->scale;
  float *const kt = scratch, *const vt = kt + t.d * kWidth, *const dkt = vt + t.dv * kWidth;
  float *const dvt = dkt + t.d * kWidth, *const p = dvt + t.dv * kWidth, *const ds = p + kTile * kWidth;
  const float *k_rows[kMaxLanes], *v_rows[kMaxLanes];
  float *dk_rows[kMaxLanes], *dv_rows[kMaxLanes];
  int32_t ids[kMaxLanes];
  float* const dk = static_cast<float*>(t.args.dst.data) + t.d * t.n_head * t.n_tokens;
  float* const dk_past = dk + (t.d + t.dv) * t.n_head_kv * t.n_tokens;
  for (int r = 0; r < n; ++r) {
    const int64_t j = key0 + r;
    const bool past = j < t.n_past;
    const int64_t row = (past ? j : j - t.n_past) * t.n_head_kv + head_kv;
    k_rows[r] = t.key(head_kv, j);
    v_rows[r] = t.value(head_kv, j);
    dk_rows[r] = (past ? dk_past : dk) + row * t.d;
    dv_rows[r] =
        (past ? dk_past + t.d * t.n_head_kv * t.n_past : dk + t.d * t.n_head_kv * t.n_tokens) + row * t.dv;
  }
  for (int r = 0; r < kMaxLanes; ++r) ids[r] = (int32_t)(key0 + r);
  to_columns(k_rows, n, t.d, scale, kt, kWidth);
  to_columns(v_rows, n, t.dv, 1.f, vt, kWidth);
  for (int64_t e = 0; e < (t.d + t.dv) * kWidth; e += kLanes) store(dkt + e, zero());

  for (int64_t tile = larger(key0 - t.n_past, 0) / kTile * kTile; tile < t.n_tokens; tile += kTile) {
    // The tokens of this tile that see a key here lie in [lo, hi).
    int64_t lo = larger(key0 - t.n_past, tile), hi = smaller(tile + kTile, t.n_tokens);
    while (lo < hi && t.first_key(lo) >= key0 + n) ++lo;
    while (lo < hi && t.first_key(hi - 1) >= key0 + n) --hi;
    if (lo == hi) continue;
    for (int64_t head = head_kv * t.group; head < (head_kv + 1) * t.group; ++head) {
      const float* const dout = t.out(kDPacked, t.query(lo, head));
      dots<NV>(t.row(kQ, head, lo), t.token_stride(kQ), hi - lo, t.d, kt, p);
      dots<NV>(dout, t.n_head * t.dv, hi - lo, t.dv, vt, ds);
      for (int64_t i = lo; i < hi; ++i) {
        const int64_t query = t.query(i, head), first = t.first_key(i), last = t.n_past + i;
        const Vec lse = set1(t.lse(kPacked, query)), shift = set1(delta[query]);
        const bool sees_all = first <= key0 && last >= key0 + n - 1;
        for (int v = 0; v < NV; ++v) {
          float *const s = p + (i - lo) * kWidth + v * kLanes, *const g = ds + (i - lo) * kWidth + v * kLanes;
          Vec x = exp(sub(load(s), lse));
          if (!sees_all) {
            const IVec id = load_ids(ids + v * kLanes);
            x = ((id >= set1_id(first)) & (id <= set1_id(last))) ? x : zero();
          }
          store(s, x);
          store(g, mul(x, sub(load(g), shift)));
        }
      }
      add_weighted<NV>(dout, t.n_head * t.dv, hi - lo, t.dv, p, dvt);
      add_weighted<NV>(t.row(kQ, head, lo), t.token_stride(kQ), hi - lo, t.d, ds, dkt);
    }
  }
  Vec factor[NV];
  for (int v = 0; v < NV; ++v) factor[v] = set1(scale);
  scale_columns<NV>(dkt, t.d, factor);
  to_rows(dkt, kWidth, n, t.d, dk_rows);
  to_rows(dvt, kWidth, n, t.dv, dv_rows);
}

// Lanes of a unit, when each costs so many operations and there are so many: whole vectors.
int64_t lanes_per_unit(double flops_per_lane, int64_t n) {
  int64_t vecs = kVecs;
  while (vecs > 1 && ((double)(vecs * kLanes) * flops_per_lane > kUnitFlops || (vecs - 1) * kLanes >= n))
    --vecs;
  return vecs * kLanes;
}

// A query sees the past and half of its own range.
int64_t queries_per_unit(const Attention& t, int products) {
  const double keys = (double)t.n_past + (double)t.n_tokens / 2;
  return lanes_per_unit((double)(products * (t.d + t.dv)) * keys, t.n_tokens * t.group);
}

// A key of the past is seen by all queries; one unit serves any key.
int64_t keys_per_unit(const Attention& t) {
  const double share = (double)(t.n_past + t.n_tokens / 2) / (double)t.n_keys;
  return lanes_per_unit((double)(4 * (t.d + t.dv) * t.n_tokens * t.group) * share, t.n_keys);
}

// Units of n things per kv head, `per` of them in each.
int64_t units_of(const Attention& t, int64_t n, int64_t per) { return t.n_head_kv * ceil_div(n, per); }

// Which kv head and which of its n things are unit u.
struct UnitRange {
  UnitRange(int64_t u, int64_t n, int64_t per) {
    const int64_t per_head = ceil_div(n, per);
    head_kv = u / per_head;
    lo = u % per_head * per;
    hi = smaller(lo + per, n);
  }
  int64_t head_kv, lo, hi;
};

// Calls body.operator()<vectors>() for as many vectors as n lanes need.
template <class Body>
TANDEM_INLINE void with_vecs(int64_t n, Body body) {
  const int64_t vecs = ceil_div(n, kLanes);
  if (vecs == 1) body.template operator()<1>();
  if (vecs == 2) body.template operator()<2>();
  if constexpr (kVecs > 2) {
    if (vecs == 3) body.template operator()<3>();
  }
}

float* scratch_of(const KernelArgs& a, int thread) {
  return reinterpret_cast<float*>(a.thread_scratch + (size_t)thread * a.thread_scratch_stride);
}

int64_t units(const KernelArgs& a) {
  const Attention t(a);
  return units_of(t, t.n_tokens * t.group, queries_per_unit(t, 2));
}

void run(const KernelArgs& a, int64_t begin, int64_t end, int thread) {
  const Attention t(a);
  for (int64_t u = begin; u < end; ++u) {
    const UnitRange range(u, t.n_tokens * t.group, queries_per_unit(t, 2));
    const QueryLanes q(t, range.head_kv, range.lo, range.hi);
    with_vecs(q.n, [&]<int NV>() { forward_unit<NV>(t, q, scratch_of(a, thread)); });
  }
}

constexpr int64_t kDeltaElements = 65536;  // per unit

int64_t queries_per_delta_unit(const Attention& t) { return larger(kDeltaElements / (t.dv + 1), 1); }

int64_t units_delta(const KernelArgs& a) {
  const Attention t(a);
  const int64_t per = queries_per_delta_unit(t);
  return ceil_div(t.n_head * t.n_tokens, per);
}

// delta = dout.out - dlse of every query, into the shared scratch.
void run_delta(const KernelArgs& a, int64_t begin, int64_t end, int) {
  const Attention t(a);
  float* const delta = reinterpret_cast<float*>(a.shared_scratch);
  const int64_t per = queries_per_delta_unit(t), hi = smaller(end * per, t.n_head * t.n_tokens);
  for (int64_t query = begin * per; query < hi; ++query) {
    const float *x = t.out(kPacked, query), *y = t.out(kDPacked, query);
    Vec sum = zero();
    int64_t e = 0;
    for (; e + kLanes <= t.dv; e += kLanes) sum = fma(load(x + e), load(y + e), sum);
    if (e < t.dv) sum = fma(load_n(x + e, (int)(t.dv - e)), load_n(y + e, (int)(t.dv - e)), sum);
    delta[query] = reduce_add(sum) - t.lse(kDPacked, query);
  }
}

int64_t units_dq(const KernelArgs& a) {
  const Attention t(a);
  return units_of(t, t.n_tokens * t.group, queries_per_unit(t, 3));
}

void run_dq(const KernelArgs& a, int64_t begin, int64_t end, int thread) {
  const Attention t(a);
  for (int64_t u = begin; u < end; ++u) {
    const UnitRange range(u, t.n_tokens * t.group, queries_per_unit(t, 3));
    const QueryLanes q(t, range.head_kv, range.lo, range.hi);
    const float* const delta = reinterpret_cast<const float*>(a.shared_scratch);
    with_vecs(q.n, [&]<int NV>() { dq_unit<NV>(t, q, delta, scratch_of(a, thread)); });
  }
}

int64_t units_dkv(const KernelArgs& a) {
  const Attention t(a);
  return units_of(t, t.n_keys, keys_per_unit(t));
}

void run_dkv(const KernelArgs& a, int64_t begin, int64_t end, int thread) {
  const Attention t(a);
  for (int64_t u = begin; u < end; ++u) {
    const UnitRange range(u, t.n_keys, keys_per_unit(t));
    const int n = (int)(range.hi - range.lo);
    const float* const delta = reinterpret_cast<const float*>(a.shared_scratch);
    with_vecs(n,
              [&]<int NV>() { dkv_unit<NV>(t, range.head_kv, range.lo, n, delta, scratch_of(a, thread)); });
  }
}

// q, k, v and the past may have any strides between heads and tokens; packed tensors are contiguous.
const char* refuse(const KernelArgs& a) {
  for (int s = 0; s < a.n_src; ++s)
    if (a.src[s].ne[0] && a.src[s].nb[0] != 4) return "rows must be contiguous";
  if (Attention(a).n_keys >= INT32_MAX - kMaxLanes) return "keys are counted in 32 bits";
  return nullptr;
}

ScratchBytes scratch(const KernelArgs& a) {
  const Attention t(a);
  return {0, (size_t)((t.d + t.dv + kTile) * kMaxLanes) * sizeof(float)};
}

ScratchBytes scratch_back(const KernelArgs& a) {
  const Attention t(a);
  return {(size_t)(t.n_head * t.n_tokens) * sizeof(float),
          (size_t)((2 * t.d + 2 * t.dv + 2 * kTile) * kMaxLanes) * sizeof(float)};
}

}  // namespace

TANDEM_KERNEL(FLASH_ATTN) = {refuse, scratch, {{units, run}}};
TANDEM_KERNEL(FLASH_ATTN_BACK) = {
    refuse, scratch_back, {{units_delta, run_delta}, {units_dq, run_dq}, {units_dkv, run_dkv}}};

}  // namespace tandem::TANDEM_ISA
