#include "tests/op/op_case.h"

namespace tandem {

TANDEM_OP_CASES(SOFT_MAX) {
  return {
      {"row",
       [](CaseBuilder& c) {
         return soft_max(c.input("x", {33, 5}, -3, 3));
       }},
      {"experts",
       [](CaseBuilder& c) {
         return soft_max(c.input("x", {128, 9}, -2, 2));
       }},
      {"more than one unit",
       [](CaseBuilder& c) {
         return soft_max(c.input("x", {60, 4, 70}));
       }},
      {"two units and a row, over a dead source",
       [](CaseBuilder& c) {
         return soft_max(scale(c.input("x", {60, 241}), 2.f));
       }},
      {"one element",
       [](CaseBuilder& c) {
         return mul(soft_max(c.constant("x", {1, 3})), c.input("y", {1, 3}));
       }},
      {"far apart",
       [](CaseBuilder& c) {
         return soft_max(c.constant("x", {19, 4}, -60, 60));
       },
       "one probability is nearly 1, and y (dy - <y, dy>) cancels to less than f32 resolves"},
      {"large numbers",
       [](CaseBuilder& c) {
         return soft_max(c.input("x", {19, 4}, 1000, 1002));
       }},
      {"equal numbers",
       [](CaseBuilder& c) {
         return soft_max(repeat(c.input("x", {7, 3}), {21, 3}));
       }},
      {"strided",
       [](CaseBuilder& c) {
         return soft_max(view_strided(c.input("x", {24, 5}), {17, 5}, {4, 96, 480, 480}, 16));
       }},
      {"four dimensions",
       [](CaseBuilder& c) {
         return soft_max(view_strided(c.input("x", {20, 3, 4, 2}), {17, 3, 2, 2}, {4, 80, 480, 960}, 8));
       }},
      {"over a dead source",
       [](CaseBuilder& c) {
         return soft_max(scale(c.input("x", {40, 3}), 2.f));
       }},
      {"long row",
       [](CaseBuilder& c) {
         return soft_max(c.input("x", {4099, 2}, -3, 3));
       }},
  };
}

TANDEM_OP_CASES(SOFT_MAX_BACK) {
  return {
      {"row",
       [](CaseBuilder& c) {
         return soft_max_back(c.input("dy", {33, 5}), c.input("y", {33, 5}, 0, 0.1));
       }},
      {"experts",
       [](CaseBuilder& c) {
         return soft_max_back(c.input("dy", {128, 9}), c.input("y", {128, 9}, 0, 0.02));
       }},
      {"one element",
       [](CaseBuilder& c) {
         return soft_max_back(c.input("dy", {1, 3}), c.input("y", {1, 3}, 0.2, 0.8));
       }},
      {"strided",
       [](CaseBuilder& c) {
         return soft_max_back(view_strided(c.input("dy", {24, 5}), {17, 5}, {4, 96, 480, 480}, 16),
                              c.input("y", {17, 5}, 0, 0.1));
       }},
      {"four dimensions",
       [](CaseBuilder& c) {
         return soft_max_back(
             view_strided(c.input("dy", {20, 3, 4, 2}), {17, 3, 2, 2}, {4, 80, 480, 960}, 8),
             view_strided(c.input("y", {18, 3, 4, 2}, 0, 0.1), {17, 3, 2, 2}, {4, 72, 432, 864}, 4));
       }},
      {"more than one unit",
       [](CaseBuilder& c) {
         return soft_max_back(c.input("dy", {60, 4, 70}), c.input("y", {60, 4, 70}, 0, 0.03));
       }},
  };
}

}  // namespace tandem
