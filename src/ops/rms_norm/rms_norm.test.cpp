#include "tests/op/op_case.h"

namespace tandem {

TANDEM_OP_CASES(RMS_NORM) {
  return {
      {"row",
       [](CaseBuilder& c) {
         return rms_norm(c.input("x", {32, 5}), 1e-6f);
       }},
      {"small values feel eps",
       [](CaseBuilder& c) {
         return rms_norm(c.input("x", {17, 3}, -1e-3, 1e-3), 1e-5f);
       }},
      {"heads",
       [](CaseBuilder& c) {
         return rms_norm(c.input("x", {128, 4, 7}), 1e-6f);
       }},
      {"one element",
       [](CaseBuilder& c) {
         return rms_norm(c.input("x", {1, 3}), 1.f);
       }},
      {"strided view",
       [](CaseBuilder& c) {
         Tensor x = c.input("x", {24, 6});
         return rms_norm(view_strided(x, {16, 6}, {4, 96, 96 * 6, 96 * 6}, 32), 1e-6f);
       }},
      {"four dimensions, strided",
       [](CaseBuilder& c) {
         return rms_norm(view_strided(c.input("x", {20, 3, 4, 2}), {17, 3, 2, 2}, {4, 80, 480, 960}, 8),
                         1e-6f);
       }},
      {"two units and a row",
       [](CaseBuilder& c) {
         return rms_norm(c.input("x", {20, 1561}), 1e-6f);
       }},
      {"three vectors and a rest",
       [](CaseBuilder& c) {
         return rms_norm(c.input("x", {53, 4}), 1e-6f);
       }},
      {"long row",
       [](CaseBuilder& c) {
         return rms_norm(c.input("x", {4099, 2}), 1e-6f);
       }},
  };
}

TANDEM_OP_CASES(RMS_NORM_BACK) {
  return {
      {"row",
       [](CaseBuilder& c) {
         return rms_norm_back(c.input("dy", {32, 5}), c.input("x", {32, 5}), 1e-6f);
       }},
      {"heads",
       [](CaseBuilder& c) {
         return rms_norm_back(c.input("dy", {128, 4, 7}), c.input("x", {128, 4, 7}), 1e-6f);
       }},
      {"four dimensions, strided",
       [](CaseBuilder& c) {
         return rms_norm_back(view_strided(c.input("dy", {20, 3, 4, 2}), {17, 3, 2, 2}, {4, 80, 480, 960}, 8),
                              view_strided(c.input("x", {18, 3, 4, 2}), {17, 3, 2, 2}, {4, 72, 432, 864}, 4),
                              1e-6f);
       }},
      {"three vectors and a rest",
       [](CaseBuilder& c) {
         return rms_norm_back(c.input("dy", {53, 4}), c.input("x", {53, 4}), 1e-6f);
       }},
      {"tail",
       [](CaseBuilder& c) {
         return rms_norm_back(c.input("dy", {37, 3}), c.input("x", {37, 3}), 1e-3f);
       }},
  };
}

}  // namespace tandem
