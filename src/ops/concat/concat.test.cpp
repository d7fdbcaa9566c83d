#include "tests/op/op_case.h"

namespace tandem {

TANDEM_OP_CASES(CONCAT) {
  return {
      {"one element each", [](CaseBuilder& c) { return concat(c.input("a", {1}), c.input("b", {1})); }},
      {"rows",
       [](CaseBuilder& c) {
         return concat(c.input("a", {17, 5}), c.input("b", {6, 5}));
       }},
      {"four dimensions",
       [](CaseBuilder& c) {
         return concat(c.input("a", {3, 4, 2, 3}), c.input("b", {8, 4, 2, 3}));
       }},
      {"a head's two parts, the second the same for all",
       [](CaseBuilder& c) {
         const Tensor b = repeat(c.input("b", {64, 1, 9}), {64, 4, 9});
         return concat(c.input("a", {128, 4, 9}), b);
       }},
      {"the second part the same for every other row",
       [](CaseBuilder& c) {
         const Tensor b = repeat(c.input("b", {6, 2, 5}), {6, 4, 5});
         return concat(c.input("a", {9, 4, 5}), b);
       }},
      {"many units",
       [](CaseBuilder& c) {
         return concat(c.input("a", {130, 300}), c.input("b", {71, 300}));
       }},
      {"rows longer than a unit",
       [](CaseBuilder& c) {
         return concat(c.input("a", {9000, 3}), c.input("b", {8001, 3}));
       }},
      {"strided",
       [](CaseBuilder& c) {
         const Tensor both = c.input("both", {40, 3, 7});
         const Tensor a = view_strided(both, {13, 3, 7}, {4, 160, 480, 3360}, 0);
         const Tensor b = view_strided(both, {9, 3, 7}, {4, 160, 480, 3360}, 80);
         return concat(b, a);
       }},
      {"swapped axes behind the rows",
       [](CaseBuilder& c) {
         const Tensor a = view_strided(c.input("a", {5, 3, 4}), {5, 4, 3}, {4, 60, 20, 240}, 0);
         return concat(a, c.input("b", {2, 4, 3}));
       }},
      {"with itself",
       [](CaseBuilder& c) {
         const Tensor a = c.input("a", {7, 4});
         return concat(a, a);
       }},
      {"of concatenations",
       [](CaseBuilder& c) {
         const Tensor a = c.input("a", {7, 4}), b = c.input("b", {5, 4});
         return concat(concat(a, b), concat(b, a));
       }},
  };
}

}  // namespace tandem
