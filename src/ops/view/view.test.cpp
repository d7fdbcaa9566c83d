#include "tests/op/op_case.h"

namespace tandem {

TANDEM_OP_CASES(VIEW) {
  return {
      {"slice of columns",
       [](CaseBuilder& c) {
         Tensor x = c.input("x", {24, 5});
         return mul(view_strided(x, {7, 5}, {4, 96, 480, 480}, 32), c.input("y", {7, 5}));
       }},
      {"slice of rows",
       [](CaseBuilder& c) {
         return mul(view(c.input("x", {6, 9}), {6, 3}, 48), c.input("y", {6, 3}));
       }},
      {"reshape",
       [](CaseBuilder& c) {
         return mul(reshape(c.input("x", {24, 5}), {4, 6, 5}), c.input("y", {4, 6, 5}));
       }},
      {"swapped axes",
       [](CaseBuilder& c) {
         Tensor x = c.input("x", {5, 3, 4});
         return mul(view_strided(x, {5, 4, 3}, {4, 60, 20, 240}, 0), c.input("y", {5, 4, 3}));
       }},
      {"view of a view",
       [](CaseBuilder& c) {
         Tensor x = view_strided(c.input("x", {20, 6}), {12, 6}, {4, 80, 480, 480}, 16);
         return mul(view_strided(x, {4, 3, 4}, {4, 16, 80, 320}, 80), c.input("y", {4, 3, 4}));
       }},
      {"view of swapped axes",
       [](CaseBuilder& c) {
         Tensor x = view_strided(c.input("x", {5, 3, 4}), {5, 4, 3}, {4, 60, 20, 240}, 0);
         return mul(view_strided(x, {3, 2, 2}, {4, 120, 20, 40}, 60 + 20 + 8), c.input("y", {3, 2, 2}));
       }},
      {"view of a strided tensor across two of its axes",
       [](CaseBuilder& c) {
         Tensor x = view_strided(c.input("x", {7, 2, 3}), {5, 2, 3}, {4, 28, 56, 168}, 4);
         return mul(view_strided(x, {3, 5}, {4, 28, 140, 140}, 4), c.input("y", {3, 5}));
       }},
      {"view of swapped axes of two",
       [](CaseBuilder& c) {
         Tensor x = view_strided(c.input("x", {5, 2, 3}), {5, 3, 2}, {4, 40, 20, 120}, 0);
         return mul(view_strided(x, {3, 2, 2}, {4, 40, 20, 40}, 40 + 4), c.input("y", {3, 2, 2}));
       }},
      {"view of a strided tensor with an axis of one",
       [](CaseBuilder& c) {
         Tensor x = view_strided(c.input("x", {7, 3}), {5, 1, 3}, {4, 8, 28, 84}, 0);
         return mul(view_strided(x, {3, 3}, {4, 28, 84, 84}, 8), c.input("y", {3, 3}));
       }},
      {"view of a repeated row",
       [](CaseBuilder& c) {
         Tensor x = view_strided(c.input("x", {9, 2}), {5, 3, 2}, {4, 0, 36, 72}, 0);
         return mul(view_strided(x, {4, 2}, {4, 36, 72, 72}, 4), c.input("y", {4, 2}));
       }},
      {"overlapping rows",
       [](CaseBuilder& c) {
         return mul(view_strided(c.input("x", {11}), {4, 8}, {4, 4, 32, 32}, 0), c.input("y", {4, 8}));
       }},
      {"the same row again",
       [](CaseBuilder& c) {
         return mul(view_strided(c.input("x", {9, 2}), {5, 3, 2}, {4, 0, 36, 72}, 8),
                    c.input("y", {5, 3, 2}));
       }},
      {"two views of one tensor",
       [](CaseBuilder& c) {
         Tensor x = c.input("x", {10, 3});
         return mul(view_strided(x, {6, 3}, {4, 40, 120, 120}, 0),
                    view_strided(x, {6, 3}, {4, 40, 120, 120}, 16));
       }},
      {"one element",
       [](CaseBuilder& c) { return mul(view(c.input("x", {7}), {1}, 12), c.input("y", {1})); }},
  };
}

TANDEM_OP_CASES(VIEW_BACK) {
  return {
      {"columns",
       [](CaseBuilder& c) {
         return view_back(c.input("dy", {7, 5}), {24, 5}, {4, 96, 480, 480}, 32);
       }},
      {"heads",
       [](CaseBuilder& c) {
         return view_back(c.input("dy", {16, 3, 9}), {80, 9}, {4, 64, 320, 2880}, 128);
       }},
      {"swapped axes",
       [](CaseBuilder& c) {
         return view_back(c.input("dy", {5, 4, 3}), {5, 3, 4}, {4, 60, 20, 240}, 0);
       }},
      {"four dimensions",
       [](CaseBuilder& c) {
         return view_back(c.input("dy", {3, 2, 2, 2}), {5, 3, 4, 2}, {4, 20, 120, 240}, 28);
       }},
      {"overlapping rows",
       [](CaseBuilder& c) {
         return view_back(c.input("dy", {4, 8}), {11}, {4, 4, 32, 32}, 0);
       }},
      {"the same row again",
       [](CaseBuilder& c) {
         return view_back(c.input("dy", {5, 3, 2}), {9, 2}, {4, 0, 36, 72}, 8);
       }},
      {"strided dy",
       [](CaseBuilder& c) {
         Tensor dy = view_strided(c.input("dy", {12, 4}), {5, 4}, {4, 48, 192, 192}, 8);
         return view_back(dy, {9, 5}, {4, 36, 180, 180}, 12);
       }},
      {"strided dy over all of dx",
       [](CaseBuilder& c) {
         Tensor dy = view_strided(c.input("dy", {5, 6}), {4, 6}, {4, 20, 120, 120}, 4);
         return view_back(dy, {4, 6}, {4, 16, 96, 96}, 0);
       }},
      {"four dimensions in many pieces",
       [](CaseBuilder& c) {
         return view_back(c.input("dy", {7, 5, 30, 21}), {11, 9, 32, 23}, {4, 44, 396, 12672},
                          8 + 44 * 2 + 396);
       }},
      {"rows of one element",
       [](CaseBuilder& c) {
         return view_back(c.input("dy", {1, 37}), {3, 41}, {4, 12, 444, 444}, 16);
       }},
      {"many pieces",
       [](CaseBuilder& c) {
         return view_back(c.input("dy", {33, 5, 130}), {401, 130}, {4, 160, 1604, 208520}, 44);
       }},
      {"overlap across pieces",
       [](CaseBuilder& c) {
         return view_back(c.input("dy", {20001, 3}), {20050}, {4, 68, 204, 204}, 4);
       }},
  };
}

TANDEM_OP_CASES(CONT) {
  return {
      {"contiguous",
       [](CaseBuilder& c) {
         return cont(c.input("x", {17, 3}));
       }},
      {"columns",
       [](CaseBuilder& c) {
         return cont(view_strided(c.input("x", {24, 6}), {13, 6}, {4, 96, 576, 576}, 32));
       }},
      {"swapped axes",
       [](CaseBuilder& c) {
         return cont(view_strided(c.input("x", {5, 3, 4, 2}), {5, 4, 3, 2}, {4, 60, 20, 240}, 0));
       }},
      {"rows of one element",
       [](CaseBuilder& c) {
         return cont(view_strided(c.input("x", {3, 9}), {1, 9}, {4, 12, 108, 108}, 4));
       }},
      {"a row many times",
       [](CaseBuilder& c) {
         return cont(view_strided(c.input("x", {65}), {65, 7}, {4, 0, 0, 0}, 0));
       }},
      {"integers",
       [](CaseBuilder& c) {
         return cont(view_strided(c.ids("ids", {8, 5}, 100), {3, 5}, {4, 32, 160, 160}, 4));
       }},
      {"long",
       [](CaseBuilder& c) {
         return cont(view_strided(c.input("x", {9001, 5}), {8999, 5}, {4, 36004, 180020, 180020}, 4));
       }},
  };
}

}  // namespace tandem
