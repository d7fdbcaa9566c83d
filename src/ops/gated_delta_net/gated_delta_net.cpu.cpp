#include "ops/gated_delta_net/gated_delta_net.h"

#include "base/kernel.h"
#include "base/simd.h"
#include "ops/gated_delta_net/chunks.h"
#include "ops/gated_delta_net/tiles.h"

namespace tandem::TANDEM_ISA {
namespace {

constexpr int64_t kFewTokens = 16;  // fewer (decoding) go through the recurrence as it stands
constexpr int64_t kFewRows = 32;    // of the state, which are independent of each other, to a unit of those

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

// e^x of one number, as a lane computes it.
float exp_of(float x) { return exp(set1(x))[0]; }

// The scratch of a unit of few tokens.
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

}  // namespace

TANDEM_KERNEL(GATED_DELTA_NET) = {refuse, scratch, {{units, run}}};

}  // namespace tandem::TANDEM_ISA
