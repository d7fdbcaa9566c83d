#include "tests/op/op_case.h"

namespace tandem {
namespace {

constexpr int kMasked = -100;

}  // namespace

TANDEM_OP_CASES(CROSS_ENTROPY_LOSS) {
  return {
      {"rows",
       [](CaseBuilder& c) {
         return cross_entropy_loss(c.input("logits", {61, 8}, -4, 4), c.ids("labels", {8}, 61));
       }},
      {"masked tokens",
       [](CaseBuilder& c) {
         return cross_entropy_loss(c.input("logits", {61, 6}, -4, 4),
                                   c.ids_of("labels", {6}, {kMasked, 3, -1, kMasked, 60, 0}));
       }},
      {"confident",
       [](CaseBuilder& c) {
         return cross_entropy_loss(c.input("logits", {40, 8}, -15, 15), c.ids("labels", {8}, 40));
       }},
      {"large logits",
       [](CaseBuilder& c) {
         return cross_entropy_loss(c.input("logits", {37, 4}, 900, 910), c.ids("labels", {4}, 37));
       }},
      {"ties",
       [](CaseBuilder& c) {
         Tensor one = repeat(scale(c.constant("x", {1}), 0.f), {21, 3});
         return cross_entropy_loss(one, c.ids_of("labels", {3}, {0, 1, 20}));
       },
       "all logits of a token are one number, and the loss does not depend on it"},
      {"ties of the largest",
       [](CaseBuilder& c) {
         Tensor x = c.input("x", {4, 8}, -4, 4);
         return cross_entropy_loss(repeat(x, {12, 8}), c.ids_of("labels", {8}, {0, 1, 2, 3, 4, 5, 6, 7}));
       }},
      {"two classes",
       [](CaseBuilder& c) {
         return cross_entropy_loss(c.input("logits", {2, 20}), c.ids("labels", {20}, 2));
       }},
      {"strided",
       [](CaseBuilder& c) {
         Tensor x = view_strided(c.input("x", {50, 5}), {33, 5}, {4, 200, 1000, 1000}, 28);
         return cross_entropy_loss(x, c.ids("labels", {5}, 33));
       }},
      {"two units and a token",
       [](CaseBuilder& c) {
         return cross_entropy_loss(c.input("logits", {30, 529}, -3, 3), c.ids("labels", {529}, 30));
       }},
      {"the labels are the largest",
       [](CaseBuilder& c) {
         Tensor logits = c.input("logits", {150, 12}, -3, 3);
         return cross_entropy_loss(logits, reshape(top_k(logits, 1), {12}));
       }},
      {"long vocabulary",
       [](CaseBuilder& c) {
         return cross_entropy_loss(c.input("logits", {33001, 3}, -3, 3), c.ids("labels", {3}, 33001));
       }},
  };
}

TANDEM_OP_CASES(CROSS_ENTROPY_LOSS_BACK) {
  return {
      {"rows",
       [](CaseBuilder& c) {
         return cross_entropy_loss_back(c.input("logits", {61, 8}, -4, 4), c.ids("labels", {8}, 61),
                                        c.input("dnll", {8}));
       }},
      {"masked tokens",
       [](CaseBuilder& c) {
         return cross_entropy_loss_back(c.input("logits", {61, 6}, -4, 4),
                                        c.ids_of("labels", {6}, {kMasked, 3, -1, kMasked, 60, 0}),
                                        c.input("dnll", {6}));
       }},
      {"confident",
       [](CaseBuilder& c) {
         return cross_entropy_loss_back(c.input("logits", {40, 8}, -15, 15), c.ids("labels", {8}, 40),
                                        c.input("dnll", {8}, 0.5, 1));
       }},
      {"two classes",
       [](CaseBuilder& c) {
         return cross_entropy_loss_back(c.input("logits", {2, 20}), c.ids("labels", {20}, 2),
                                        c.input("dnll", {20}));
       }},
      {"strided",
       [](CaseBuilder& c) {
         Tensor x = view_strided(c.input("x", {50, 5}), {33, 5}, {4, 200, 1000, 1000}, 28);
         return cross_entropy_loss_back(x, c.ids("labels", {5}, 33), c.input("dnll", {5}));
       }},
      {"over dead logits",
       [](CaseBuilder& c) {
         Tensor logits = scale(c.input("x", {65, 4}, -4, 4), 1.5f);
         return cross_entropy_loss_back(logits, c.ids("labels", {4}, 65), c.input("dnll", {4}));
       }},
      {"over dead logits, two units and a token",
       [](CaseBuilder& c) {
         Tensor logits = scale(c.input("x", {30, 529}, -4, 4), 1.5f);
         return cross_entropy_loss_back(logits, c.ids("labels", {529}, 30), c.input("dnll", {529}));
       }},
      {"long vocabulary",
       [](CaseBuilder& c) {
         return cross_entropy_loss_back(c.input("logits", {33001, 3}, -3, 3), c.ids("labels", {3}, 33001),
                                        c.input("dnll", {3}));
       }},
  };
}

}  // namespace tandem
