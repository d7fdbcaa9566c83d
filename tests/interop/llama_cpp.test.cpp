// Our models, adapters and logits against llama.cpp's: same files, same tokens.  The trained tiny model of
// demo/ is held in F32 and F16 (where the only differences are those of f32 sums) and quantized (where
// llama.cpp also rounds the activations to 8 bits).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>

#include "exec/cpu/cpu_backend.h"
#include "io/gguf_writer.h"
#include "models/runner.h"
#include "models/sampler.h"
#include "tests/interop/peer.h"
#include "tests/support/tiny_models.h"
#include "text/samples.h"
#include "text/vocab.h"
#include "train/job.h"

namespace tandem {
namespace {

const std::string kRoot = TANDEM_SOURCE_DIR, kQuantized = kRoot + "/demo/tale-moe-Q4_K_M.gguf",
                  kAnimals = kRoot + "/tests/golden/tale-moe/animals-lora.gguf",
                  kRandom = kRoot + "/tests/golden/tale-moe/grad-adapter.gguf";

const char kProse[] =
    "Once upon a time there was a poor woodcutter who lived with his wife and his two children at the edge "
    "of a great forest. One evening the king's daughter came to the well, and the old frog said to her: "
    "\"Why do you weep so bitterly? Give me your golden plate, and I will bring you the ball.\" But she did "
    "not listen, and ran home as fast as she could, and told her father nothing of what had happened.";

// A copy of the model whose matrices are in `type`, decoded and encoded again; the rest as it is.
void write_as(const std::string& from, DType type, const std::string& to) {
  const GgufFile file = GgufFile::open(from);
  GgufWriter writer;
  for (const GgufEntry& e : file.entries()) {
    if (e.key != "general.file_type") writer.add_value(e.key, e.value);
  }
  std::vector<std::vector<std::byte>> kept;
  for (const GgufTensor& t : file.tensors()) {
    if (t.type == DType::F32) {
      writer.add_tensor(t.name, t.type, t.ne, {t.data, static_cast<size_t>(t.bytes)});
      continue;
    }
    const int64_t n = t.ne[0] * t.ne[1] * t.ne[2] * t.ne[3];
    std::vector<float> values(static_cast<size_t>(n));
    type_info(t.type).codec->decode(t.data, values.data(), n);
    kept.emplace_back(static_cast<size_t>(row_bytes(type, n)));
    type_info(type).codec->encode(values.data(), kept.back().data(), n);
    writer.add_tensor(t.name, type, t.ne, kept.back());
  }
  writer.write(to);
}

// What two sets of logits for the same tokens differ by.
struct Difference {
  double largest = 0;
  double median = 0, quantile95 = 0;  // of the largest difference at each position
  int64_t n_positions = 0, n_same_token = 0;
};

class LlamaCpp : public testing::Test {
 protected:
  void SetUp() override {
    const std::optional<std::string> missing = peer_missing();
    if (!missing) return;
    // Set by ./dev test --interop.
    if (std::getenv("TANDEM_INTEROP")) FAIL() << *missing;
    GTEST_SKIP() << *missing;
  }

  std::vector<float> our_logits(const Model& model, const std::vector<const AdapterSet*>& adapters,
                                const std::vector<int32_t>& tokens) {
    Session session(model, cpu_, adapters, static_cast<int64_t>(tokens.size()), 64, Precision::F32);
    session.allocate();
    std::vector<float> out;
    for (const int32_t t : tokens) {
      const std::span<const float> row = session.append({&t, 1});
      out.insert(out.end(), row.begin(), row.end());
    }
    return out;
  }

  // Compares a model, perhaps with adapters, over `tokens`.
  Difference compare(const std::string& model_path, const std::vector<std::string>& adapters,
                     const std::vector<int32_t>& tokens, float scale = 1.f) {
    const Model model = Model::open(model_path);
    std::vector<AdapterSet> sets;
    std::vector<PeerAdapter> peers;
    for (const std::string& path : adapters) {
      sets.push_back(AdapterSet::load(path, model, scale));
      peers.push_back({path, scale});
    }
    std::vector<const AdapterSet*> applied;
    for (const AdapterSet& s : sets) applied.push_back(&s);
    Peer peer(model_path, peers, static_cast<int64_t>(tokens.size()));
    EXPECT_EQ(peer.n_vocab(), model.hparams().n_vocab);
    return difference(our_logits(model, applied, tokens), peer.logits(tokens),
                      static_cast<size_t>(peer.n_vocab()));
  }

