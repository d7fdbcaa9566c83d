#include "ops/mul_mat/mul_mat.h"

#include <algorithm>

#include "formats/format_kernels.h"
#include "tests/op/op_case.h"

namespace tandem {
namespace {

// Every type the engine decodes, with a row length that is no multiple of the tile where the block allows it.
template <class Make>
void for_formats(std::vector<OpCase>& cases, Make make) {
  for (const TypeInfo& info : all_types()) {
    if (!info.codec) continue;
    const int64_t k = info.block_elements == 1    ? 70
                      : info.block_elements == 32 ? 96
                                                  : 2 * info.block_elements;
    cases.push_back(make(info, k));
  }
}

// A row length of several tiles and a rest: backward panels of 256 columns, forward depths of 256.  Whole
// blocks leave a rest of 32 or 64 columns where a block is that small.
int64_t long_row(const TypeInfo& info) {
  return info.block_elements == 1 ? 517 : info.block_elements < 256 ? 512 + info.block_elements : 768;
}

// The same case in bf16.
OpCase in_bf16(const OpCase& c) {
  return {c.name + ", bf16", [build = c.build](CaseBuilder& b) {
            b.graph().precision = Precision::BF16;
            return build(b);
          }};
}

void also_in_bf16(std::vector<OpCase>& cases) {
  for (size_t i = 0, n = cases.size(); i < n; ++i) cases.push_back(in_bf16(cases[i]));
}

// A builder whose inputs have no gradient.
class WithoutGradients final : public CaseBuilder {
 public:
  explicit WithoutGradients(CaseBuilder& all) : all_(all) {}
  Graph& graph() override { return all_.graph(); }
  Tensor input(const char* name, const Shape& ne, double lo, double hi) override {
    return all_.constant(name, ne, lo, hi);
  }
  Tensor constant(const char* name, const Shape& ne, double lo, double hi) override {
    return all_.constant(name, ne, lo, hi);
  }
  Tensor weight(const char* name, DType type, const Shape& ne, double scale) override {
    return all_.weight(name, type, ne, scale);
  }
  Tensor ids(const char* name, const Shape& ne, int64_t n, bool distinct) override {
    return all_.ids(name, ne, n, distinct);
  }
  Tensor ids_of(const char* name, const Shape& ne, const std::vector<int32_t>& values) override {
    return all_.ids_of(name, ne, values);
  }
  bool wants_gradients() const override { return false; }
  void adopt(Tensor leaf, const std::string& name) override { all_.adopt(leaf, name); }
  void keep(std::unique_ptr<Kept> owned) override { all_.keep(std::move(owned)); }

