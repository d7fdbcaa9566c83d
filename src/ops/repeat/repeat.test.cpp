#include "tests/op/op_case.h"

namespace tandem {
namespace {

struct Fold {
  const char* name;
  Shape tile, whole;
};

constexpr Fold kFolds[] = {
    {"same shape", {17, 3}, {17, 3}},
    {"one number", {1}, {19, 3, 2}},
    {"along ne0", {9, 3}, {36, 3}},
    {"along ne0 from one", {1, 5, 3}, {35, 5, 3}},
    {"along ne1", {13, 2}, {13, 8}},
    {"along ne1 from one", {24, 1, 5}, {24, 4, 5}},
    {"along ne2", {7, 2, 3}, {7, 2, 6}},
    {"along ne3", {5, 2, 3, 2}, {5, 2, 3, 4}},
    {"in all axes", {3, 2, 1, 2}, {6, 4, 4, 6}},
    {"rows of one element", {1, 6, 3}, {1, 6, 9}},
    {"columns in parts", {100}, {100, 701}},
    {"rows in parts", {3, 700}, {12, 1400}},
    {"router weights", {1, 8, 40}, {1030, 8, 40}},
};

}  // namespace

TANDEM_OP_CASES(REPEAT) {
  std::vector<OpCase> cases;
  for (const Fold& f : kFolds) {
    cases.push_back({f.name, [f](CaseBuilder& c) { return repeat(c.input("x", f.tile), f.whole); }});
  }
  cases.push_back({"strided", [](CaseBuilder& c) {
                     Tensor x = view_strided(c.input("x", {24, 3}), {11, 3}, {4, 96, 288, 288}, 20);
                     return repeat(x, {33, 6, 2});
                   }});
  return cases;
}

TANDEM_OP_CASES(REPEAT_BACK) {
  std::vector<OpCase> cases;
  for (const Fold& f : kFolds) {
    cases.push_back({f.name, [f](CaseBuilder& c) { return repeat_back(c.input("x", f.whole), f.tile); }});
  }
  cases.push_back({"strided", [](CaseBuilder& c) {
                     Tensor x = view_strided(c.input("x", {40, 6}), {33, 6}, {4, 160, 960, 960}, 20);
                     return repeat_back(x, {11, 3});
                   }});
  cases.push_back({"strided to one", [](CaseBuilder& c) {
                     Tensor x = view_strided(c.input("x", {40, 6}), {33, 6}, {4, 160, 960, 960}, 20);
                     return repeat_back(x, {1, 2});
                   }});
  return cases;
}

}  // namespace tandem