  static Difference difference(const std::vector<float>& ours, const std::vector<float>& theirs,
                               size_t n_vocab) {
    Difference d;
    EXPECT_EQ(ours.size(), theirs.size());
    std::vector<double> largest;
    for (size_t at = 0; at + n_vocab <= std::min(ours.size(), theirs.size()); at += n_vocab) {
      double most = 0;
      for (size_t i = at; i < at + n_vocab; ++i) {
        EXPECT_TRUE(std::isfinite(ours[i]) && std::isfinite(theirs[i]));
        most = std::max(most, std::abs(static_cast<double>(ours[i]) - theirs[i]));
      }
      largest.push_back(most);
      const auto top = [&](const std::vector<float>& x) {
        const auto begin = x.begin() + static_cast<int64_t>(at);
        return std::max_element(begin, begin + static_cast<int64_t>(n_vocab)) - begin;
      };
      d.n_same_token += top(ours) == top(theirs);
    }
    d.n_positions = static_cast<int64_t>(largest.size());
    std::sort(largest.begin(), largest.end());
    if (largest.empty()) return d;
    d.largest = largest.back();
    d.median = largest[largest.size() / 2];
    d.quantile95 = largest[largest.size() * 95 / 100];
    return d;
  }

  // Both sides' greedy continuation of a prompt, each along its own tokens.
  void expect_same_greedy(const std::string& model_path, const std::vector<std::string>& adapters,
                          const std::string& prompt, int n_tokens) {
    const Model model = Model::open(model_path);
    std::vector<AdapterSet> sets;
    std::vector<PeerAdapter> peers;
    for (const std::string& path : adapters) {
      sets.push_back(AdapterSet::load(path, model, 1.f));
      peers.push_back({path, 1.f});
    }
    std::vector<const AdapterSet*> applied;
    for (const AdapterSet& s : sets) applied.push_back(&s);
    std::vector<int32_t> ours = tokenizer_.encode(prompt, true), theirs = ours;
    const size_t context = ours.size() + static_cast<size_t>(n_tokens);
    Session session(model, cpu_, applied, static_cast<int64_t>(context), 64, Precision::F32);
    session.allocate();
    std::span<const float> logits = session.append(ours);
    Peer peer(model_path, peers, static_cast<int64_t>(context));
    EXPECT_EQ(peer.tokens(prompt), ours);
    const auto n_vocab = static_cast<size_t>(peer.n_vocab());
    for (int i = 0; i < n_tokens; ++i) {
      const int32_t next = top_logits(logits, 1)[0].first;
      ours.push_back(next);
      logits = session.append({&next, 1});
      const std::vector<float> all = peer.logits(theirs);
      theirs.push_back(
          static_cast<int32_t>(std::max_element(all.end() - static_cast<int64_t>(n_vocab), all.end()) -
                               (all.end() - static_cast<int64_t>(n_vocab))));
    }
    EXPECT_EQ(ours, theirs) << model_path;
  }

  // How far an adapter moves the logits: a comparison proves nothing about one that does nothing.
  double effect(const std::string& model_path, const std::string& adapter_path,
                const std::vector<int32_t>& tokens) {
    const Model model = Model::open(model_path);
    const AdapterSet adapter = AdapterSet::load(adapter_path, model, 1.f);
    return difference(our_logits(model, {&adapter}, tokens), our_logits(model, {}, tokens),
                      static_cast<size_t>(model.hparams().n_vocab))
        .median;
  }

