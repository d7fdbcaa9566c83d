#include "models/merge.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "tests/support/tiny_models.h"

namespace tandem {
namespace {

std::vector<float> decoded(const Weight& w) {
  std::vector<float> x(static_cast<size_t>(w.ne.elements()));
  type_info(w.type).codec->decode(w.data, x.data(), w.ne.elements());
  return x;
}

// scale B A, laid out as the weight.
std::vector<double> delta(const AdapterSet& set, const Weight& w) {
  const AdapterPair& p = *set.find(w);
  std::vector<double> d;
  for (int64_t e = 0; e < w.ne[2]; ++e) {
    for (int64_t o = 0; o < w.ne[1]; ++o) {
      for (int64_t i = 0; i < w.ne[0]; ++i) {
        double sum = 0;
        for (int64_t k = 0; k < p.rank; ++k)
          sum += static_cast<double>(set.b(p)[(e * w.ne[1] + o) * p.rank + k]) *
                 set.a(p)[(e * p.rank + k) * w.ne[0] + i];
        d.push_back(p.scale * sum);
      }
    }
  }
  return d;
}

class Merge : public testing::Test {
 protected:
  std::string merge(const Model& model, std::vector<const AdapterSet*> sets, std::optional<DType> type = {},
                    int n_threads = 2) {
    ThreadPool pool(n_threads);
    const std::string path = dir_.file("merged.gguf");
    write_merged(path, model, sets, plan_merge(model, sets, type), pool);
    return path;
  }
  template <class F>
  static void refused(F&& f, Code code, const std::string& part) {
    try {
      f();
      ADD_FAILURE() << part;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), code) << e.what();
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    }
  }
  TempDir dir_;
};

TEST_F(Merge, AddsTheDeltaAndNothingElse) {
  for (const char* arch : {"qwen3", "qwen3moe"}) {
    for (const DType type : {DType::F32, DType::F16, DType::Q8_0}) {
      const Model base = tiny_model(dir_, arch, awkward_sizes(type));
      const AdapterSet one = random_adapter(base, "all", 3, 1), two = random_adapter(base, "attn_q", 2, 5);
      const Model merged = Model::open(merge(base, {&one, &two}));
      ASSERT_EQ(merged.file().tensors().size(), base.file().tensors().size());
      ASSERT_EQ(merged.file().entries().size(), base.file().entries().size());
      for (const GgufTensor& t : base.file().tensors()) {
        const GgufTensor& m = *merged.file().find(t.name);
        EXPECT_EQ(m.type, t.type) << t.name;
        const Weight& w = *base.find(t.name);
        if (!one.find(w)) {
          EXPECT_EQ(std::memcmp(m.data, t.data, static_cast<size_t>(t.bytes)), 0) << t.name;
          continue;
        }
        const std::vector<float> was = decoded(w), is = decoded(*merged.find(t.name));
        std::vector<double> want = delta(one, w);
        if (two.find(w)) {
          const std::vector<double> more = delta(two, w);
          for (size_t i = 0; i < want.size(); ++i) want[i] += more[i];
        }
        double largest = 0, apart = 0;
        for (size_t i = 0; i < is.size(); ++i) {
          largest = std::max(largest, std::abs(was[i] + want[i]));
          apart = std::max(apart, std::abs(was[i] + want[i] - is[i]));
        }
        // f32 sums; half a step of the largest binary16; of a block's 127 steps half of one, and the rounding
        // of its scale to binary16 (127 / 2048 of a step).
        const double step = type == DType::F32 ? 1e-6 : type == DType::F16 ? 1.0 / 2048 : 0.565 / 127;
        EXPECT_LE(apart, step * largest) << t.name << " " << name_of(type);
        EXPECT_GT(largest, 0.1);
      }
    }
  }
}

TEST_F(Merge, TypesThatAreAskedFor) {
  const Model base = tiny_model(dir_, "qwen3moe", awkward_sizes(DType::Q8_0));
  const AdapterSet set = random_adapter(base, "ffn_down_exps", 2, 1);
  const Model merged = Model::open(merge(base, {&set}, DType::F32));
  EXPECT_EQ(merged.layer(1).ffn_down_exps.type, DType::F32);
  EXPECT_EQ(merged.layer(1).ffn_up_exps.type, DType::Q8_0);
  EXPECT_EQ(merged.layer(1).attn_q.type, DType::Q8_0);
  std::vector<double> want = delta(set, base.layer(1).ffn_down_exps);
  const std::vector<float> was = decoded(base.layer(1).ffn_down_exps),
                           is = decoded(merged.layer(1).ffn_down_exps);
  for (size_t i = 0; i < is.size(); i += 37) EXPECT_NEAR(is[i], was[i] + want[i], 1e-6);
}

TEST_F(Merge, ThreadsDoNotChangeIt) {
  const Model base = tiny_model(dir_, "qwen3", awkward_sizes(DType::Q8_0));
  const AdapterSet set = random_adapter(base, "all", 2, 1);
  const std::string one = Model::open(merge(base, {&set}, {}, 1)).base_hash();
  EXPECT_EQ(Model::open(merge(base, {&set}, {}, 3)).base_hash(), one);
  EXPECT_NE(one, base.base_hash());
}

TEST_F(Merge, WhatCannotBeWrittenIsRefused) {
  const Model base = tiny_model(dir_, "qwen3moe", awkward_sizes(DType::F16));
  const AdapterSet set = random_adapter(base, "attn_q,attn_k", 2, 1);
  refused([&] { merge(base, {&set}, DType::Q3_K); }, Code::Unsupported, "blk.2.attn_k.weight would be Q3_K");
  refused([&] { merge(base, {&set}, DType::Q4_K); }, Code::Unsupported,
          "blk.0.attn_q.weight has rows of 96, which are no multiple of the 256 of Q4_K");
  refused([&] { merge(base, {}); }, Code::Usage, "no adapter");
  AdapterSet huge = random_adapter(base, "attn_q", 2, 1);
  for (float& x : huge.values()) x *= 1000.f;
  refused([&] { merge(base, {&huge}); }, Code::NonFinite, "beyond what F16 holds; --outtype f32");
  EXPECT_FALSE(std::filesystem::exists(dir_.file("merged.gguf")));
  EXPECT_NO_THROW(merge(base, {&huge}, DType::F32));
}

}  // namespace
}  // namespace tandem
