#include "tests/op/op_case.h"

namespace tandem {

TANDEM_OP_CASES(TOP_K) {
  return {
      {"experts",
       [](CaseBuilder& c) {
         return top_k(c.constant("x", {128, 9}), 8);
       }},
      {"many experts",
       [](CaseBuilder& c) {
         return top_k(c.constant("x", {512, 40}), 10);
       }},
      {"odd row",
       [](CaseBuilder& c) {
         return top_k(c.constant("x", {37, 5}), 3);
       }},
      {"the largest",
       [](CaseBuilder& c) {
         return top_k(c.constant("x", {61, 5}), 1);
       }},
      {"all of them",
       [](CaseBuilder& c) {
         return top_k(c.constant("x", {13, 4}), 13);
       }},
      {"one of one",
       [](CaseBuilder& c) {
         return top_k(c.constant("x", {1, 4}), 1);
       }},
      {"ties",
       [](CaseBuilder& c) {
         return top_k(repeat(c.constant("x", {7, 6}), {35, 6}), 12);
       }},
      {"neighbours tie",
       [](CaseBuilder& c) {
         return top_k(reshape(repeat(c.constant("x", {1, 12, 3}), {4, 12, 3}), {48, 3}), 10);
       }},
      {"all equal, zeros of both signs",
       [](CaseBuilder& c) {
         return top_k(scale(c.constant("x", {20, 3}), 0.f), 6);
       }},
      {"more dimensions",
       [](CaseBuilder& c) {
         return top_k(c.constant("x", {16, 3, 2, 2}), 4);
       }},
      {"a unit and a row",
       [](CaseBuilder& c) {
         return top_k(c.constant("x", {16, 257}), 2);
       }},
      {"four dimensions, strided",
       [](CaseBuilder& c) {
         return top_k(view_strided(c.constant("x", {20, 3, 4, 2}), {17, 3, 2, 2}, {4, 80, 480, 960}, 8), 3);
       }},
      {"strided",
       [](CaseBuilder& c) {
         return top_k(view_strided(c.constant("x", {40, 6}), {29, 6}, {4, 160, 960, 960}, 12), 5);
       }},
  };
}

}  // namespace tandem
