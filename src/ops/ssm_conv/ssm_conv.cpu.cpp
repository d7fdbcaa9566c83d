// Units are some tokens of some channels; the taps of the channels are turned first, so that lanes run over
// channels.  Of a token's sum the oldest input comes first, in the gradient the nearest token, whatever the
// unit.
#include "base/kernel.h"
#include "base/simd.h"

namespace tandem::TANDEM_ISA {
namespace {

constexpr int64_t kChannels = 256;  // of a unit: its taps stay in the first cache
constexpr int64_t kTokens = 64;     // of a unit: about 10 us of work

int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

const float* column(const NodeView& t, int64_t j) {
  return reinterpret_cast<const float*>(static_cast<const char*>(t.data) + j * t.nb[1]);
}

// The unit's place among n_columns of n_channels.
struct Part {
  Part(int64_t unit, int64_t n_channels, int64_t n_columns) {
    const int64_t across = ceil_div(n_channels, kChannels);
    channel = unit % across * kChannels;
    n = smaller(kChannels, n_channels - channel);
    lo = unit / across * kTokens;
    hi = smaller(lo + kTokens, n_columns);
  }
  int64_t channel, n, lo, hi;
};

int64_t units_of(int64_t n_channels, int64_t n_columns) {
  return ceil_div(n_channels, kChannels) * ceil_div(n_columns, kTokens);
}

// turned[j][i] = tap j of channel first + i.
void turn_taps(const NodeView& w, int64_t first, int64_t n, float* turned) {
  for (int64_t i = 0; i < n; ++i) {
    const float* taps = column(w, first + i);
    for (int64_t j = 0; j < w.ne[0]; ++j) turned[j * kChannels + i] = taps[j];
  }
}

float* scratch_of(const KernelArgs& a, int thread) {
  return reinterpret_cast<float*>(a.thread_scratch + (size_t)thread * a.thread_scratch_stride);
}

// y (+)= a x, for n channels.
template <bool kFirst>
TANDEM_INLINE void add_product(const float* a, const float* x, int64_t n, float* y) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    store(y + i, fma(load(a + i), load(x + i), kFirst ? zero() : load(y + i)));
  if (i == n) return;
  const int t = (int)(n - i);
  store_n(y + i, fma(load_n(a + i, t), load_n(x + i, t), kFirst ? zero() : load_n(y + i, t)), t);
}

int64_t units(const KernelArgs& a) { return units_of(a.dst.ne[0], a.dst.ne[1]); }

void run(const KernelArgs& a, int64_t begin, int64_t end, int thread) {
  const NodeView &m = a.src[0], &w = a.src[1], &state = a.src[2];
  const int32_t* positions = static_cast<const int32_t*>(a.src[3].data);
  const int64_t n_taps = w.ne[0];
  float* const taps = scratch_of(a, thread);
  for (int64_t u = begin; u < end; ++u) {
    const Part part(u, m.ne[0], m.ne[1]);
    turn_taps(w, part.channel, part.n, taps);
    for (int64_t t = part.lo; t < part.hi; ++t) {
      float* y = static_cast<float*>(a.dst.data) + t * a.dst.ne[0] + part.channel;
      bool first = true;
      for (int64_t back = smaller(n_taps - 1, positions[t]); back >= 0; --back) {
        const float* x = back <= t ? column(m, t - back) : column(state, n_taps - 1 + t - back);
        const float* tap = taps + (n_taps - 1 - back) * kChannels;
        if (first) {
          add_product<true>(tap, x + part.channel, part.n, y);
        } else {
          add_product<false>(tap, x + part.channel, part.n, y);
        }
        first = false;
      }
      for (int64_t i = 0; first && i < part.n; ++i) y[i] = 0;  // a negative position: sees nothing
    }
  }
}

// Columns of dm, then those of dstate, as they follow each other in the result.
int64_t units_back(const KernelArgs& a) {
  return units_of(a.src[0].ne[0], a.src[0].ne[1] + a.src[1].ne[0] - 1);
}

void run_back(const KernelArgs& a, int64_t begin, int64_t end, int thread) {
  const NodeView &dy = a.src[0], &w = a.src[1];
  const int32_t* positions = static_cast<const int32_t*>(a.src[2].data);
  const int64_t n_taps = w.ne[0], n_tokens = dy.ne[1];
  float* const taps = scratch_of(a, thread);
  for (int64_t u = begin; u < end; ++u) {
    const Part part(u, dy.ne[0], n_tokens + n_taps - 1);
    turn_taps(w, part.channel, part.n, taps);
    for (int64_t j = part.lo; j < part.hi; ++j) {
      const int64_t t = j < n_tokens ? j : j - n_tokens - (n_taps - 1);  // the state lies before token 0
      float* dx = static_cast<float*>(a.dst.data) + j * dy.ne[0] + part.channel;
      bool first = true;
      for (int64_t back = t < 0 ? -t : 0; back < n_taps && t + back < n_tokens; ++back) {
        if (positions[t + back] < back) continue;
        const float *from = column(dy, t + back) + part.channel,
                    *tap = taps + (n_taps - 1 - back) * kChannels;
        if (first) {
          add_product<true>(tap, from, part.n, dx);
        } else {
          add_product<false>(tap, from, part.n, dx);
        }
        first = false;
      }
      for (int64_t i = 0; first && i < part.n; ++i) dx[i] = 0;
    }
  }
}

// The state has few columns: one unit.
int64_t units_state(const KernelArgs&) { return 1; }

void run_state(const KernelArgs& a, int64_t, int64_t, int) {
  const NodeView &m = a.src[0], &state = a.src[1];
  const int64_t n_old = state.ne[1] - m.ne[1], n = state.ne[0];
  for (int64_t j = 0; j < state.ne[1]; ++j) {
    const float* from = j < n_old ? column(state, m.ne[1] + j) : column(m, j - n_old);
    memcpy(static_cast<float*>(a.dst.data) + j * n, from, (size_t)n * sizeof(float));
  }
}

// Columns are contiguous; they may lie apart.
const char* refuse(const KernelArgs& a) {
  for (int s = 0; s < a.n_src; ++s)
    if (a.src[s].nb[0] != 4) return "columns must be contiguous";
  return nullptr;
}

ScratchBytes scratch(const KernelArgs& a) {
  return {0, (size_t)(a.src[1].ne[0] * kChannels) * sizeof(float)};
}

}  // namespace

TANDEM_KERNEL(SSM_CONV) = {refuse, scratch, {{units, run}}};
TANDEM_KERNEL(SSM_CONV_BACK) = {refuse, scratch, {{units_back, run_back}}};
TANDEM_KERNEL(SSM_CONV_STATE) = {refuse, nullptr, {{units_state, run_state}}};

}  // namespace tandem::TANDEM_ISA
