#include <gtest/gtest.h>

#include <cmath>

#include "base/file.h"
#include "exec/cpu/cpu_backend.h"
#include "tests/support/tiny_models.h"

namespace tandem {
namespace {

class GptOss : public testing::Test {
 protected:
  // The tiny model's file with one text in place of another of the same length.
  Model changed(const std::string& from, const std::string& to) const {
    std::string bytes = read_file(dir_.file("gpt-oss-F32.gguf"), size_t{1} << 30);
    const size_t at = bytes.find(from);
    EXPECT_NE(at, std::string::npos);
    EXPECT_EQ(from.size(), to.size());
    bytes.replace(at, from.size(), to);
    write_file_atomic(dir_.file("changed.gguf"), std::string_view(bytes));
    return Model::open(dir_.file("changed.gguf"));
  }
  void refused(const std::string& from, const std::string& to, Code code, const std::string& text) const {
    try {
      changed(from, to);
      ADD_FAILURE() << "opened, but wanted: " << text;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), code) << e.what();
      EXPECT_NE(std::string(e.what()).find(text), std::string::npos) << text << "\n" << e.what();
    }
  }

  TempDir dir_;
  Model model_ = tiny_model(dir_, "gpt-oss", awkward_sizes(DType::F32));
};

TEST_F(GptOss, ReadsItsHyperParameters) {
  const HParams& h = model_.hparams();
  EXPECT_EQ(h.sliding_window, 3);
  EXPECT_EQ(h.rope.yarn_factor, 32.f);
  EXPECT_EQ(h.rope.yarn_n_ctx_orig, 4096);
  EXPECT_EQ(h.rope.yarn_truncate, 1);
  EXPECT_NEAR(h.rope.magnitude, 1.34657, 1e-5);
  EXPECT_FLOAT_EQ(h.score_scale(), 1 / std::sqrt(40.f));
  EXPECT_TRUE(h.routing.renormalize);
  EXPECT_EQ(model_.layer(2).attn_sinks.ne, Shape(4));
  EXPECT_EQ(model_.layer(1).ffn_down_exps_bias.ne, Shape(96, 7));
}

TEST_F(GptOss, EveryMissingBiasIsListed) {
  refused("blk.1.attn_k.bias", "blk.1.attn_z.bias", Code::BadData, "blk.1.attn_k.bias is missing");
  refused("blk.0.attn_sinks.weight", "blk.0.attn_slots.weight", Code::BadData,
          "blk.0.attn_sinks.weight is missing");
  refused("blk.2.ffn_down_exps.bias", "blk.2.ffn_down_exps.bios", Code::BadData,
          "blk.2.ffn_down_exps.bias is missing");
  refused("blk.0.ffn_gate_inp.bias", "blk.0.ffn_gate_ind.bias", Code::BadData,
          "blk.0.ffn_gate_inp.bias is missing");
}

TEST_F(GptOss, AWindowIsNeeded) {
  refused("gpt-oss.attention.sliding_window", "gpt-oss.attention.sliding_winbow", Code::BadData,
          "gpt-oss.attention.sliding_window");
}

// Rounded or not, YaRN turns some channels by other angles.
TEST_F(GptOss, TheRoundingOfYarnIsAChoice) {
  ThreadPool pool(2);
  CpuBackend cpu(pool, best_isa());
  const Window window = random_window(model_, {40}, 1, 3);
  const auto logits = [&](const Model& model) {
    Session session(model, cpu, {}, 40, 40, Precision::F32);
    session.allocate();
    const std::span<const float> l = session.append(window.tokens);
    return std::vector<float>(l.begin(), l.end());
  };
  const Model rounded = Model::open(dir_.file("gpt-oss-F32.gguf"), {.yarn_round = true}),
              not_rounded = Model::open(dir_.file("gpt-oss-F32.gguf"), {.yarn_round = false});
  EXPECT_EQ(not_rounded.hparams().rope.yarn_truncate, 0);
  EXPECT_EQ(logits(rounded), logits(model_));
  EXPECT_NE(logits(not_rounded), logits(model_));
}

// Layers 0 and 2 slide over 3 keys, layer 1 does not: through it alone token 0 reaches the last logits, in
// whose layers 0 and 2 it is out of sight.
TEST_F(GptOss, OddLayersSeeEverything) {
  ThreadPool pool(2);
  CpuBackend cpu(pool, best_isa());
  const auto logits = [&](int64_t n_layer, int32_t first) {
    SynthSettings s = awkward_sizes(DType::F32);
    s.n_layer = n_layer;
    const Model model = tiny_model(dir_, "gpt-oss", s);
    Window window = random_window(model, {9}, 1, 3);
    window.tokens[0] = first;
    Session session(model, cpu, {}, 9, 9, Precision::F32);
    session.allocate();
    const std::span<const float> l = session.append(window.tokens);
    return std::vector<float>(l.begin(), l.end());
  };
  EXPECT_EQ(logits(1, 5), logits(1, 6));
  EXPECT_NE(logits(2, 5), logits(2, 6));
}

}  // namespace
}  // namespace tandem
