#include "tests/op/op_case.h"

namespace tandem {
namespace {

const std::vector<int32_t> kPositions = {0, 1, 7, 300, 4097};

RopeParams neox(int n_rot) { return {.kind = RopeKind::Neox, .n_rot = n_rot}; }

RopeParams yarn(int truncate) {
  return {.kind = RopeKind::Neox,
          .n_rot = 16,
          .yarn_factor = 32.f,
          .yarn_n_ctx_orig = 4096,
          .yarn_truncate = truncate,
          .magnitude = 1.3465735912322998f};
}

RopeParams imrope(int n_rot, int t, int h, int w, int e) {
  return {.kind = RopeKind::Neox, .n_rot = n_rot, .base = 1e7f, .sections = {t, h, w, e}};
}

using Turn = Tensor (*)(Tensor, Tensor, Tensor, const RopeParams&);

// A head of 16 at the positions of the golden vectors.
OpCase golden_like(const char* name, Turn turn, const RopeParams& params) {
  return {name, [=](CaseBuilder& c) {
            return turn(c.input("x", {16, 2, 5}), c.ids_of("pos", {5}, kPositions), {}, params);
          }};
}

std::vector<OpCase> cases_of(Turn turn) {
  return {
      golden_like("neox", turn, neox(16)),
      golden_like("neox, a part of the head", turn, neox(8)),
      golden_like("neox, one pair", turn, neox(2)),
      golden_like("normal", turn, {.kind = RopeKind::Normal, .n_rot = 16}),
      golden_like("normal, a part of the head", turn, {.kind = RopeKind::Normal, .n_rot = 6}),
      golden_like("normal, the last channels", turn, {.kind = RopeKind::Normal, .n_rot = 6, .last = true}),
      golden_like("neox, the last channels", turn, {.kind = RopeKind::Neox, .n_rot = 10, .last = true}),
      golden_like("the last channels, which are all", turn,
                  {.kind = RopeKind::Normal, .n_rot = 16, .last = true}),
      golden_like("linear scaling", turn,
                  {.kind = RopeKind::Neox, .n_rot = 16, .base = 5e5f, .scale = 0.25f}),
      golden_like("yarn, ramp rounded", turn, yarn(1)),
      golden_like("yarn, ramp as it is", turn, yarn(0)),
      golden_like("yarn, a ramp over one pair", turn,
                  {.kind = RopeKind::Neox, .n_rot = 8, .yarn_factor = 32.f, .yarn_n_ctx_orig = 32}),
      golden_like("yarn, a ramp over less than a pair", turn,
                  {.kind = RopeKind::Neox, .n_rot = 4, .yarn_factor = 32.f, .yarn_n_ctx_orig = 4096}),
      {"llama 3 factors",
       [=](CaseBuilder& c) {
         return turn(c.input("x", {16, 2, 5}), c.ids_of("pos", {5}, kPositions),
                     c.constant("factors", {8}, 1, 8), {.kind = RopeKind::Normal, .n_rot = 16});
       }},
      {"imrope",
       [=](CaseBuilder& c) {
         return turn(c.input("x", {16, 2, 5}), c.ids("pos", {5, 4}, 4000), {}, imrope(16, 3, 3, 2, 0));
       }},
      {"imrope with extra positions",
       [=](CaseBuilder& c) {
         return turn(c.input("x", {48, 3, 4}), c.ids("pos", {4, 4}, 4000), {}, imrope(40, 4, 6, 2, 6));
       }},
      {"imrope of heights alone",
       [=](CaseBuilder& c) {
         return turn(c.input("x", {16, 2, 4}), c.ids("pos", {4, 4}, 4000), {}, imrope(16, 0, 8, 0, 0));
       }},
      {"imrope, fewer heights and widths than times",
       [=](CaseBuilder& c) {
         return turn(c.input("x", {34, 2, 4}), c.ids("pos", {4, 4}, 4000), {}, imrope(32, 5, 4, 4, 3));
       }},
      {"five units and a token",
       [=](CaseBuilder& c) {
         return turn(c.input("x", {20, 3, 431}), c.ids("pos", {431}, 4000), {}, neox(16));
       }},
      {"heads of 128",
       [=](CaseBuilder& c) {
         return turn(c.input("x", {128, 4, 40}), c.ids("pos", {40}, 40000), {}, {.n_rot = 128, .base = 1e6f});
       }},
      {"far positions",
       [=](CaseBuilder& c) {
         return turn(c.input("x", {64, 2, 4}), c.ids_of("pos", {4}, {65535, 99999, 131071, 262143}), {},
                     neox(64));
       }},
      {"odd tails",
       [=](CaseBuilder& c) {
         return turn(c.input("x", {31, 3, 3}), c.ids("pos", {3}, 99), {}, neox(22));
       }},
      {"heads in a fused tensor",
       [=](CaseBuilder& c) {
         Tensor x = view_strided(c.input("x", {100, 6}), {20, 3, 6}, {4, 80, 400, 2400}, 80);
         return turn(x, c.ids("pos", {6}, 500), {}, neox(20));
       }},
      {"the last channels of heads of 192",
       [=](CaseBuilder& c) {
         return turn(c.input("x", {192, 3, 7}), c.ids("pos", {7}, 5000), {},
                     {.kind = RopeKind::Normal,
                      .n_rot = 64,
                      .last = true,
                      .yarn_factor = 40.f,
                      .yarn_n_ctx_orig = 4096});
       }},
      {"the last channels over a dead source",
       [=](CaseBuilder& c) {
         return turn(scale(c.input("x", {24, 3, 5}), 2.f), c.ids("pos", {5}, 500), {},
                     {.kind = RopeKind::Normal, .n_rot = 10, .last = true});
       }},
      {"a part of each row as its one head",
       [=](CaseBuilder& c) {
         Tensor x = view_strided(c.input("x", {30, 6}), {12, 1, 6}, {4, 120, 120, 720}, 72);
         return turn(x, c.ids("pos", {6}, 500), {}, {.kind = RopeKind::Normal, .n_rot = 12, .last = true});
       }},
      {"over a dead source",
       [=](CaseBuilder& c) {
         return turn(scale(c.input("x", {24, 3, 5}), 2.f), c.ids("pos", {5}, 500), {}, neox(16));
       }},
  };
}

}  // namespace

TANDEM_OP_CASES(ROPE) { return cases_of(rope); }

TANDEM_OP_CASES(ROPE_BACK) { return cases_of(rope_back); }

}  // namespace tandem
