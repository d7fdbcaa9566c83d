#include <cmath>

#include "tests/op/op_case.h"

namespace tandem {
namespace {

// The positions of samples of these lengths side by side, the first of which begins at `first`.
std::vector<int32_t> samples(std::initializer_list<int> lengths, int32_t first = 0) {
  std::vector<int32_t> positions;
  for (int n : lengths) {
    for (int32_t i = 0; i < n; ++i) positions.push_back(first + i);
    first = 0;
  }
  return positions;
}

struct Sizes {
  int64_t d_k, d_v, n_k, n_v;
  std::vector<int32_t> positions;
  DeltaHeads heads = DeltaHeads::Tiled;
  enum { Plain, SimilarKeys, StrongDecay, Strided } kind = Plain;
};

// A tensor of this shape: an input, or a window onto a wider one.
Tensor rows(CaseBuilder& c, const char* name, const Shape& ne, double lo, double hi, bool strided) {
  if (!strided) return c.input(name, ne, lo, hi);
  const Tensor wide = c.input(name, {ne[0] + 3, ne[1] + 1, ne[2]}, lo, hi);
  return view_strided(wide, ne, wide.node->nb, 8);
}

// Every third token forgets nearly all that was before it.
Tensor strong_decay(CaseBuilder& c, int64_t n_v, int64_t n_tokens) {
  const Tensor forget = view_back(c.constant("forget", {1, 1}, -40, -39), {1, 3}, {4, 4, 12, 12}, 4);
  const Tensor g = add(c.input("g", {n_v, 3, n_tokens / 3}, -0.3, -0.01), forget);
  return reshape(g, {n_v, n_tokens});
}

// What both ops start from.
struct Inputs {
  Tensor q, k, v, g, beta, state, positions;
  DeltaHeads heads;

