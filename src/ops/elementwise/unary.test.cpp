#include "tests/op/op_case.h"

namespace tandem {
namespace {

using Unary = Tensor (*)(Tensor);
using UnaryBack = Tensor (*)(Tensor, Tensor);

std::vector<OpCase> forward_cases(Unary op) {
  return {
      {"row",
       [=](CaseBuilder& c) {
         return op(c.input("x", {33, 3}));
       }},
      {"one element", [=](CaseBuilder& c) { return op(c.input("x", {1})); }},
      {"large on both sides",
       [=](CaseBuilder& c) {
         return op(c.input("x", {64, 3}, -60, 60));
       }},
      {"strided",
       [=](CaseBuilder& c) {
         return op(view_strided(c.input("x", {30, 5}), {13, 5}, {4, 120, 600, 600}, 12));
       }},
      {"several units",
       [=](CaseBuilder& c) {
         return op(c.input("x", {768, 43}, -4, 4));
       }},
      {"over a dead source",
       [=](CaseBuilder& c) {
         return op(scale(c.input("x", {21, 3}), 3.f));
       }},
  };
}

// The second source ranges over what the op can meet there.
std::vector<OpCase> backward_cases(UnaryBack op, double lo, double hi) {
  return {
      {"row",
       [=](CaseBuilder& c) {
         return op(c.input("dy", {33, 3}), c.input("x", {33, 3}, lo, hi));
       }},
      {"one element", [=](CaseBuilder& c) { return op(c.input("dy", {1}), c.input("x", {1}, lo, hi)); }},
      {"strided",
       [=](CaseBuilder& c) {
         Tensor x = c.input("x", {30, 5}, lo, hi);
         return op(c.input("dy", {13, 5}), view_strided(x, {13, 5}, {4, 120, 600, 600}, 12));
       }},
      {"several units",
       [=](CaseBuilder& c) {
         return op(c.input("dy", {768, 43}), c.input("x", {768, 43}, lo, hi));
       }},
  };
}

}  // namespace

TANDEM_OP_CASES(SIGMOID) { return forward_cases(sigmoid); }
TANDEM_OP_CASES(SILU) { return forward_cases(silu); }
TANDEM_OP_CASES(SOFTPLUS) { return forward_cases(softplus); }
TANDEM_OP_CASES(SIGMOID_BACK) { return backward_cases(sigmoid_back, 0, 1); }
TANDEM_OP_CASES(SILU_BACK) { return backward_cases(silu_back, -30, 30); }
TANDEM_OP_CASES(SOFTPLUS_BACK) { return backward_cases(softplus_back, -30, 30); }

}  // namespace tandem
