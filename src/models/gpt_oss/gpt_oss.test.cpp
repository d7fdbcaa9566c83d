#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

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

using Row = std::vector<double>;

// The model by its equations, token by token in f64, of the F32 file.  Source: architectures.md 1.3
// to 1.9, 6.
class Equations {
 public:
  explicit Equations(const Model& model) : m_(model), h_(model.hparams()) {}

  // The logits after the last token.
  Row logits(std::span<const int32_t> tokens) const {
    std::vector<Row> x;
    for (const int32_t t : tokens) {
      const auto* e = static_cast<const float*>(m_.global().token_embd.data) + t * h_.n_embd;
      x.emplace_back(e, e + h_.n_embd);
    }
    for (int64_t il = 0; il < h_.n_layer; ++il) {
      const LayerWeights& w = m_.layer(il);
      attention(w, il, x);
      for (Row& r : x) add(r, experts(w, norm(w.ffn_norm, r)));
    }
    return product(m_.output(), norm(m_.global().output_norm, x.back()));
  }

 private:
  static double at(const Weight& w, int64_t i) {
    return static_cast<double>(static_cast<const float*>(w.data)[i]);
  }
  static void add(Row& x, const Row& y) {
    for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }
  // Slice e of W x, plus column e of a bias.
  static Row product(const Weight& w, const Row& x, const Weight* bias = nullptr, int64_t e = 0) {
    Row y(static_cast<size_t>(w.ne[1]));
    for (int64_t o = 0; o < w.ne[1]; ++o) {
      double sum = bias ? at(*bias, e * w.ne[1] + o) : 0;
      for (int64_t i = 0; i < w.ne[0]; ++i)
        sum += at(w, (e * w.ne[1] + o) * w.ne[0] + i) * x[static_cast<size_t>(i)];
      y[static_cast<size_t>(o)] = sum;
    }
    return y;
  }
  Row norm(const Weight& w, const Row& x) const {
    double square = 0;
    for (const double v : x) square += v * v;
    const double r = 1 / std::sqrt(square / static_cast<double>(x.size()) + static_cast<double>(h_.rms_eps));
    Row y(x.size());
    for (size_t i = 0; i < x.size(); ++i) y[i] = at(w, static_cast<int64_t>(i)) * x[i] * r;
    return y;
  }
  // Turns pairs (i, i + d / 2) of each head.
  void turn(Row& x, int64_t position) const {
    const double d = static_cast<double>(h_.d_head), base = 150000, f = 32, m = 1 + 0.1 * std::log(f);
    const auto c = [&](double beta) { return d * std::log(4096 / (2 * M_PI * beta)) / (2 * std::log(base)); };
    const double lo = std::max(0., std::floor(c(32))), hi = std::min(d - 1, std::ceil(c(1)));
    const auto half = static_cast<size_t>(h_.d_head / 2);
    for (size_t head = 0; head < x.size(); head += 2 * half) {
      for (size_t i = 0; i < half; ++i) {
        const double rho = 1 - std::clamp((static_cast<double>(i) - lo) / (hi - lo), 0., 1.);
        const double theta = static_cast<double>(position) * std::pow(base, -2 * static_cast<double>(i) / d) *
                             ((1 - rho) / f + rho);
        const double a = x[head + i], b = x[head + i + half];
        x[head + i] = m * (a * std::cos(theta) - b * std::sin(theta));
        x[head + i + half] = m * (a * std::sin(theta) + b * std::cos(theta));
      }
    }
  }
  void attention(const LayerWeights& w, int64_t il, std::vector<Row>& x) const {
    const auto d = static_cast<size_t>(h_.d_head), dv = static_cast<size_t>(h_.d_head_v),
               n_head = static_cast<size_t>(h_.n_head), group = n_head / static_cast<size_t>(h_.n_head_kv);
    std::vector<Row> q, k, v;
    for (size_t t = 0; t < x.size(); ++t) {
      const Row n = norm(w.attn_norm, x[t]);
      q.push_back(product(w.attn_q, n, &w.attn_q_bias));
      k.push_back(product(w.attn_k, n, &w.attn_k_bias));
      v.push_back(product(w.attn_v, n, &w.attn_v_bias));
      turn(q.back(), static_cast<int64_t>(t));
      turn(k.back(), static_cast<int64_t>(t));
    }
    for (size_t t = 0; t < x.size(); ++t) {
      Row out(n_head * dv);
      for (size_t head = 0; head < n_head; ++head) {
        const size_t kv = head / group;
        const auto seen = [&](size_t j) {
          return il % 2 == 1 || t - j < static_cast<size_t>(h_.sliding_window);
        };
        double sum = std::exp(at(w.attn_sinks, static_cast<int64_t>(head)));
        Row p(t + 1);
        for (size_t j = 0; j <= t; ++j) {
          if (!seen(j)) continue;
          double s = 0;
          for (size_t i = 0; i < d; ++i) s += q[t][head * d + i] * k[j][kv * d + i];
          p[j] = std::exp(s / std::sqrt(static_cast<double>(d)));
          sum += p[j];
        }
        for (size_t j = 0; j <= t; ++j)
          for (size_t i = 0; i < dv; ++i) out[head * dv + i] += p[j] / sum * v[j][kv * dv + i];
      }
      add(x[t], product(w.attn_output, out, &w.attn_output_bias));
    }
  }
  Row experts(const LayerWeights& w, const Row& x) const {
    const Row z = product(w.ffn_gate_inp, x, &w.ffn_gate_inp_bias);
    std::vector<int64_t> ids(z.size());
    std::iota(ids.begin(), ids.end(), 0);
    std::stable_sort(ids.begin(), ids.end(), [&](int64_t a, int64_t b) {
      return z[static_cast<size_t>(a)] > z[static_cast<size_t>(b)];
    });
    ids.resize(static_cast<size_t>(h_.n_expert_used));
    double sum = 0;
    for (const int64_t e : ids) sum += std::exp(z[static_cast<size_t>(e)]);
    Row y(x.size());
    for (const int64_t e : ids) {
      const Row gate = product(w.ffn_gate_exps, x, &w.ffn_gate_exps_bias, e),
                up = product(w.ffn_up_exps, x, &w.ffn_up_exps_bias, e);
      Row hidden(gate.size());
      for (size_t i = 0; i < hidden.size(); ++i) {
        const double g = std::min(gate[i], 7.), u = std::clamp(up[i], -7., 7.);
        hidden[i] = g / (1 + std::exp(-1.702 * g)) * (u + 1);
      }
      const Row down = product(w.ffn_down_exps, hidden, &w.ffn_down_exps_bias, e);
      for (size_t i = 0; i < y.size(); ++i) y[i] += std::exp(z[static_cast<size_t>(e)]) / sum * down[i];
    }
    return y;
  }

  const Model& m_;
  const HParams& h_;
};

TEST_F(GptOss, IsWhatItsEquationsSay) {
  const Window window = random_window(model_, {11}, 1, 3);
  const Row want = Equations(model_).logits(window.tokens);
  ThreadPool pool(2);
  CpuBackend cpu(pool, best_isa());
  Session session(model_, cpu, {}, 11, 11, Precision::F32);
  session.allocate();
  const std::span<const float> got = session.append(window.tokens);
  ASSERT_EQ(got.size(), want.size());
  double worst = 0, largest = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    worst = std::max(worst, std::abs(static_cast<double>(got[i]) - want[i]));
    largest = std::max(largest, std::abs(want[i]));
  }
  EXPECT_GT(largest, 0.1);
  EXPECT_TRUE(worst <= 1e-5 * largest) << worst << " of " << largest;  // gradients.md 1.7
}

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
