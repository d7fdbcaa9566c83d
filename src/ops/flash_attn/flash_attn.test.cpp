#include "tests/op/op_case.h"

namespace tandem {
namespace {

struct Sizes {
  int64_t d, dv, n_head, n_head_kv, n_tokens, n_past = 0;
  std::vector<int32_t> first_key = {};  // empty: all zero
  bool strided = false;                 // q, k, v and the past are windows onto wider tensors
};

// {d, heads, tokens}: an input, or a window onto one with strides of its own.
Tensor rows(CaseBuilder& c, const char* name, const Shape& ne, bool strided) {
  if (!strided) return c.input(name, ne);
  const Tensor wide = c.input(name, {ne[0] + 3, ne[1], ne[2], 2});
  const std::array<int64_t, kMaxDims>& nb = wide.node->nb;
  return view_strided(wide, ne, nb, nb[3] + 8);
}

// The first key of each token of sequences packed one after the other.
std::vector<int32_t> packed(std::initializer_list<int> lengths) {
  std::vector<int32_t> first_key;
  for (int n : lengths)
    first_key.insert(first_key.end(), static_cast<size_t>(n), static_cast<int32_t>(first_key.size()));
  return first_key;
}

// Every other token sees all keys, the others only themselves and what follows.
std::vector<int32_t> every_other(int n_tokens, int n_past) {
  std::vector<int32_t> first_key(static_cast<size_t>(n_tokens));
  for (int i = 0; i < n_tokens; i += 2) first_key[static_cast<size_t>(i)] = n_past + i;
  return first_key;
}

// What both ops start from.
struct Inputs {
  Tensor q, k, v, k_past, v_past, first_key;
  float scale;

  Inputs(CaseBuilder& c, const Sizes& s) : scale(0.35f) {
    q = rows(c, "q", {s.d, s.n_head, s.n_tokens}, s.strided);
    k = rows(c, "k", {s.d, s.n_head_kv, s.n_tokens}, s.strided);
    v = rows(c, "v", {s.dv, s.n_head_kv, s.n_tokens}, s.strided);
    if (s.n_past) {
      k_past = rows(c, "k_past", {s.d, s.n_head_kv, s.n_past}, s.strided);
      v_past = rows(c, "v_past", {s.dv, s.n_head_kv, s.n_past}, s.strided);
    }
    const std::vector<int32_t> zeros(static_cast<size_t>(s.n_tokens));
    first_key = c.ids_of("first_key", {s.n_tokens}, s.first_key.empty() ? zeros : s.first_key);
  }
  Tensor forward() const { return flash_attn(q, k, v, k_past, v_past, first_key, scale); }
  Tensor backward(Tensor dpacked) const {
    return flash_attn_back(q, k, v, k_past, v_past, first_key, forward(), dpacked, scale);
  }
};

OpCase forward_case(const char* name, Sizes s) {
  return {name, [s](CaseBuilder& c) { return Inputs(c, s).forward(); }};
}

OpCase back_case(const char* name, Sizes s) {
  return {name, [s](CaseBuilder& c) {
            const Inputs in(c, s);
            return in.backward(c.input("dpacked", {(s.dv + 1) * s.n_head * s.n_tokens}));
          }};
}

}  // namespace

TANDEM_OP_CASES(FLASH_ATTN) {
  return {
      forward_case("grouped", {16, 16, 4, 2, 7}),
      forward_case("values of another width", {8, 24, 2, 1, 6}),
      forward_case("width is no multiple of a vector", {20, 13, 2, 2, 5}),
      forward_case("wide heads", {128, 128, 2, 1, 3}),
      forward_case("one token", {8, 8, 4, 2, 1, 5}),
      forward_case("one token after several key tiles", {8, 4, 8, 1, 1, 150}),
      forward_case("one token over a key tile", {8, 8, 2, 1, 65}),
      forward_case("several key tiles, a kv head each", {8, 8, 2, 2, 140}),
      forward_case("groups of eight over a key tile", {4, 4, 16, 2, 67}),
      forward_case("past ends with a key tile", {8, 12, 4, 2, 6, 64}),
      forward_case("past ends inside a key tile", {8, 12, 4, 2, 40, 77}),
      forward_case("packed sequences", {8, 8, 4, 2, 90, 0, packed({20, 1, 33, 36})}),
      forward_case("packed sequences over the past", {8, 8, 2, 1, 8, 70, {3, 3, 66, 66, 66, 74, 74, 74}}),
      forward_case("first keys go up and down", {8, 8, 2, 1, 6, 3, {2, 0, 5, 1, 7, 4}}),
      forward_case("tokens fill the lanes, a kv head each", {8, 8, 2, 2, 32}),
      forward_case("wide heads behind a long past", {128, 128, 1, 1, 48, 600}),
      forward_case("units enough to keep two threads at work", {64, 64, 4, 1, 200}),
      forward_case("strided", {12, 8, 4, 2, 9, 0, {}, true}),
      forward_case("strided with a past", {12, 8, 4, 2, 3, 6, {}, true}),
      {"scores far apart",
       [](CaseBuilder& c) {
         const Tensor q = c.input("q", {8, 2, 80}, -9, 9), k = c.input("k", {8, 1, 80}, -9, 9);
         const Tensor ids = c.ids_of("first_key", {80}, std::vector<int32_t>(80));
         return flash_attn(q, k, c.input("v", {8, 1, 80}), {}, {}, ids, 0.5f);
       }},
      {"output alone",
       [](CaseBuilder& c) {
         const Inputs in(c, {8, 4, 4, 2, 9});
         return attn_out(in.forward(), in.q, in.v);
       }},
      {"log-sum-exp alone",
       [](CaseBuilder& c) {
         const Tensor q = c.input("q", {8, 4, 9}), k = c.input("k", {8, 2, 9}),
                      v = c.constant("v", {4, 2, 9});
         const Tensor ids = c.ids_of("first_key", {9}, {0, 0, 0, 0, 0, 5, 5, 5, 5});
         return attn_lse(flash_attn(q, k, v, {}, {}, ids, 0.35f), q, v);
       }},
  };
}

TANDEM_OP_CASES(FLASH_ATTN_BACK) {
  return {
      back_case("grouped", {16, 16, 4, 2, 7}),
      back_case("values of another width", {20, 13, 2, 1, 6}),
      back_case("wide heads", {128, 128, 2, 1, 67}),
      back_case("one token after several key tiles", {8, 4, 8, 1, 1, 150}),
      back_case("several key tiles, a kv head each", {8, 8, 2, 2, 140}),
      back_case("groups of eight over a key tile", {4, 4, 16, 2, 67}),
      back_case("past ends inside a key tile", {8, 12, 4, 2, 40, 77}),
      back_case("packed sequences", {8, 8, 4, 2, 90, 0, packed({20, 1, 33, 36})}),
      back_case("packed sequences over the past", {8, 8, 2, 1, 8, 70, {3, 3, 66, 66, 66, 74, 74, 74}}),
      back_case("first keys go up and down", {8, 8, 2, 1, 6, 3, {2, 0, 5, 1, 7, 4}}),
      back_case("first keys go up and down over several units", {8, 8, 2, 1, 70, 3, every_other(70, 3)}),
      back_case("wide values, two units of queries", {4, 4096, 2, 1, 8}),
      back_case("units enough to keep two threads at work", {64, 64, 4, 1, 200}),
      back_case("strided with a past", {12, 8, 4, 2, 3, 6, {}, true}),
  };
}

}  // namespace tandem
