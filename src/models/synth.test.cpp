#include "models/synth.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "text/chat.h"
#include "text/tokenizer.h"
#include "text/vocab.h"

namespace tandem {
namespace {

class Synth : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    directory_ = testing::TempDir() + "tandem_synth_" + info->name();
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string write(const char* arch, const SynthSettings& settings, int n_threads = 1,
                    const char* name = "m.gguf") {
    ThreadPool pool(n_threads);
    const std::string path = directory_ + "/" + name;
    write_synthetic(find_arch(arch), settings, pool, path);
    return path;
  }

  std::string directory_;
};

// Sizes that hide no mistake: q is wider than the hidden state, rows of 96 take no K-quant.
SynthSettings awkward() {
  SynthSettings s;
  s.n_layer = 3;
  s.n_embd = 96;
  s.n_head = 6;
  s.n_head_kv = 3;
  s.d_head = 20;
  s.n_ff = 160;
  s.n_expert = 7;
  s.n_expert_used = 3;
  s.n_ff_exp = 40;
  s.n_vocab = synth_min_vocab();
  return s;
}

TEST_F(Synth, EveryArchitectureOpens) {
  for (const ArchDef* arch : all_archs()) {
    for (const SynthSettings& s : {SynthSettings{}, awkward()}) {
      const Model m = Model::open(write(arch->name, s));
      EXPECT_STREQ(m.arch().name, arch->name);
      EXPECT_EQ(m.hparams().n_layer, s.n_layer);
      EXPECT_EQ(m.hparams().d_head, s.d_head);
      EXPECT_EQ(m.hparams().n_expert, arch->experts == Experts::None ? 0 : s.n_expert);
      EXPECT_EQ(m.hparams().n_ff_exp, arch->experts == Experts::None ? 0 : s.n_ff_exp);
      EXPECT_TRUE(m.global().output.present());
      const Weight& mixing = m.layer(0).attn_q.present() ? m.layer(0).attn_q : m.layer(0).attn_qkv;
      EXPECT_EQ(mixing.type, s.n_embd % 256 ? DType::Q8_0 : DType::Q4_K);
      EXPECT_EQ(m.layer(0).attn_norm.type, DType::F32);
    }
  }
}

TEST_F(Synth, TypesFollowTheRowLength) {
  SynthSettings s = awkward();
  s.tied = true;
  const Model m = Model::open(write("qwen3moe", s));
  EXPECT_FALSE(m.global().output.present());
  EXPECT_EQ(m.output().name, "token_embd.weight");
  EXPECT_EQ(m.layer(2).ffn_gate_inp.type, DType::F32);
  EXPECT_EQ(m.layer(2).ffn_down_exps.type, DType::F16);  // rows of 40
  EXPECT_EQ(m.layer(2).attn_output.type, DType::F16);    // rows of 120
}

TEST_F(Synth, BytesDependOnTheSeedOnly) {
  SynthSettings s;
  s.n_vocab = 1000;  // more than one chunk
  const auto bytes = [](const std::string& path) { return read_file(path, size_t{1} << 30); };
  const std::string one = bytes(write("qwen3moe", s, 1, "one"));
  EXPECT_EQ(one, bytes(write("qwen3moe", s, 3, "two")));
  s.seed = 43;
  EXPECT_NE(one, bytes(write("qwen3moe", s, 1, "three")));
}

TEST_F(Synth, WeightsHaveTheScaleOfTheirRows) {
  SynthSettings s;
  s.type = DType::F32;
  const Model m = Model::open(write("qwen3", s));
  for (const Weight* w : {&m.layer(0).attn_q, &m.layer(1).ffn_down, &m.layer(0).attn_norm}) {
    const auto* x = static_cast<const float*>(w->data);
    const double n = static_cast<double>(w->ne.elements());
    double sum = 0, square = 0;
    for (int64_t i = 0; i < w->ne.elements(); ++i) {
      sum += x[i];
      square += static_cast<double>(x[i]) * x[i];
    }
    const double mean = sum / n, deviation = std::sqrt(square / n - mean * mean);
    const bool norm = w->ne.rows() == 1;
    const double wanted = norm ? 0.1 / std::sqrt(3.0) : 1 / std::sqrt(static_cast<double>(w->ne[0]));
    EXPECT_NEAR(mean, norm ? 1.0 : 0.0, 5 * wanted / std::sqrt(n)) << w->name;
    EXPECT_NEAR(deviation, wanted, 5 * wanted / std::sqrt(n)) << w->name;
  }
}

TEST_F(Synth, TheVocabularyTakesAnyTextAndChat) {
  const Model m = Model::open(write("qwen3", SynthSettings{}));
  const Tokenizer t(read_vocab(m.file()));
  EXPECT_EQ(t.n_vocab(), 320);
  const std::string text = "the thing \xc3\xa9\xe2\x82\xac\n\t\x01";
  const std::vector<int32_t> ids = t.encode(text, false);
  EXPECT_EQ(t.decode(ids), text);
  EXPECT_LT(ids.size(), text.size());  // merges are used
  EXPECT_NO_THROW(check_chat_markers(t));
  EXPECT_TRUE(t.is_end_of_generation(*t.find("<|im_end|>")));
  EXPECT_EQ(t.token_type(319), TokenType::Unused);
}

TEST_F(Synth, WhatDoesNotFitIsRefusedAndNothingIsLeft) {
  const auto refused = [&](SynthSettings s, Code code) {
    try {
      write("qwen3moe", s);
      ADD_FAILURE() << "accepted";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), code) << e.what();
    }
  };
  SynthSettings s;
  s.n_head_kv = 3;
  refused(s, Code::Usage);
  s = {};
  s.d_head = 33;
  refused(s, Code::Usage);
  s = {};
  s.n_expert_used = 9;
  refused(s, Code::Usage);
  s = {};
  s.n_vocab = synth_min_vocab() - 1;
  refused(s, Code::Usage);
  s = {};
  s.type = DType::IQ2_XS;
  refused(s, Code::Unsupported);
  EXPECT_TRUE(std::filesystem::is_empty(directory_));
}

}  // namespace
}  // namespace tandem