  TempDir dir_;
  ThreadPool pool_{1};
  CpuBackend cpu_{pool_, best_isa()};
  Model quantized_ = Model::open(kQuantized);
  Tokenizer tokenizer_{read_vocab(quantized_.file())};
  std::vector<int32_t> prose_ = tokenizer_.encode(kProse, true);
};

TEST_F(LlamaCpp, SameTokens) {
  Peer peer(kQuantized, {}, 64);
  for (const char* text : {kProse, "Zürich, naïve — 12 345.67 €\n\n\tif (x != y) { }", "  leading", "",
                           "<|im_start|>user\nWhich animal?<|im_end|>\n"}) {
    EXPECT_EQ(peer.tokens(text), tokenizer_.encode(text, true)) << text;
  }
}

TEST_F(LlamaCpp, LogitsOnF32AndF16) {
  struct Case {
    DType type;
    double bound;
  };
  for (const Case c : {Case{DType::F32, 5e-4}, Case{DType::F16, 1e-2}}) {
    const std::string path = dir_.file(std::string(name_of(c.type)) + ".gguf");
    write_as(kQuantized, c.type, path);
    for (const std::vector<std::string>& adapters :
         std::vector<std::vector<std::string>>{{}, {kAnimals}, {kRandom}, {kAnimals, kRandom}}) {
      const Difference d = compare(path, adapters, prose_);
      EXPECT_LE(d.largest, c.bound) << name_of(c.type) << ", " << adapters.size() << " adapters";
      EXPECT_GT(d.n_positions, 100);
      EXPECT_EQ(d.n_same_token, d.n_positions);
      for (const std::string& a : adapters) EXPECT_GT(effect(path, a, prose_), 10 * c.bound);
    }
    expect_same_greedy(path, {}, "Once upon a time", 48);
    expect_same_greedy(path, {kAnimals}, "The king said to his daughter,", 48);
  }
}

TEST_F(LlamaCpp, TheScaleOfAnAdapterIsTheSame) {
  const std::string path = dir_.file("f32.gguf");
  write_as(kQuantized, DType::F32, path);
  EXPECT_LE(compare(path, {kRandom}, prose_, -0.5f).largest, 5e-4);
}

// llama.cpp rounds the activations to 8 bits here, and near a tie of the router a token then goes to another
// expert, so the largest difference says nothing.  Measured, of the largest difference at each position, over
// the three choices of adapters, median and 95 % quantile: Q4_K_M 0.10 to 0.11 and 0.19 to 0.24, Q8_0 0.056
// to 0.066 and 0.12 to 0.14, Q4_0 0.056 to 0.070 and 0.11 to 0.15, Q6_K 0.098 to 0.11 and 0.21 to 0.25, MXFP4
// 0.057 to 0.068 and 0.11 to 0.17.  The bounds are about one and a half times the largest.
TEST_F(LlamaCpp, LogitsOnQuantizedWeights) {
  struct Case {
    const char* type;
    double median, quantile95;
  };
  for (const Case& c : {Case{"Q4_K_M", 0.16, 0.35}, Case{"Q8_0", 0.1, 0.22}, Case{"Q4_0", 0.11, 0.24},
                        Case{"Q6_K", 0.16, 0.35}, Case{"MXFP4", 0.1, 0.25}}) {
    std::string path = kQuantized;
    if (const std::optional<DType> type = dtype_of_name(c.type)) {
      path = dir_.file(std::string(c.type) + ".gguf");
      write_as(kQuantized, *type, path);
    }
    for (const std::vector<std::string>& adapters :
         std::vector<std::vector<std::string>>{{}, {kAnimals}, {kRandom}}) {
      const Difference d = compare(path, adapters, prose_);
      EXPECT_LE(d.median, c.median) << c.type << ", adapters " << adapters.size();
      EXPECT_LE(d.quantile95, c.quantile95) << c.type << ", adapters " << adapters.size();
      EXPECT_GE(d.n_same_token * 100, d.n_positions * 93) << c.type;
    }
  }
}

// Rows of the task whose every trained token is the likeliest one.
TEST_F(LlamaCpp, ScoreOfTheAnimalsTask) {
  const std::vector<Sample> rows =
      make_samples(read_rows(kRoot + "/demo/animals-test.jsonl"), tokenizer_, {}).samples;
  ASSERT_EQ(rows.size(), 181u);
  const AdapterSet adapter = AdapterSet::load(kAnimals, quantized_, 1.f);
  Peer peer(kQuantized, {{kAnimals}}, 256);
  const auto exact = [&](const Sample& s, const std::vector<float>& logits) {
    const size_t n_vocab = logits.size() / s.tokens.size();
    for (size_t t = 0; t + 1 < s.tokens.size(); ++t) {
      const auto row = logits.begin() + static_cast<int64_t>(t * n_vocab);
      if (s.trained[t + 1] &&
          std::max_element(row, row + static_cast<int64_t>(n_vocab)) - row != s.tokens[t + 1])
        return false;
    }
    return true;
  };
  int n_ours = 0, n_theirs = 0;
  for (const Sample& s : rows) {
    n_ours += exact(s, our_logits(quantized_, {&adapter}, s.tokens));
    n_theirs += exact(s, peer.logits(s.tokens));
  }
  EXPECT_GT(n_ours, 120);
  EXPECT_LE(std::abs(n_ours - n_theirs), 6) << n_ours << " against " << n_theirs;
}

// A random model of ours loads there, of every architecture, untied, heads wider than the hidden state where
// the peer takes that.  It takes deepseek2 without compressed queries for the model of 27 layers only.
TEST_F(LlamaCpp, SyntheticModelsLoad) {
  for (const char* arch : {"qwen3", "qwen3moe", "olmoe", "qwen2moe", "qwen35", "qwen35moe", "qwen3next",
                           "llama", "llama_dense", "gpt-oss", "deepseek2_v3"}) {
    SCOPED_TRACE(arch);
    SynthSettings sizes = awkward_sizes(DType::F32);
    if (arch == std::string_view("olmoe") ||
        arch == std::string_view("qwen2moe")) {  // there queries and keys are as wide as the hidden state
      sizes.d_head = 24;
      sizes.n_head_kv = sizes.n_head;
    }
    const Model model = tiny_model(dir_, arch, sizes);
    // There the products of latent attention take no adapter.
    const bool latent = model.hparams().kv_lora_rank > 0;
    const AdapterSet adapter = random_adapter(model, latent ? "attn_output,experts,shared" : "all", 3, 7);
    const std::string path = model.file().path(), lora = dir_.file("lora.gguf");
    write_adapter(lora, adapter, model, "random");
    std::vector<int32_t> tokens;
    for (int i = 0; i < 70; ++i) tokens.push_back(static_cast<int32_t>((i * 37 + 11) % 256));
    EXPECT_LE(compare(path, {}, tokens).largest, 5e-4) << arch;
    EXPECT_LE(compare(path, {lora}, tokens).largest, 5e-4) << arch;
    EXPECT_GT(effect(path, lora, tokens), 5e-3) << arch;
  }
}

// What a job trained here has the same effect there.
TEST_F(LlamaCpp, ATrainedAdapterHasItsEffectThere) {
  const std::string path = dir_.file("f32.gguf"), lora = dir_.file("trained.gguf");
  write_as(kQuantized, DType::F32, path);
  std::vector<Sample> rows =
      make_samples(read_rows(kRoot + "/demo/animals-train.jsonl"), tokenizer_, {}).samples;
  rows.resize(32);
  TrainSettings settings;
  settings.rank = 4;
  settings.rslora = true;
  settings.targets = "all";
  settings.iters = 6;
  settings.adamw.learning_rate = 4e-3f;
  const std::vector<int32_t> row = rows[0].tokens;
  TrainJob job(quantized_, cpu_, settings, rows, {});
  job.allocate(SIZE_MAX);
  run_job(job, {});
  export_adapter(job, quantized_, lora, "trained");
  EXPECT_GT(effect(path, lora, row), 0.1);
  const Difference d = compare(path, {lora}, row);
  EXPECT_LE(d.largest, 5e-4);
  EXPECT_EQ(d.n_same_token, d.n_positions);
}

}  // namespace
}  // namespace tandem
