#include "ops/rope/rope.h"

#include <math.h>
#include <string.h>

#include "base/kernel.h"
#include "base/simd.h"

namespace tandem::TANDEM_ISA {
namespace {

constexpr int64_t kUnitElements = 16384;  // about 20 us of work
constexpr int64_t kPairElements = 16;     // what one pair of the table costs, in elements turned

const RopeMap& map(const KernelArgs& a) { return *static_cast<const RopeMap*>(a.params); }

int64_t tokens_per_unit(const KernelArgs& a) {
  const int64_t tokens = kUnitElements / (a.dst.ne[0] * a.dst.ne[1] + kPairElements * (map(a).n_rot / 2) + 1);
  return tokens < 1 ? 1 : tokens;
}

int64_t units(const KernelArgs& a) { return ceil_div(a.dst.ne[2], tokens_per_unit(a)); }

// Per thread: the angles of all pairs at position 1, and cos and sin of a token.
ScratchBytes scratch(const KernelArgs& a) {
  return {0, (size_t)(map(a).n_rot / 2) * (sizeof(double) + 2 * sizeof(float))};
}

// Heads are contiguous along ne0; the other dimensions may have any strides.
const char* refuse(const KernelArgs& a) { return a.src[0].nb[0] == 4 ? nullptr : "rows must be contiguous"; }

void make_angles(const RopeMap& p, const NodeView& factors, double* angle) {
  for (int i = 0; i < p.n_rot / 2; ++i) {
    double theta = ::pow((double)p.base, -2.0 * i / p.n_rot) * (double)p.scale;
    if (factors.ne[0]) theta /= (double)static_cast<const float*>(factors.data)[i];
    if (p.yarn_factor != 0.f) {
      const double width = p.yarn_high - p.yarn_low > 0.001 ? p.yarn_high - p.yarn_low : 0.001;
      const double ramp = (i - p.yarn_low) / width, slow = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
      theta *= slow / (double)p.yarn_factor + (1 - slow);
    }
    angle[i] = theta;
  }
}

// cos and sin of theta, times m.  |theta| up to about 10^6: the multiple of pi/2 is then subtracted exactly,
// and what is left is below 0.786, where the series' next terms are below 10^-11.
TANDEM_INLINE void cos_sin(double theta, double m, float* c, float* s) {
  const double magic = 0x1.8p52;  // its ulp is 1: the sum is rounded to an integer
  const double k = (theta * 0.63661977236758134308 + magic) - magic;
  const double r = (theta - k * 0x1.921fb544p+0) - k * 0x1.0b4611a626331p-34;  // the head of pi/2 has 33 bits
  const double z = r * r;
  const double sine =
      r +
      r * z * (-1.0 / 6 + z * (1.0 / 120 + z * (-1.0 / 5040 + z * (1.0 / 362880 + z * (-1.0 / 39916800)))));
  const double cosine =
      1 + z * (-0.5 + z * (1.0 / 24 + z * (-1.0 / 720 + z * (1.0 / 40320 +
                                                             z * (-1.0 / 3628800 + z * (1.0 / 479001600))))));
  const int quarter = (int)k;
  const double x = quarter & 1 ? sine : cosine, y = quarter & 1 ? cosine : sine;
  *c = (float)((quarter + 1) & 2 ? -x * m : x * m);
  *s = (float)(quarter & 2 ? -y * m : y * m);
}

// Which of a token's positions turns pair i: time, height, width or extra.
int position_of_pair(const RopeMap& p, int i) {
  const int32_t* n = p.sections;
  const int s = i % (n[0] + n[1] + n[2] + n[3]);
  if (s % 3 == 1 && s < 3 * n[1]) return 1;
  if (s % 3 == 2 && s < 3 * n[2]) return 2;
  if (s % 3 == 0 && s < 3 * n[0]) return 0;
  return 3;
}

int32_t position(const NodeView& pos, int64_t token, int which) {
  return *reinterpret_cast<const int32_t*>(static_cast<const char*>(pos.data) + token * pos.nb[0] +
                                           which * pos.nb[1]);
}

void make_table(const RopeMap& p, const NodeView& pos, int64_t token, double direction, const double* angle,
                float* c, float* s) {
  const int half = p.n_rot / 2;
  const double m = (double)p.magnitude;
  if (p.sections[0] || p.sections[1] || p.sections[2] || p.sections[3]) {
    for (int i = 0; i < half; ++i) {
      cos_sin(position(pos, token, position_of_pair(p, i)) * angle[i] * direction, m, c + i, s + i);
    }
    return;
  }
  const double at = position(pos, token, 0) * direction;
  for (int i = 0; i < half; ++i) cos_sin(at * angle[i], m, c + i, s + i);
}

// Both channels of a pair are read before either is written, so y may be x.
void turn_neox(const float* x, float* y, const float* c, const float* s, int64_t half) {
  int64_t i = 0;
  for (; i + kLanes <= half; i += kLanes) {
    const Vec vc = load(c + i), vs = load(s + i), a = load(x + i), b = load(x + half + i);
    store(y + i, sub(mul(a, vc), mul(b, vs)));
    store(y + half + i, add(mul(a, vs), mul(b, vc)));
  }
  if (i < half) {
    const int n = (int)(half - i);
    const Vec vc = load_n(c + i, n), vs = load_n(s + i, n), a = load_n(x + i, n), b = load_n(x + half + i, n);
    store_n(y + i, sub(mul(a, vc), mul(b, vs)), n);
    store_n(y + half + i, add(mul(a, vs), mul(b, vc)), n);
  }
}

void turn_normal(const float* x, float* y, const float* c, const float* s, int64_t half) {
  for (int64_t i = 0; i < half; ++i) {
    const float a = x[2 * i], b = x[2 * i + 1];
    y[2 * i] = a * c[i] - b * s[i];
    y[2 * i + 1] = a * s[i] + b * c[i];
  }
}

void turn(const KernelArgs& a, int64_t lo, int64_t hi, int thread, double direction) {
  const RopeMap& p = map(a);
  const NodeView &x = a.src[0], &y = a.dst;
  const int64_t half = p.n_rot / 2, behind = p.first + p.n_rot;
  double* angle = reinterpret_cast<double*>(a.thread_scratch + (size_t)thread * a.thread_scratch_stride);
  float *c = reinterpret_cast<float*>(angle + half), *s = c + half;
  make_angles(p, a.src[2], angle);
  const int64_t per = tokens_per_unit(a), end = hi * per < y.ne[2] ? hi * per : y.ne[2];
  for (int64_t t = lo * per; t < end; ++t) {
    make_table(p, a.src[1], t, direction, angle, c, s);
    for (int64_t h = 0; h < y.ne[1]; ++h) {
      const float* from =
          reinterpret_cast<const float*>(static_cast<const char*>(x.data) + h * x.nb[1] + t * x.nb[2]);
      float* to = static_cast<float*>(y.data) + (t * y.ne[1] + h) * y.ne[0];
      (p.neox ? turn_neox : turn_normal)(from + p.first, to + p.first, c, s, half);
      if (from == to) continue;
      memcpy(to, from, (size_t)p.first * 4);
      memcpy(to + behind, from + behind, (size_t)(y.ne[0] - behind) * 4);
    }
  }
}

void run(const KernelArgs& a, int64_t lo, int64_t hi, int thread) { turn(a, lo, hi, thread, 1); }

void run_back(const KernelArgs& a, int64_t lo, int64_t hi, int thread) { turn(a, lo, hi, thread, -1); }

}  // namespace

TANDEM_KERNEL(ROPE) = {refuse, scratch, {{units, run}}};
TANDEM_KERNEL(ROPE_BACK) = {refuse, scratch, {{units, run_back}}};

}  // namespace tandem::TANDEM_ISA