 private:
  CaseBuilder& all_;
};

// The same case in int8.
OpCase in_int8(const OpCase& c) {
  return {c.name + ", int8",
          [build = c.build](CaseBuilder& b) {
            WithoutGradients plain(b);
            b.graph().precision = Precision::Int8;
            return build(plain);
          },
          "no gradient goes through a product in int8"};
}

// More cases of each type, in int8 only: what a tile of three tokens and a panel of 64 rows leave over, and
// depths of several panels with a rest.
template <class Make>
void add_int8(std::vector<OpCase>& cases, Make make) {
  for (const TypeInfo& info : all_types()) {
    if (!info.codec || product_precision(Precision::Int8, info.type) != Precision::Int8) continue;
    cases.push_back(in_int8(make(info)));
  }
}

using Ids = std::vector<int32_t>;

}  // namespace

TANDEM_OP_CASES(MUL_MAT) {
  std::vector<OpCase> cases = {
      {"one by one",
       [](CaseBuilder& c) {
         return mul_mat(c.weight("w", DType::F32, {1, 1}), c.input("x", {1, 1}));
       }},
      {"one token",
       [](CaseBuilder& c) {
         return mul_mat(c.weight("w", DType::F32, {33, 65}), c.input("x", {33, 1}));
       }},
      {"several panels, 13 tokens",
       [](CaseBuilder& c) {
         return mul_mat(c.weight("w", DType::F16, {37, 130}), c.input("x", {37, 13}));
       }},
      {"deep contraction",
       [](CaseBuilder& c) {
         return mul_mat(c.weight("w", DType::F32, {519, 17}), c.input("x", {519, 7}));
       }},
      {"batched x",
       [](CaseBuilder& c) {
         return mul_mat(c.weight("w", DType::F32, {16, 5}), c.input("x", {16, 3, 2}));
       }},
      {"strided x",
       [](CaseBuilder& c) {
         return mul_mat(c.weight("w", DType::F32, {16, 5}),
                        view_strided(c.input("x", {20, 6}), {16, 6}, {4, 80, 480, 480}, 8));
       }},
      {"31 rows",
       [](CaseBuilder& c) {
         return mul_mat(c.weight("w", DType::F32, {20, 31}), c.input("x", {20, 5}));
       }},
      {"more tokens than a unit has",
       [](CaseBuilder& c) {
         return mul_mat(c.weight("w", DType::F32, {5, 70}), c.input("x", {5, 1030}));
       }},
      {"trained w, rank 4",
       [](CaseBuilder& c) {
         return mul_mat(c.input("w", {24, 4}), c.input("x", {24, 9}));
       }},
      {"trained w, 70 rows, 260 tokens",
       [](CaseBuilder& c) {
         return mul_mat(c.input("w", {3, 70}), c.input("x", {3, 260}));
       }},
  };
  for_formats(cases, [](const TypeInfo& info, int64_t k) {
    return OpCase{info.name, [&info, k](CaseBuilder& c) {
                    return mul_mat(c.weight("w", info.type, {k, 19}), c.input("x", {k, 8}));
                  }};
  });
  const size_t n_plain = cases.size();
  also_in_bf16(cases);
  for (size_t i = 0; i < n_plain; ++i) cases.push_back(in_int8(cases[i]));
  add_int8(cases, [](const TypeInfo& info) {
    return OpCase{std::string(info.name) + ", several tiles, 4 tokens", [&info](CaseBuilder& c) {
                    const int64_t k = long_row(info);
                    return mul_mat(c.weight("w", info.type, {k, 83}), c.input("x", {k, 4}));
                  }};
  });
  add_int8(cases, [](const TypeInfo& info) {
    return OpCase{std::string(info.name) + ", a single token", [&info](CaseBuilder& c) {
                    return mul_mat(c.weight("w", info.type, {256, 33}), c.input("x", {256, 1}));
                  }};
  });
  cases.push_back(in_int8({"strided x, Q8_0", [](CaseBuilder& c) {
                             return mul_mat(
                                 c.weight("w", DType::Q8_0, {64, 5}),
                                 view_strided(c.input("x", {80, 6}), {64, 6}, {4, 320, 1920, 1920}, 8));
                           }}));
  cases.push_back(in_int8({"a block of zeros, Q4_K", [](CaseBuilder& c) {
                             const Tensor some = c.input("x", {192, 3});
                             return mul_mat(c.weight("w", DType::Q4_K, {256, 5}),
                                            view_back(some, {256, 3}, {4, 1024, 3072, 3072}, 128));
                           }}));
  return cases;
}

TANDEM_OP_CASES(MUL_MAT_BACK) {
  std::vector<OpCase> cases;
  for_formats(cases, [](const TypeInfo& info, int64_t k) {
    return OpCase{info.name, [&info, k](CaseBuilder& c) {
                    return mul_mat_back(c.weight("w", info.type, {k, 133}), c.input("dy", {133, 11}),
                                        c.graph().precision);
                  }};
  });
  cases.push_back(
      {"one row", [](CaseBuilder& c) {
         return mul_mat_back(c.weight("w", DType::F32, {70, 1}), c.input("dy", {1, 4}), c.graph().precision);
       }});
  cases.push_back(
      {"columns over several chunks", [](CaseBuilder& c) {
         return mul_mat_back(c.weight("w", DType::F32, {517, 3}), c.input("dy", {3, 2}), c.graph().precision);
       }});
  also_in_bf16(cases);
  return cases;
}

TANDEM_OP_CASES(OUT_PROD) {
  return {
      {"rank 4",
       [](CaseBuilder& c) {
         return out_prod(c.input("a", {70, 13}), c.input("b", {4, 13}));
       }},
      {"rank first",
       [](CaseBuilder& c) {
         return out_prod(c.input("a", {4, 13}), c.input("b", {130, 13}));
       }},
      {"600 tokens",
       [](CaseBuilder& c) {
         return out_prod(c.input("a", {17, 600}), c.input("b", {9, 600}));
       }},
      {"batched",
       [](CaseBuilder& c) {
         return out_prod(c.input("a", {5, 3, 2}), c.input("b", {6, 3, 2}));
       }},
      {"many units",
       [](CaseBuilder& c) {
         return out_prod(c.input("a", {700, 300}), c.input("b", {200, 300}));
       }},
      {"one token",
       [](CaseBuilder& c) {
         return out_prod(c.input("a", {5, 1}), c.input("b", {6, 1}));
       }},
  };
}

TANDEM_OP_CASES(MUL_MAT_ID) {
  std::vector<OpCase> cases = {
      {"b shared by the slots",
       [](CaseBuilder& c) {
         return mul_mat_id(c.weight("as", DType::F32, {12, 9, 5}), c.input("b", {12, 1, 7}),
                           c.ids("ids", {3, 7}, 5, true));
       }},
      {"one b row per slot",
       [](CaseBuilder& c) {
         return mul_mat_id(c.weight("as", DType::F32, {12, 9, 5}), c.input("b", {12, 3, 7}),
                           c.ids("ids", {3, 7}, 5, true));
       }},
      {"n_b 2 of k 4, slots tile",
       [](CaseBuilder& c) {
         return mul_mat_id(c.weight("as", DType::F32, {12, 9, 5}), c.input("b", {12, 2, 6}),
                           c.ids("ids", {4, 6}, 5, true));
       }},
      {"experts without tokens",
       [](CaseBuilder& c) {
         return mul_mat_id(c.weight("as", DType::F32, {8, 6, 9}), c.input("b", {8, 1, 3}),
                           c.ids_of("ids", {2, 3}, Ids{8, 2, 2, 8, 8, 2}));
       }},
      {"all tokens on one expert",
       [](CaseBuilder& c) {
         return mul_mat_id(c.weight("as", DType::F32, {8, 70, 4}), c.input("b", {8, 1, 230}),
                           c.ids_of("ids", {1, 230}, Ids(230, 3)));
       }},
      {"an expert twice in a list",
       [](CaseBuilder& c) {
         return mul_mat_id(c.weight("as", DType::F32, {8, 6, 4}), c.input("b", {8, 3, 2}),
                           c.ids_of("ids", {3, 2}, Ids{1, 1, 2, 3, 0, 3}));
       }},
      {"one token, k 1",
       [](CaseBuilder& c) {
         return mul_mat_id(c.weight("as", DType::F32, {8, 6, 4}), c.input("b", {8, 1, 1}),
                           c.ids("ids", {1, 1}, 4));
       }},
      {"many tiles",
       [](CaseBuilder& c) {
         return mul_mat_id(c.weight("as", DType::F16, {300, 131, 3}, 0.1), c.input("b", {300, 1, 37}),
                           c.ids("ids", {2, 37}, 3, true));
       }},
      {"rows of 2880 in MXFP4, as gpt-oss has them",
       [](CaseBuilder& c) {
         return mul_mat_id(c.weight("as", DType::MXFP4, {2880, 5, 3}, 0.05), c.input("b", {2880, 1, 4}),
                           c.ids("ids", {2, 4}, 3, true));
       }},
      {"trained experts of rank 2, b shared",
       [](CaseBuilder& c) {
         return mul_mat_id(c.input("as", {12, 2, 4}), c.input("b", {12, 1, 5}),
                           c.ids_of("ids", {2, 5}, Ids{0, 1, 3, 0, 0, 1, 1, 1, 3, 0}));
       }},
      {"trained experts, one b row per slot",
       [](CaseBuilder& c) {
         return mul_mat_id(c.input("as", {2, 9, 3}), c.input("b", {2, 2, 5}), c.ids("ids", {2, 5}, 3, true));
       }},
      {"b shared by as many slots as there are tokens",
       [](CaseBuilder& c) {
         return mul_mat_id(c.weight("as", DType::F32, {12, 9, 5}), c.input("b", {12, 1, 3}),
                           c.ids("ids", {3, 3}, 5, true));
       }},
      {"n_b 2 of k 4, two tokens",
       [](CaseBuilder& c) {
         return mul_mat_id(c.weight("as", DType::F32, {12, 9, 5}), c.input("b", {12, 2, 2}),
                           c.ids("ids", {4, 2}, 5, true));
       }},
      {"16 experts",
       [](CaseBuilder& c) {
         return mul_mat_id(c.weight("as", DType::F32, {8, 6, 16}), c.input("b", {8, 1, 19}),
                           c.ids("ids", {3, 19}, 16, true));
       }},
      {"slots summed",
       [](CaseBuilder& c) {
         const Tensor y = mul_mat_id(c.weight("as", DType::F32, {12, 9, 5}), c.input("b", {12, 4, 7}),
                                     c.ids("ids", {4, 7}, 5, true));
         return repeat_back(y, {9, 1, 7});
       }},
      {"every other slot summed, trained experts",
       [](CaseBuilder& c) {
         const Tensor y =
             mul_mat_id(c.input("as", {6, 5, 3}), c.input("b", {6, 1, 7}), c.ids("ids", {4, 7}, 3, false));
         return repeat_back(y, {5, 2, 7});
       }},
      {"slots and tokens summed",
       [](CaseBuilder& c) {
         const Tensor y = mul_mat_id(c.weight("as", DType::F32, {12, 9, 5}), c.input("b", {12, 2, 4}),
                                     c.ids("ids", {2, 4}, 5, true));
         return repeat_back(y, {9, 1, 1});
       }},
      {"half rows and slots summed",
       [](CaseBuilder& c) {
         const Tensor y = mul_mat_id(c.weight("as", DType::F32, {12, 8, 5}), c.input("b", {12, 2, 4}),
                                     c.ids("ids", {2, 4}, 5, true));
         return repeat_back(y, {4, 1, 4});
       }},
      {"strided b",
       [](CaseBuilder& c) {
         return mul_mat_id(c.weight("as", DType::F32, {8, 6, 4}),
                           view_strided(c.input("b", {10, 2, 5}), {8, 2, 5}, {4, 40, 80, 400}, 4),
                           c.ids("ids", {2, 5}, 4, true));
       }},
  };
  for_formats(cases, [](const TypeInfo& info, int64_t k) {
    return OpCase{info.name, [&info, k](CaseBuilder& c) {
                    return mul_mat_id(c.weight("as", info.type, {k, 21, 4}), c.input("b", {k, 1, 6}),
                                      c.ids("ids", {2, 6}, 4, true));
                  }};
  });
  for_formats(cases, [](const TypeInfo& info, int64_t k) {
    return OpCase{std::string(info.name) + ", one b row per slot", [&info, k](CaseBuilder& c) {
                    return mul_mat_id(c.weight("as", info.type, {k, 19, 3}), c.input("b", {k, 2, 5}),
                                      c.ids("ids", {2, 5}, 3, true));
                  }};
  });
  for_formats(cases, [](const TypeInfo& info, int64_t) {
    return OpCase{std::string(info.name) + ", several tiles", [&info](CaseBuilder& c) {
                    const int64_t k = long_row(info);
                    return mul_mat_id(c.weight("as", info.type, {k, 131, 2}), c.input("b", {k, 1, 7}),
                                      c.ids("ids", {1, 7}, 2));
                  }};
  });
  const size_t n_plain = cases.size();
  also_in_bf16(cases);
  for (size_t i = 0; i < n_plain; ++i) cases.push_back(in_int8(cases[i]));
  return cases;
}

TANDEM_OP_CASES(MUL_MAT_ID_BACK) {
  std::vector<OpCase> cases = {
      {"experts without tokens, an expert twice",
       [](CaseBuilder& c) {
         return mul_mat_id_back(c.weight("as", DType::F32, {8, 6, 9}), c.input("grad", {6, 2, 3}),
                                c.ids_of("ids", {2, 3}, Ids{8, 8, 2, 8, 0, 2}), c.graph().precision);
       }},
      {"all tokens on one expert",
       [](CaseBuilder& c) {
         return mul_mat_id_back(c.weight("as", DType::F32, {70, 8, 4}), c.input("grad", {8, 1, 230}),
                                c.ids_of("ids", {1, 230}, Ids(230, 1)), c.graph().precision);
       }},
      {"one token, k 1",
       [](CaseBuilder& c) {
         return mul_mat_id_back(c.weight("as", DType::F32, {8, 6, 4}), c.input("grad", {6, 1, 1}),
                                c.ids("ids", {1, 1}, 4), c.graph().precision);
       }},
      {"many tiles",
       [](CaseBuilder& c) {
         return mul_mat_id_back(c.weight("as", DType::F16, {520, 131, 3}, 0.1), c.input("grad", {131, 2, 37}),
                                c.ids("ids", {2, 37}, 3, true), c.graph().precision);
       }},
  };
  cases.push_back({"all experts, none twice", [](CaseBuilder& c) {
                     return mul_mat_id_back(c.weight("as", DType::F32, {12, 7, 6}),
                                            c.input("grad", {7, 6, 9}), c.ids("ids", {6, 9}, 6, true),
                                            c.graph().precision);
                   }});
  for (int64_t n_g : {1, 2}) {
    cases.push_back({"rows shared by the slots, n_g " + std::to_string(n_g), [n_g](CaseBuilder& c) {
                       return mul_mat_id_back(c.weight("as", DType::F32, {12, 7, 6}),
                                              c.input("grad", {7, n_g, 9}), c.ids("ids", {4, 9}, 6),
                                              c.graph().precision);
                     }});
  }
  for (int64_t n_g : {1, 2, 4}) {
    cases.push_back({"trained experts, n_g " + std::to_string(n_g), [n_g](CaseBuilder& c) {
                       return mul_mat_id_back(c.input("as", {11, 6, 5}), c.input("grad", {6, n_g, 7}),
                                              c.ids("ids", {4, 7}, 5), c.graph().precision);
                     }});
  }
  // Each of 8 matrices for every token, under ids that are the same row again.
  for (DType type : {DType::F32, DType::Q8_0}) {
    cases.push_back({std::string("all of them for every token, ") + name_of(type), [type](CaseBuilder& c) {
                       const Tensor heads = c.ids_of("ids", {8}, Ids{0, 1, 2, 3, 4, 5, 6, 7});
                       const Tensor ids = view_strided(heads, {8, 70}, {4, 0, 0, 0}, 0);
                       return mul_mat_id_back(c.weight("as", type, {96, 40, 8}), c.input("grad", {40, 1, 70}),
                                              ids, c.graph().precision);
                     }});
  }
  cases.push_back({"k 1", [](CaseBuilder& c) {
                     return mul_mat_id_back(c.weight("as", DType::F32, {12, 7, 6}),
                                            c.input("grad", {7, 1, 40}), c.ids("ids", {1, 40}, 6),
                                            c.graph().precision);
                   }});
  cases.push_back(
      {"strided grad", [](CaseBuilder& c) {
         const Tensor grad = view_strided(c.input("grad", {15, 4, 9}), {11, 2, 7}, {4, 120, 240, 1680}, 8);
         return mul_mat_id_back(c.weight("as", DType::F32, {70, 11, 4}), grad, c.ids("ids", {2, 7}, 4, true),
                                c.graph().precision);
       }});
  cases.push_back({"strided ids", [](CaseBuilder& c) {
                     const Tensor ids = view_strided(c.ids("ids", {5, 7}, 4), {2, 7}, {4, 20, 140, 140}, 8);
                     return mul_mat_id_back(c.weight("as", DType::F32, {70, 11, 4}),
                                            c.input("grad", {11, 2, 7}), ids, c.graph().precision);
                   }});
  for (DType type : {DType::F32, DType::Q8_0}) {
    cases.push_back({std::string("a window onto the experts, ") + name_of(type), [type](CaseBuilder& c) {
                       const Tensor all = c.weight("as", type, {96, 13, 7});
                       const int64_t row = row_bytes(type, 96);
                       const Tensor some = view_strided(all, {96, 9, 3},
                                                        {all.node->nb[0], row, 26 * row, 78 * row}, 15 * row);
                       return mul_mat_id_back(some, c.input("grad", {9, 2, 5}), c.ids("ids", {2, 5}, 3, true),
                                              c.graph().precision);
                     }});
  }
  for_formats(cases, [](const TypeInfo& info, int64_t k) {
    return OpCase{info.name, [&info, k](CaseBuilder& c) {
                    return mul_mat_id_back(c.weight("as", info.type, {k, 131, 4}),
                                           c.input("grad", {131, 2, 6}), c.ids("ids", {2, 6}, 4, true),
                                           c.graph().precision);
                  }};
  });
  // One tile in each direction, and several with rests: 259 rows are two contraction steps of 128 and three
  // rows.
  for_formats(cases, [](const TypeInfo& info, int64_t) {
    return OpCase{
        std::string(info.name) + ", one tile", [&info](CaseBuilder& c) {
          const int64_t k = info.block_elements == 1 ? 256 : std::max<int64_t>(info.block_elements, 64);
          return mul_mat_id_back(c.weight("as", info.type, {k, 5, 3}), c.input("grad", {5, 2, 4}),
                                 c.ids_of("ids", {2, 4}, Ids{2, 2, 0, 2, 2, 0, 0, 0}), c.graph().precision);
        }};
  });
  for_formats(cases, [](const TypeInfo& info, int64_t) {
    return OpCase{std::string(info.name) + ", several tiles", [&info](CaseBuilder& c) {
                    return mul_mat_id_back(c.weight("as", info.type, {long_row(info), 259, 2}),
                                           c.input("grad", {259, 2, 5}), c.ids("ids", {2, 5}, 2, true),
                                           c.graph().precision);
                  }};
  });
  also_in_bf16(cases);
  return cases;
}

TANDEM_OP_CASES(OUT_PROD_ID) {
  return {
      {"a shared by the slots, an expert twice, one without a slot",
       [](CaseBuilder& c) {
         return out_prod_id(c.input("a", {70, 1, 4}), c.input("b", {3, 2, 4}),
                            c.ids_of("ids", {2, 4}, Ids{0, 2, 2, 2, 4, 0, 4, 2}), 5);
       }},
      {"one a row per slot",
       [](CaseBuilder& c) {
         return out_prod_id(c.input("a", {5, 3, 9}), c.input("b", {100, 3, 9}), c.ids("ids", {3, 9}, 4, true),
                            4);
       }},
      {"strided a and b",
       [](CaseBuilder& c) {
         return out_prod_id(view_strided(c.input("a", {14, 2, 6}), {9, 2, 6}, {4, 56, 112, 672}, 12),
                            view_strided(c.input("b", {8, 4, 6}), {5, 2, 6}, {4, 64, 128, 768}, 8),
                            c.ids_of("ids", {2, 6}, Ids{0, 2, 2, 2, 3, 0, 3, 2, 0, 0, 2, 3}), 4);
       }},
      {"many units",
       [](CaseBuilder& c) {
         return out_prod_id(c.input("a", {260, 1, 150}), c.input("b", {200, 2, 150}),
                            c.ids("ids", {2, 150}, 4), 4);
       }},
      {"one slot",
       [](CaseBuilder& c) {
         return out_prod_id(c.input("a", {21, 1, 1}), c.input("b", {4, 1, 1}),
                            c.ids_of("ids", {1, 1}, Ids{2}), 3);
       }},
      {"all slots on one expert, 300 of them",
       [](CaseBuilder& c) {
         return out_prod_id(c.input("a", {4, 1, 300}), c.input("b", {6, 1, 300}),
                            c.ids_of("ids", {1, 300}, Ids(300, 1)), 3);
       }},
  };
}

}  // namespace tandem
