#include "tests/op/op_case.h"

namespace tandem {

TANDEM_OP_CASES(DROPOUT) {
  return {
      {"row",
       [](CaseBuilder& c) {
         return dropout(c.input("x", {64, 5}), {1, 2, 3, 4, 5, 0.25f});
       }},
      {"odd row",
       [](CaseBuilder& c) {
         return dropout(c.input("x", {35, 20}), {7, 0, 100, 0, 1, 0.5f});
       }},
      {"one element rows",
       [](CaseBuilder& c) {
         return dropout(c.input("x", {1, 41}), {7, 1, 0, 0, 0, 0.5f});
       }},
      {"nothing dropped",
       [](CaseBuilder& c) {
         return dropout(c.input("x", {33, 2}), {7, 1, 0, 0, 0, 0.f});
       }},
      {"nearly all dropped",
       [](CaseBuilder& c) {
         return dropout(c.input("x", {400, 3}), {7, 1, 0, 0, 0, 0.98f});
       }},
      {"strided",
       [](CaseBuilder& c) {
         Tensor x = c.input("x", {24, 4, 3});
         return dropout(view_strided(x, {17, 3, 4}, {4, 384, 96, 1152}, 12), {9, 3, 5, 1, 2, 0.3f});
       }},
      {"several units",
       [](CaseBuilder& c) {
         return dropout(c.input("x", {2048, 20}), {1, 1, 1, 1, 1, 0.1f});
       }},
  };
}

}  // namespace tandem
