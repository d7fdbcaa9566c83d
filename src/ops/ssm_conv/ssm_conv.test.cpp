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

Tensor positions_of(CaseBuilder& c, const std::vector<int32_t>& positions) {
  return c.ids_of("positions", {static_cast<int64_t>(positions.size())}, positions);
}

OpCase forward_case(const char* name, int64_t n_channels, int64_t n_taps, std::vector<int32_t> positions) {
  return {name, [=](CaseBuilder& c) {
            return ssm_conv(c.input("m", {n_channels, static_cast<int64_t>(positions.size())}),
                            c.constant("w", {n_taps, n_channels}), c.input("state", {n_channels, n_taps - 1}),
                            positions_of(c, positions));
          }};
}

OpCase back_case(const char* name, int64_t n_channels, int64_t n_taps, std::vector<int32_t> positions) {
  return {name, [=](CaseBuilder& c) {
            return ssm_conv_back(c.input("dy", {n_channels, static_cast<int64_t>(positions.size())}),
                                 c.constant("w", {n_taps, n_channels}), positions_of(c, positions));
          }};
}

// The state after a range, as its own gradient wants it.
OpCase state_case(const char* name, int64_t n_channels, int64_t n_tokens, int64_t n_state) {
  return {name, [=](CaseBuilder& c) {
            return conv_state(c.input("m", {n_channels, n_tokens}), c.input("state", {n_channels, n_state}));
          }};
}

}  // namespace

TANDEM_OP_CASES(SSM_CONV) {
  return {
      forward_case("goes on", 19, 4, samples({7}, 50)),
      forward_case("goes on inside the taps", 8, 4, samples({5}, 2)),
      forward_case("samples side by side", 17, 4, samples({2, 3, 1, 1, 5}, 1)),
      forward_case("one token", 24, 4, samples({1}, 9)),
      forward_case("one token after one", 5, 4, samples({1}, 1)),
      forward_case("two tokens, many taps", 6, 7, samples({2}, 4)),
      forward_case("two taps", 9, 2, samples({4, 3}, 3)),
      forward_case("several units", 521, 4, samples({40, 101, 2}, 3)),
      {"strided",
       [](CaseBuilder& c) {
         const Tensor m = view_strided(c.input("m", {30, 6}), {20, 6}, {4, 120, 720, 720}, 16);
         const Tensor w = view_strided(c.constant("w", {5, 20}), {4, 20}, {4, 20, 400, 400}, 4);
         const Tensor state = view_strided(c.input("state", {23, 3}), {20, 3}, {4, 92, 276, 276}, 8);
         return ssm_conv(m, w, state, positions_of(c, samples({4, 2}, 5)));
       }},
      {"with the state it leaves",
       [](CaseBuilder& c) {
         const Tensor m = c.input("m", {8, 2}), w = c.constant("w", {4, 8}), state = c.input("state", {8, 3});
         const Tensor first = ssm_conv(m, w, state, positions_of(c, samples({2}, 6)));
         const Tensor positions = c.ids_of("later", {2}, samples({2}, 8));
         return add(first, ssm_conv(c.input("m2", {8, 2}), w, conv_state(m, state), positions));
       }},
  };
}

TANDEM_OP_CASES(SSM_CONV_BACK) {
  return {
      back_case("goes on", 19, 4, samples({7}, 50)),
      back_case("samples side by side", 17, 4, samples({2, 3, 1, 1, 5}, 1)),
      back_case("one token", 24, 4, samples({1}, 9)),
      back_case("two tokens, many taps", 6, 7, samples({2}, 4)),
      back_case("several units", 521, 4, samples({40, 101, 2}, 3)),
      {"strided",
       [](CaseBuilder& c) {
         const Tensor dy = view_strided(c.input("dy", {30, 6}), {20, 6}, {4, 120, 720, 720}, 16);
         const Tensor w = view_strided(c.constant("w", {5, 20}), {4, 20}, {4, 20, 400, 400}, 4);
         return ssm_conv_back(dy, w, positions_of(c, samples({4, 2}, 5)));
       }},
  };
}

TANDEM_OP_CASES(SSM_CONV_STATE) {
  return {
      state_case("one token", 21, 1, 3),
      state_case("two tokens", 8, 2, 3),
      state_case("many taps", 5, 3, 11),
      {"strided",
       [](CaseBuilder& c) {
         const Tensor m = view_strided(c.input("m", {13, 2}), {9, 2}, {4, 52, 104, 104}, 12);
         const Tensor state = view_strided(c.input("state", {11, 4}), {9, 4}, {4, 44, 176, 176}, 8);
         return conv_state(m, state);
       }},
      {"read in part",
       [](CaseBuilder& c) {
         const Tensor after = conv_state(c.input("m", {6, 2}), c.input("state", {6, 5}));
         return mul(view_strided(after, {4, 4}, {4, 24, 96, 96}, 32), c.constant("c", {4, 4}));
       }},
  };
}

}  // namespace tandem
