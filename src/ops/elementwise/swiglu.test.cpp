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

// Values on both sides of the clamps at -7 and 7, alpha 1.702; a limit of 0.5 has most values beyond it.
TANDEM_OP_CASES(SWIGLU_OAI) {
  return {
      {"row",
       [](CaseBuilder& c) {
         return swiglu_oai(c.input("gate", {33, 3}), c.input("up", {33, 3}));
       }},
      {"one element", [](CaseBuilder& c) { return swiglu_oai(c.input("gate", {1}), c.input("up", {1})); }},
      {"both sides of the clamps",
       [](CaseBuilder& c) {
         return swiglu_oai(c.input("gate", {64, 5}, -14, 14), c.input("up", {64, 5}, -14, 14));
       }},
      {"gates beyond the clamp",
       [](CaseBuilder& c) {
         return swiglu_oai(c.constant("gate", {37, 2}, 7.5, 9), c.input("up", {37, 2}, -14, 14));
       }},
      {"ups beyond the clamps",
       [](CaseBuilder& c) {
         return swiglu_oai(c.input("gate", {37, 2}, -14, 14), c.constant("up", {37, 2}, 7.5, 9));
       }},
      {"very negative gates",
       [](CaseBuilder& c) {
         return swiglu_oai(c.input("gate", {64, 2}, -40, 0), c.input("up", {64, 2}));
       }},
      {"other numbers",
       [](CaseBuilder& c) {
         return swiglu_oai(c.input("gate", {29, 3}), c.input("up", {29, 3}), 2.5f, 0.5f);
       }},
      {"halves of one tensor",
       [](CaseBuilder& c) {
         Tensor x = c.input("x", {26, 5}, -14, 14);
         return swiglu_oai(view_strided(x, {13, 5}, {4, 104, 520, 520}, 0),
                           view_strided(x, {13, 5}, {4, 104, 520, 520}, 52));
       }},
      {"expert rows, several units",
       [](CaseBuilder& c) {
         return swiglu_oai(c.input("gate", {360, 4, 25}, -9, 9), c.input("up", {360, 4, 25}, -9, 9));
       }},
      {"gradient of the gate alone",
       [](CaseBuilder& c) {
         return swiglu_oai(c.input("gate", {21, 3}, -9, 9), c.constant("up", {21, 3}, -9, 9));
       }},
      {"gradient of up alone",
       [](CaseBuilder& c) {
         return swiglu_oai(c.constant("gate", {21, 3}, -9, 9), c.input("up", {21, 3}, -9, 9));
       }},
      {"over a dead source",
       [](CaseBuilder& c) {
         return swiglu_oai(scale(c.input("gate", {21, 3}), 9.f), scale(c.input("up", {21, 3}), 9.f));
       }},
  };
}

TANDEM_OP_CASES(SWIGLU_OAI_BACK) {
  return {
      {"both sides of the clamps",
       [](CaseBuilder& c) {
         return swiglu_oai_back(c.input("gate", {64, 5}, -14, 14), c.input("up", {64, 5}, -14, 14),
                                c.input("dh", {64, 5}));
       }},
      {"one element",
       [](CaseBuilder& c) {
         return swiglu_oai_back(c.input("gate", {1}), c.input("up", {1}), c.input("dh", {1}));
       }},
      {"very negative gates",
       [](CaseBuilder& c) {
         return swiglu_oai_back(c.input("gate", {64, 2}, -40, 0), c.input("up", {64, 2}),
                                c.input("dh", {64, 2}));
       }},
      {"at the clamps",
       [](CaseBuilder& c) {
         return swiglu_oai_back(c.constant("gate", {18, 2}, 7, 7), c.constant("up", {18, 2}, -7, -7),
                                c.input("dh", {18, 2}));
       }},
      {"other numbers",
       [](CaseBuilder& c) {
         return swiglu_oai_back(c.input("gate", {29, 3}), c.input("up", {29, 3}), c.input("dh", {29, 3}),
                                2.5f, 0.5f);
       }},
      {"strided",
       [](CaseBuilder& c) {
         Tensor x = c.input("x", {30, 5}, -9, 9);
         return swiglu_oai_back(view_strided(x, {13, 5}, {4, 120, 600, 600}, 0),
                                view_strided(x, {13, 5}, {4, 120, 600, 600}, 52), c.input("dh", {13, 5}));
       }},
      {"several units",
       [](CaseBuilder& c) {
         return swiglu_oai_back(c.input("gate", {768, 43}, -9, 9), c.input("up", {768, 43}, -9, 9),
                                c.input("dh", {768, 43}));
       }},
  };
}

}  // namespace tandem
