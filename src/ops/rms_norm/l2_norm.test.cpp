#include "tests/op/op_case.h"

namespace tandem {
TANDEM_OP_CASES(L2_NORM) {
  return {
      {"row",
       [](CaseBuilder& c) {
         return l2_norm(c.input("x", {32, 5}), 1e-6f);
       }},
      {"rows shorter than eps",
       [](CaseBuilder& c) {
         return l2_norm(c.input("x", {17, 3}, -1e-3, 1e-3), 1e-1f);
       }},
      {"some rows shorter than eps",
       [](CaseBuilder& c) {
         return l2_norm(mul(c.input("x", {9, 4}), c.constant("size", {1, 4})), 0.9f);
       }},
      {"heads",
       [](CaseBuilder& c) {
         return l2_norm(c.input("x", {128, 4, 7}), 1e-6f);
       }},
      {"one element",
       [](CaseBuilder& c) {
         return l2_norm(c.input("x", {1, 3}), 2.f);
       }},
      {"heads of a wider tensor",
       [](CaseBuilder& c) {
         return l2_norm(view_strided(c.input("x", {100, 6}), {16, 3, 6}, {4, 64, 400, 2400}, 80), 1e-6f);
       }},
      {"four dimensions, strided",
       [](CaseBuilder& c) {
         return l2_norm(view_strided(c.input("x", {20, 3, 4, 2}), {17, 3, 2, 2}, {4, 80, 480, 960}, 8),
                        1e-6f);
       }},
      {"two units and a row",
       [](CaseBuilder& c) {
         return l2_norm(c.input("x", {20, 1561}), 1e-6f);
       }},
      {"three vectors and a rest",
       [](CaseBuilder& c) {
         return l2_norm(c.input("x", {53, 4}), 1e-6f);
       }},
      {"long row",
       [](CaseBuilder& c) {
         return l2_norm(c.input("x", {4099, 2}), 1e-6f);
       }},
  };
}

TANDEM_OP_CASES(L2_NORM_BACK) {
  return {
      {"row",
       [](CaseBuilder& c) {
         return l2_norm_back(c.input("dy", {32, 5}), c.input("x", {32, 5}), 1e-6f);
       }},
      {"rows shorter than eps",
       [](CaseBuilder& c) {
         return l2_norm_back(c.input("dy", {17, 3}), c.input("x", {17, 3}, -1e-3, 1e-3), 1e-1f);
       }},
      {"some rows shorter than eps",
       [](CaseBuilder& c) {
         return l2_norm_back(c.input("dy", {9, 4}), mul(c.input("x", {9, 4}), c.constant("size", {1, 4})),
                             0.9f);
       }},
      {"heads",
       [](CaseBuilder& c) {
         return l2_norm_back(c.input("dy", {128, 4, 7}), c.input("x", {128, 4, 7}), 1e-6f);
       }},
      {"four dimensions, strided",
       [](CaseBuilder& c) {
         return l2_norm_back(view_strided(c.input("dy", {20, 3, 4, 2}), {17, 3, 2, 2}, {4, 80, 480, 960}, 8),
                             view_strided(c.input("x", {18, 3, 4, 2}), {17, 3, 2, 2}, {4, 72, 432, 864}, 4),
                             1e-6f);
       }},
      {"three vectors and a rest",
       [](CaseBuilder& c) {
         return l2_norm_back(c.input("dy", {53, 4}), c.input("x", {53, 4}), 1e-6f);
       }},
  };
}

}  // namespace tandem
