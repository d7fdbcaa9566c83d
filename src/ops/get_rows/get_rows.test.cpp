#include "tests/op/op_case.h"

namespace tandem {

TANDEM_OP_CASES(GET_ROWS) {
  std::vector<OpCase> cases = {
      {"rows",
       [](CaseBuilder& c) {
         return get_rows(c.input("x", {33, 7}), c.ids("ids", {5}, 7));
       }},
      {"more ids than rows",
       [](CaseBuilder& c) {
         return get_rows(c.input("x", {9, 3}), c.ids("ids", {20}, 3));
       }},
      {"duplicates, and rows never gathered",
       [](CaseBuilder& c) {
         return get_rows(c.input("x", {5, 6, 2}), c.ids_of("ids", {4, 2}, {2, 2, 5, 2, 0, 1, 1, 0}));
       }},
      {"router",
       [](CaseBuilder& c) {
         return get_rows(c.input("x", {1, 32, 11}), c.ids("ids", {4, 11}, 32, true));
       }},
      {"one row, one id",
       [](CaseBuilder& c) {
         return get_rows(c.input("x", {1, 1}), c.ids("ids", {1}, 1));
       }},
      {"strided",
       [](CaseBuilder& c) {
         Tensor x = view_strided(c.input("x", {24, 5, 3}), {13, 3, 4}, {4, 480, 96, 1440}, 8);
         Tensor ids = view_strided(c.ids("ids", {6, 4}, 3), {2, 4}, {4, 24, 96, 96}, 8);
         return get_rows(x, ids);
       }},
      {"several units",
       [](CaseBuilder& c) {
         return get_rows(c.input("x", {700, 9}), c.ids("ids", {80}, 9));
       }},
      {"wide batches",
       [](CaseBuilder& c) {
         return get_rows(c.input("x", {300, 6, 4}), c.ids("ids", {50, 4}, 6));
       }},
  };
  for (const TypeInfo& info : all_types()) {
    if (!decodable(info.type) || info.type == DType::F32) continue;
    cases.push_back({std::string("table of ") + info.name, [type = info.type](CaseBuilder& c) {
                       return get_rows(c.weight("w", type, {512, 11}), c.ids("ids", {40}, 11));
                     }});
  }
  return cases;
}

TANDEM_OP_CASES(GET_ROWS_BACK) {
  return {
      {"rows",
       [](CaseBuilder& c) {
         return get_rows_back(c.input("dy", {33, 5}), c.ids("ids", {5}, 7), 7);
       }},
      {"duplicates, and rows never gathered",
       [](CaseBuilder& c) {
         return get_rows_back(c.input("dy", {5, 4, 2}), c.ids_of("ids", {4, 2}, {2, 2, 5, 2, 0, 1, 1, 0}), 6);
       }},
      {"router",
       [](CaseBuilder& c) {
         return get_rows_back(c.input("dy", {1, 8, 300}), c.ids("ids", {8, 300}, 128, true), 128);
       }},
      {"one row",
       [](CaseBuilder& c) {
         return get_rows_back(c.input("dy", {1, 9}), c.ids("ids", {9}, 1), 1);
       }},
      {"strided",
       [](CaseBuilder& c) {
         Tensor dy = view_strided(c.input("dy", {24, 5, 3}), {13, 3, 4}, {4, 480, 96, 1440}, 8);
         return get_rows_back(dy, c.ids("ids", {3, 4}, 6), 6);
       }},
      {"columns in parts",
       [](CaseBuilder& c) {
         return get_rows_back(c.input("dy", {129, 900}), c.ids("ids", {900}, 400), 400);
       }},
      {"router with an expert twice and some never",
       [](CaseBuilder& c) {
         return get_rows_back(c.input("dy", {1, 3, 4}),
                              c.ids_of("ids", {3, 4}, {5, 5, 0, 7, 1, 7, 2, 2, 2, 0, 1, 5}), 9);
       }},
      {"batches with other ids each",
       [](CaseBuilder& c) {
         return get_rows_back(c.input("dy", {17, 3, 3}), c.ids_of("ids", {3, 3}, {0, 0, 3, 4, 1, 4, 2, 3, 2}),
                              6);
       }},
      {"one id per batch",
       [](CaseBuilder& c) {
         return get_rows_back(c.input("dy", {20, 1, 6}), c.ids_of("ids", {1, 6}, {0, 4, 2, 2, 1, 3}), 5);
       }},
      {"strided ids",
       [](CaseBuilder& c) {
         Tensor ids = view_strided(c.ids("ids", {6, 4}, 7), {3, 4}, {4, 24, 96, 96}, 8);
         return get_rows_back(c.input("dy", {33, 3, 4}), ids, 7);
       }},
      {"columns in parts, batched",
       [](CaseBuilder& c) {
         return get_rows_back(c.input("dy", {200, 150, 2}), c.ids("ids", {150, 2}, 100), 100);
       }},
  };
}

}  // namespace tandem
