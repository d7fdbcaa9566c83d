#include "train/export.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <limits>

#include "base/error.h"
#include "exec/cpu/cpu_backend.h"
#include "tests/support/tiny_models.h"

namespace tandem {
namespace {

class Export : public testing::Test {
 protected:
  Export()
      : model_(tiny_model(dir_, "qwen3moe", awkward_sizes(DType::F16))),
        pool_(1),
        backend_(pool_, best_isa()),
        proof_{backend_, random_tokens(model_, 3)} {}

  void differs(const AdapterSet& want, const AdapterSet& got, const std::string& part) {
    try {
      require_same_effect(want, got, model_, proof_, "there");
      ADD_FAILURE() << "taken, but wanted: " << part;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::Internal) << e.what();
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    }
  }
  AdapterSet adapter() const { return random_adapter(model_, "attn_q,ffn_down_exps", 3, 1); }

  TempDir dir_;
  Model model_;
  ThreadPool pool_;
  CpuBackend backend_;
  ExportProof proof_;
};

TEST_F(Export, TheSameEffectIsRequired) {
  const AdapterSet want = adapter();
  EXPECT_NO_THROW(require_same_effect(want, adapter(), model_, proof_, "there"));
  // Ranks that add nothing do not count, nor does a factor that moves from A to B.
  AdapterSet moved = adapter();
  for (const AdapterPair& p : moved.pairs()) {
    for (int64_t i = 0; i < p.a_shape.elements(); ++i) moved.a(p)[i] *= 3.f;
    for (int64_t i = 0; i < p.b_shape.elements(); ++i) moved.b(p)[i] /= 3.f;
  }
  EXPECT_NO_THROW(require_same_effect(want, moved, model_, proof_, "there"));

  AdapterSet scaled = adapter();
  scaled.pairs()[1].scale *= 1.001f;
  differs(want, scaled, "the adapter of " + want.pairs()[1].weight->name + " reads back with another effect");
  // One row of B of one expert, and experts that changed places.
  AdapterSet row = adapter();
  const AdapterPair& last = row.pairs().back();
  row.b(last)[last.b_shape.elements() - 1] += 0.01f;
  differs(want, row, "the adapter of " + last.weight->name);
  AdapterSet places = adapter();
  const AdapterPair& experts = *places.find(model_.layer(1).ffn_down_exps);
  const int64_t n = experts.rank * experts.a_shape[0];
  std::swap_ranges(places.a(experts), places.a(experts) + n, places.a(experts) + n);
  differs(want, places, "blk.1.ffn_down_exps.weight");
  AdapterSet nan = adapter();
  nan.a(nan.pairs()[0])[0] = std::numeric_limits<float>::quiet_NaN();
  differs(want, nan, want.pairs()[0].weight->name);
}

TEST_F(Export, NothingIsMissingAndNothingIsNew) {
  const AdapterSet less = random_adapter(model_, "attn_q", 3, 1);
  differs(adapter(), less, "the adapter of blk.0.ffn_down_exps.weight is missing");
  differs(less, adapter(), "an adapter of blk.0.ffn_down_exps.weight, which was not written");
}

TEST_F(Export, BothFormsAreWritten) {
  const AdapterSet set = adapter();
  export_gguf(set, model_, proof_, dir_.file("a.gguf"), "a");
  EXPECT_EQ(AdapterSet::load(dir_.file("a.gguf"), model_, 1.f).pairs().size(), set.pairs().size());
  for (const PeftExperts experts : {PeftExperts::Modules, PeftExperts::Fused}) {
    export_peft(set, model_, proof_, dir_.file("p"), experts);
    EXPECT_EQ(AdapterSet::load(dir_.file("p"), model_, 1.f).pairs().size(), set.pairs().size());
  }
}

// An adapter whose numbers a file can hold but no reader takes: nothing is left where it should have been.
TEST_F(Export, WhatDoesNotReadBackIsRemoved) {
  AdapterSet set = adapter();
  set.b(set.pairs()[0])[0] = std::numeric_limits<float>::infinity();
  EXPECT_THROW(export_gguf(set, model_, proof_, dir_.file("a.gguf"), "a"), Error);
  EXPECT_THROW(export_peft(set, model_, proof_, dir_.file("p"), PeftExperts::Modules), Error);
  int n_entries = 0;
  for (const auto& e : std::filesystem::directory_iterator(dir_.path())) n_entries += !e.path().empty();
  EXPECT_EQ(n_entries, 1);  // the model
}

}  // namespace
}  // namespace tandem
