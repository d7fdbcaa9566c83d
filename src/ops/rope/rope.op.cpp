// ROPE  x {D, H, T} F32, pos {T} or {T, 4} I32, freq_factors {n_rot / 2} F32 or absent -> y {D, H, T}: pairs
// of channels turned by an angle that grows with the position; other channels than the first (or last) n_rot
// are copied. ROPE_BACK
// dy -> dx, the transposed map: the angle negated, the magnitude multiplied as in ROPE. Gradient: x.  Source:
// architectures.md 1.3, gradients.md 5.  Difference from ggml: angles are made in f64, and `magnitude` is the
// final factor of cos and sin, with nothing multiplied to it for YaRN.
#include "ops/rope/rope.h"

#include <algorithm>
#include <vector>

#include "graph/autodiff.h"
#include "ops/op_util.h"
#include "ops/ops.h"

namespace tandem {
namespace {

constexpr double kPi = 3.14159265358979323846;

// The pair that turns `beta` times over the original context, as a fraction of pairs.
double yarn_pair(const RopeParams& p, double beta) {
  return p.n_rot * std::log(p.yarn_n_ctx_orig / (2 * kPi * beta)) /
         (2 * std::log(static_cast<double>(p.base)));
}

bool has_sections(const int32_t (&sections)[4]) {
  return sections[0] || sections[1] || sections[2] || sections[3];
}

RopeMap map_of(const RopeParams& p, int64_t d_head) {
  const int32_t first = p.last ? static_cast<int32_t>(d_head) - p.n_rot : 0;
  RopeMap map{.neox = p.kind == RopeKind::Neox,
              .n_rot = p.n_rot,
              .first = first,
              .base = p.base,
              .scale = p.scale,
              .yarn_factor = p.yarn_factor,
              .magnitude = p.magnitude,
              .yarn_low = 0,
              .yarn_high = 0,
              .sections = {}};
  std::copy(p.sections, p.sections + 4, map.sections);
  if (!(p.base > 1.f) || !(p.scale > 0.f) || !(p.yarn_factor >= 0.f)) {
    fail(Code::Unsupported,
         "ROPE: base {}, scale {}, YaRN factor {}: above 1, above 0 and not negative are needed", p.base,
         p.scale, p.yarn_factor);
  }
  if (has_sections(p.sections) &&
      (p.kind != RopeKind::Neox || p.sections[0] + p.sections[1] + p.sections[2] + p.sections[3] <= 0)) {
    fail(Code::Unsupported, "ROPE: position sections go with NEOX pairs and have a positive sum");
  }
  if (p.yarn_factor == 0.f) return map;
  if (p.yarn_n_ctx_orig <= 0) {
    fail(Code::Unsupported, "ROPE: YaRN needs the original context length, got {}", p.yarn_n_ctx_orig);
  }
  double low = yarn_pair(p, static_cast<double>(p.yarn_beta_fast));
  double high = yarn_pair(p, static_cast<double>(p.yarn_beta_slow));
  if (p.yarn_truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  map.yarn_low = std::max(0.0, low);
  map.yarn_high = std::min(static_cast<double>(p.n_rot - 1), high);
  return map;
}

void infer(Node& y, Sources src) {
  const RopeMap& p = params_of<RopeMap>(y);
  const Shape &x = src[0]->ne, &pos = src[1]->ne;
  expect_f32(y, src, 0);
  expect_i32(y, src, 1);
  expect_f32(y, src, 2);
  const int64_t n_pos = has_sections(p.sections) ? 4 : 1;
  expect_shapes(x[3] == 1 && pos == Shape(x[2], n_pos), y, src,
                "x {D, H, T} needs positions {T}, or {T, 4} where sections are given");
  if (p.n_rot < 2 || p.n_rot % 2 || p.n_rot > x[0]) {
    fail(Code::Unsupported,
         "{}: {} channels of heads of {} cannot turn: an even number up to the head is needed", op_name(y.op),
         p.n_rot, x[0]);
  }
  expect_shapes(!src[2] || src[2]->ne == Shape(p.n_rot / 2), y, src, "frequency factors are {n_rot / 2}");
  y.ne = x;
}

void back(BackwardCtx& c) {
  if (!c.needs(0)) return;
  c.grad(0, c.graph.emit(Op::ROPE_BACK, {c.dout, c.src(1), c.src(2)}, params_of<RopeMap>(*c.out.node)));
}

// Which of a token's positions turns pair i: time, height, width or extra.  Source: architectures.md 1.3
// (IMROPE).
int position_of_pair(const RopeMap& p, int64_t i) {
  if (!has_sections(p.sections)) return 0;
  const int64_t s = i % (p.sections[0] + p.sections[1] + p.sections[2] + p.sections[3]);
  if (s % 3 == 1 && s < 3 * p.sections[1]) return 1;
  if (s % 3 == 2 && s < 3 * p.sections[2]) return 2;
  if (s % 3 == 0 && s < 3 * p.sections[0]) return 0;
  return 3;
}

// The angle of pair i at position 1, radians.
double angle_of_pair(const RopeMap& p, int64_t i, double freq_factor) {
  double theta = std::pow(static_cast<double>(p.base), -2.0 * static_cast<double>(i) / p.n_rot);
  theta *= static_cast<double>(p.scale) / freq_factor;
  if (p.yarn_factor == 0.f) return theta;
  const double ramp = (static_cast<double>(i) - p.yarn_low) / std::max(0.001, p.yarn_high - p.yarn_low);
  const double rho = 1 - std::clamp(ramp, 0.0, 1.0);
  return theta * ((1 - rho) / static_cast<double>(p.yarn_factor) + rho);
}

// The table is made of constants of T: no gradient goes through positions or factors.
template <class T>
void turn(const RefArgs<T>& args, double direction) {
  const RefTensor<T>&x = args.src[0], &pos = args.src[1], &factors = args.src[2], &y = args.dst;
  const RopeMap& p = args.template params<RopeMap>();
  const int64_t half = p.n_rot / 2;
  for_rows(y, [&](int64_t h, int64_t t, int64_t) {
    for (int64_t i = 0; i < half; ++i) {
      const double theta =
          pos.id(t, position_of_pair(p, i)) * angle_of_pair(p, i, factors ? re(factors(i)) : 1.0);
      const double m = static_cast<double>(p.magnitude);
      const T c = T(std::cos(theta) * m), s = T(std::sin(theta) * m * direction);
      const int64_t first = p.first + (p.neox ? i : 2 * i), second = p.neox ? first + half : first + 1;
      const T a = x(first, h, t), b = x(second, h, t);
      y(first, h, t) = a * c - b * s;
      y(second, h, t) = a * s + b * c;
    }
    for (int64_t i = 0; i < p.first; ++i) y(i, h, t) = x(i, h, t);
    for (int64_t i = p.first + p.n_rot; i < y.ne[0]; ++i) y(i, h, t) = x(i, h, t);
  });
}

template <class T>
void ref(const RefArgs<T>& args) {
  turn(args, 1);
}

template <class T>
void ref_back(const RefArgs<T>& args) {
  turn(args, -1);
}

}  // namespace

Tensor rope(Tensor x, Tensor pos, Tensor freq_factors, const RopeParams& params) {
  return x.graph->emit(Op::ROPE, {x, pos, freq_factors}, map_of(params, x.ne(0)));
}

Tensor rope_back(Tensor dy, Tensor pos, Tensor freq_factors, const RopeParams& params) {
  return dy.graph->emit(Op::ROPE_BACK, {dy, pos, freq_factors}, map_of(params, dy.ne(0)));
}

extern const OpDef ROPE_def{.name = "ROPE",
                            .n_src = 3,
                            .n_required = 2,
                            .infer = infer,
                            .backward = back,
                            .no_grad = 6,
                            .inplace = 1,
                            TANDEM_REF(ref)};
extern const OpDef ROPE_BACK_def{.name = "ROPE_BACK",
                                 .n_src = 3,
                                 .n_required = 2,
                                 .infer = infer,
                                 .backward = kNoGrad,
                                 .inplace = 1,
                                 TANDEM_REF(ref_back)};

}  // namespace tandem
