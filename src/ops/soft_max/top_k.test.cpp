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
      {"of the best 2 of 4 groups, by two each",
       [](CaseBuilder& c) {
         return top_k(c.constant("x", {32, 19}), 6, {4, 2, 2});
       }},
      {"as many experts as DeepSeek-V3",
       [](CaseBuilder& c) {
         return top_k(c.constant("x", {256, 21}), 8, {8, 4, 2});
       }},
      {"all of the best 3 of 5 groups, by one each",
       [](CaseBuilder& c) {
         return top_k(c.constant("x", {35, 7}), 21, {5, 3, 1});
       }},
      {"one of one group, by all of it",
       [](CaseBuilder& c) {
         return top_k(c.constant("x", {15, 9}), 1, {3, 1, 5});
       }},
      {"all groups",
       [](CaseBuilder& c) {
         return top_k(c.constant("x", {24, 9}), 5, {4, 4, 2});
       }},
      {"groups that tie",
       [](CaseBuilder& c) {
         return top_k(repeat(c.constant("x", {6, 8}), {30, 8}), 7, {5, 2, 2});
       }},
      {"groups of equal numbers, zeros of both signs",
       [](CaseBuilder& c) {
         return top_k(scale(c.constant("x", {20, 3}), 0.f), 6, {5, 2, 2});
       }},
      {"groups, strided",
       [](CaseBuilder& c) {
         return top_k(view_strided(c.constant("x", {40, 6}), {28, 6}, {4, 160, 960, 960}, 12), 5, {7, 3, 2});
       }},
      {"strided",
       [](CaseBuilder& c) {
         return top_k(view_strided(c.constant("x", {40, 6}), {29, 6}, {4, 160, 960, 960}, 12), 5);
       }},
  };
}

}  // namespace tandem