  Inputs(CaseBuilder& c, const Sizes& s) : heads(s.heads) {
    const bool strided = s.kind == Sizes::Strided;
    const int64_t n = static_cast<int64_t>(s.positions.size());
    const double size = 1.5 / std::sqrt(static_cast<double>(s.d_k));  // keys are about as long as normed ones
    q = rows(c, "q", {s.d_k, s.n_k, n}, -size, size, strided);
    if (s.kind == Sizes::SimilarKeys) {
      k = add(c.input("k", {s.d_k, s.n_k, n}, -0.1 * size, 0.1 * size),
              c.constant("key", {s.d_k, 1, 1}, 0.5 * size, 0.7 * size));
    } else {
      k = rows(c, "k", {s.d_k, s.n_k, n}, -size, size, strided);
    }
    v = rows(c, "v", {s.d_v, s.n_v, n}, -1, 1, strided);
    // What no gradient can reach is no input: a state that no token reads, and decays of nothing but such.
    const bool reads_state = s.positions[0] != 0, first_alone = n == 1 && !reads_state;
    g = first_alone                    ? c.constant("g", {s.n_v, n}, -0.5, -0.001)
        : s.kind == Sizes::StrongDecay ? strong_decay(c, s.n_v, n)
                                       : rows(c, "g", {s.n_v, n}, -0.5, -0.001, strided);
    const bool similar = s.kind == Sizes::SimilarKeys;
    beta = rows(c, "beta", {s.n_v, n}, similar ? 0.97 : 0.02, similar ? 0.99 : 0.98, strided);
    state = reads_state ? rows(c, "state", {s.d_k, s.d_v, s.n_v}, -1, 1, strided)
                        : c.constant("state", {s.d_k, s.d_v, s.n_v});
    positions = c.ids_of("positions", {n}, s.positions);
  }
  Tensor forward() const { return gated_delta_net(q, k, v, g, beta, state, positions, heads); }
};

OpCase forward_case(const char* name, Sizes s) {
  return {name, [s](CaseBuilder& c) { return Inputs(c, s).forward(); }};
}

OpCase back_case(const char* name, Sizes s) {
  return {name, [s](CaseBuilder& c) {
            const Inputs in(c, s);
            const int64_t n =
                s.d_v * s.n_v * static_cast<int64_t>(s.positions.size()) + s.d_k * s.d_v * s.n_v;
            return gated_delta_net_back(in.q, in.k, in.v, in.g, in.beta, in.state, in.positions,
                                        c.input("dpacked", {n}), s.heads);
          }};
}

}  // namespace

TANDEM_OP_CASES(GATED_DELTA_NET) {
  constexpr DeltaHeads kGrouped = DeltaHeads::Grouped;
  return {
      forward_case("a value head for each key head", {8, 8, 3, 3, samples({7}, 5)}),
      forward_case("two value heads for a key head", {8, 8, 3, 6, samples({18}, 5)}),
      forward_case("three value heads for a key head", {8, 4, 2, 6, samples({9}, 70)}),
      forward_case("two value heads, grouped", {8, 8, 3, 6, samples({18}, 5), kGrouped}),
      forward_case("three value heads, grouped", {8, 4, 2, 6, samples({9}, 70), kGrouped}),
      forward_case("values wider than keys", {12, 21, 2, 4, samples({20}, 1)}),
      forward_case("keys wider than values", {37, 5, 1, 2, samples({17}, 1)}),
      forward_case("one token", {20, 37, 2, 4, samples({1}, 9)}),
      forward_case("one token, the first", {8, 8, 2, 2, samples({1})}),
      forward_case("few tokens of three samples", {8, 36, 1, 2, samples({5, 1, 6}, 2)}),
      forward_case("a chunk of a new sample", {8, 8, 2, 4, samples({64})}),
      forward_case("several chunks and a rest", {8, 8, 1, 2, samples({150}, 64)}),
      forward_case("several chunks that begin inside one", {8, 8, 1, 2, samples({150}, 37)}),
      forward_case("samples begin inside chunks", {8, 8, 2, 4, samples({20, 70, 1, 39}, 3)}),
      forward_case("samples of one token", {8, 8, 1, 1, samples({1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 9, 1, 1, 1})}),
      forward_case("wide heads", {128, 128, 1, 1, samples({66}, 128)}),
      forward_case("strong decay", {8, 8, 1, 2, samples({90}, 64), {}, Sizes::StrongDecay}),
      forward_case("few tokens, strong decay", {8, 8, 1, 2, samples({9}, 64), {}, Sizes::StrongDecay}),
      forward_case("similar keys", {16, 8, 1, 2, samples({100}, 64), {}, Sizes::SimilarKeys}),
      forward_case("strided", {12, 9, 2, 4, samples({30}, 50), {}, Sizes::Strided}),
      forward_case("few tokens, strided", {12, 9, 2, 4, samples({6}, 50), {}, Sizes::Strided}),
      {"output alone",
       [](CaseBuilder& c) {
         const Inputs in(c, {8, 6, 2, 4, samples({23}, 5)});
         return delta_out(in.forward(), in.v);
       }},
      {"state alone",
       [](CaseBuilder& c) {
         const Tensor q = c.constant("q", {8, 2, 23}), k = c.input("k", {8, 2, 23}, -0.5, 0.5),
                      v = c.input("v", {6, 4, 23}), g = c.input("g", {4, 23}, -0.5, -0.001);
         const Tensor beta = c.input("beta", {4, 23}, 0.02, 0.98), state = c.input("state", {8, 6, 4});
         const Tensor positions = c.ids_of("positions", {23}, samples({23}, 5));
         return delta_state(gated_delta_net(q, k, v, g, beta, state, positions, DeltaHeads::Tiled), v, state);
       }},
  };
}

TANDEM_OP_CASES(GATED_DELTA_NET_BACK) {
  constexpr DeltaHeads kGrouped = DeltaHeads::Grouped;
  return {
      back_case("a value head for each key head", {8, 8, 3, 3, samples({7}, 5)}),
      back_case("two value heads for a key head", {8, 8, 3, 6, samples({18}, 5)}),
      back_case("three value heads for a key head", {8, 4, 2, 6, samples({9}, 70)}),
      back_case("two value heads, grouped", {8, 8, 3, 6, samples({18}, 5), kGrouped}),
      back_case("three value heads, grouped", {8, 4, 2, 6, samples({9}, 70), kGrouped}),
      back_case("values wider than keys", {12, 21, 2, 4, samples({20}, 1)}),
      back_case("keys wider than values", {37, 5, 1, 2, samples({17}, 1)}),
      back_case("one token", {20, 37, 2, 4, samples({1}, 9)}),
      back_case("a chunk of a new sample", {8, 8, 2, 4, samples({64})}),
      back_case("several chunks and a rest", {8, 8, 1, 2, samples({150}, 64)}),
      back_case("several chunks that begin inside one", {8, 8, 1, 2, samples({150}, 37)}),
      back_case("samples begin inside chunks", {8, 8, 2, 4, samples({20, 70, 1, 39}, 3)}),
      back_case("wide heads", {128, 128, 1, 2, samples({70}, 64)}),
      back_case("strong decay", {8, 8, 1, 2, samples({90}, 64), {}, Sizes::StrongDecay}),
      back_case("similar keys", {16, 8, 1, 2, samples({100}, 64), {}, Sizes::SimilarKeys}),
      back_case("strided", {12, 9, 2, 4, samples({30}, 50), {}, Sizes::Strided}),
  };
}

}  // namespace tandem
