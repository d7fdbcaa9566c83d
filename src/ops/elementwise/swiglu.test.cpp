#include "tests/op/op_case.h"

namespace tandem {

TANDEM_OP_CASES(SWIGLU) {
  return {
      {"row",
       [](CaseBuilder& c) {
         return swiglu(c.input("gate", {33, 3}), c.input("up", {33, 3}));
       }},
      {"one element", [](CaseBuilder& c) { return swiglu(c.input("gate", {1}), c.input("up", {1})); }},
      {"large gates",
       [](CaseBuilder& c) {
         return swiglu(c.input("gate", {64, 2}, -30, 30), c.input("up", {64, 2}));
       }},
      {"halves of one tensor",
       [](CaseBuilder& c) {
         Tensor x = c.input("x", {26, 5});
         return swiglu(view_strided(x, {13, 5}, {4, 104, 520, 520}, 0),
                       view_strided(x, {13, 5}, {4, 104, 520, 520}, 52));
       }},
      {"expert rows",
       [](CaseBuilder& c) {
         return swiglu(c.input("gate", {24, 4, 5}, -4, 4), c.input("up", {24, 4, 5}));
       }},
      {"several units",
       [](CaseBuilder& c) {
         return swiglu(c.input("gate", {768, 43}, -4, 4), c.input("up", {768, 43}));
       }},
      {"gradient of the gate alone",
       [](CaseBuilder& c) {
         return swiglu(c.input("gate", {21, 3}), c.constant("up", {21, 3}));
       }},
      {"gradient of up alone",
       [](CaseBuilder& c) {
         return swiglu(c.constant("gate", {21, 3}), c.input("up", {21, 3}));
       }},
      {"over a dead source",
       [](CaseBuilder& c) {
         return swiglu(scale(c.input("gate", {21, 3}), 3.f), scale(c.input("up", {21, 3}), 2.f));
       }},
  };
}

TANDEM_OP_CASES(SWIGLU_BACK) {
  return {
      {"row",
       [](CaseBuilder& c) {
         return swiglu_back(c.input("gate", {33, 3}), c.input("up", {33, 3}), c.input("dh", {33, 3}));
       }},
      {"one element",
       [](CaseBuilder& c) {
         return swiglu_back(c.input("gate", {1}), c.input("up", {1}), c.input("dh", {1}));
       }},
      {"large gates",
       [](CaseBuilder& c) {
         return swiglu_back(c.input("gate", {64, 2}, -30, 30), c.input("up", {64, 2}),
                            c.input("dh", {64, 2}));
       }},
      {"strided",
       [](CaseBuilder& c) {
         Tensor x = c.input("x", {30, 5});
         return swiglu_back(view_strided(x, {13, 5}, {4, 120, 600, 600}, 0),
                            view_strided(x, {13, 5}, {4, 120, 600, 600}, 52), c.input("dh", {13, 5}));
       }},
      {"several units",
       [](CaseBuilder& c) {
         return swiglu_back(c.input("gate", {768, 43}), c.input("up", {768, 43}), c.input("dh", {768, 43}));
       }},
  };
}

}  // namespace tandem
