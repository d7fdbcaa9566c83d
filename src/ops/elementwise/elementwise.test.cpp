#include "tests/op/op_case.h"

namespace tandem {
namespace {

// Cases of a binary op: shapes of both operands.
std::vector<OpCase> binary_cases(Tensor (*op)(Tensor, Tensor)) {
  struct Shapes {
    const char* name;
    Shape a, b;
  };
  static const Shapes kShapes[] = {
      {"same shape", {33, 3, 2}, {33, 3, 2}},
      {"one element", {1}, {1}},
      {"one row for all", {37, 5}, {37}},
      {"one number per row", {35, 4, 3}, {1, 4, 3}},
      {"one number", {19, 3}, {1}},
      {"tiled along ne0", {24, 3}, {8, 3}},
      {"tiled along ne1", {7, 6, 2}, {7, 3, 2}},
      {"tiled along ne2", {7, 3, 4}, {7, 3, 2}},
      {"tiled along ne3", {5, 2, 3, 4}, {5, 2, 3, 2}},
      {"tiled in all axes", {6, 4, 4, 6}, {3, 2, 1, 2}},
      {"rows of one element", {1, 8, 9}, {1, 8, 9}},
      {"two units and a row", {1000, 33}, {1000}},
      {"flat, two units and an element", {3, 10923}, {3, 10923}},
  };
  std::vector<OpCase> cases;
  for (const Shapes& s : kShapes) {
    cases.push_back({s.name, [op, s](CaseBuilder& c) { return op(c.input("a", s.a), c.input("b", s.b)); }});
  }
  cases.push_back({"strided", [op](CaseBuilder& c) {
                     Tensor a = c.input("a", {24, 5}), b = c.input("b", {20, 5});
                     return op(view_strided(a, {17, 5}, {4, 96, 480, 480}, 16),
                               view_strided(b, {17, 5}, {4, 80, 400, 400}, 8));
                   }});
  cases.push_back({"strided and tiled", [op](CaseBuilder& c) {
                     Tensor a = c.input("a", {24, 6}), b = c.input("b", {20, 3});
                     return op(view_strided(a, {18, 6}, {4, 96, 576, 576}, 16),
                               view_strided(b, {9, 3}, {4, 80, 240, 240}, 8));
                   }});
  cases.push_back({"with itself", [op](CaseBuilder& c) {
                     Tensor a = c.input("a", {21, 3});
                     return op(a, a);
                   }});
  cases.push_back({"over a dead source", [op](CaseBuilder& c) {
                     Tensor a = c.input("a", {21, 3}), b = c.input("b", {21, 3});
                     return op(scale(a, 2.f), op(scale(b, 3.f), a));
                   }});
  cases.push_back({"gradient of a alone", [op](CaseBuilder& c) {
                     return op(c.input("a", {21, 3}), c.constant("b", {21, 3}));
                   }});
  cases.push_back({"gradient of b alone", [op](CaseBuilder& c) {
                     return op(c.constant("a", {21, 3}), c.input("b", {21, 3}));
                   }});
  cases.push_back({"over a dead source, tiled, several units", [op](CaseBuilder& c) {
                     return op(scale(c.input("a", {1000, 40}), 2.f), c.input("b", {1000}));
                   }});
  cases.push_back({"over a dead source, flat, several units", [op](CaseBuilder& c) {
                     return op(scale(c.input("a", {40000}), 2.f), c.input("b", {40000}));
                   }});
  return cases;
}

}  // namespace

TANDEM_OP_CASES(ADD) { return binary_cases(add); }

TANDEM_OP_CASES(MUL) { return binary_cases(mul); }

TANDEM_OP_CASES(SCALE) {
  return {
      {"row",
       [](CaseBuilder& c) {
         return scale(c.input("x", {33, 3}), -1.75f);
       }},
      {"one element", [](CaseBuilder& c) { return scale(c.input("x", {1}), 0.1f); }},
      {"strided",
       [](CaseBuilder& c) {
         return scale(view_strided(c.input("x", {24, 5}), {17, 5}, {4, 96, 480, 480}, 16), 3.f);
       }},
      {"overlapping rows",
       [](CaseBuilder& c) {
         return scale(view_strided(c.input("x", {11}), {4, 8}, {4, 4, 32, 32}, 0), 3.f);
       }},
      {"several units", [](CaseBuilder& c) { return scale(c.input("x", {40000}), 0.3f); }},
  };
}

}  // namespace tandem
