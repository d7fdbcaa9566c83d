#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "base/file.h"
#include "exec/cpu/cpu_backend.h"
#include "exec/ref/ref_exec.h"
#include "io/gguf_writer.h"
#include "models/peft.h"
#include "tests/support/tiny_models.h"

namespace tandem {
namespace {

using Row = std::vector<double>;

// The model by its equations, token by token in f64, of an F32 file.  Source: architectures.md 1.3 to 1.9, 7.
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
      attention(w, x);
      for (Row& r : x) {
        const Row n = norm(w.ffn_norm, r);
        if (il == 0) {
          add(r, ffn(w.ffn_gate, w.ffn_up, w.ffn_down, n));
        } else {
          const Row shared = ffn(w.ffn_gate_shexp, w.ffn_up_shexp, w.ffn_down_shexp, n);
          add(r, experts(w, n));
          add(r, shared);
        }
      }
    }
    return product(m_.output(), norm(m_.global().output_norm, x.back()));
  }

 private:
  static double at(const Weight& w, int64_t i) {
    return static_cast<double>(static_cast<const float*>(w.data)[i]);
  }
  static void add(Row& x, const Row& y, double factor = 1) {
    for (size_t i = 0; i < x.size(); ++i) x[i] += factor * y[i];
  }
  // Slice e of W x.
  static Row product(const Weight& w, const Row& x, int64_t e = 0) {
    Row y(static_cast<size_t>(w.ne[1]));
    for (int64_t o = 0; o < w.ne[1]; ++o)
      for (int64_t i = 0; i < w.ne[0]; ++i)
        y[static_cast<size_t>(o)] += at(w, (e * w.ne[1] + o) * w.ne[0] + i) * x[static_cast<size_t>(i)];
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
  static Row ffn(const Weight& gate, const Weight& up, const Weight& down, const Row& x, int64_t e = 0) {
    Row h = product(gate, x, e);
    const Row u = product(up, x, e);
    for (size_t i = 0; i < h.size(); ++i) h[i] = h[i] / (1 + std::exp(-h[i])) * u[i];
    return product(down, h, e);
  }
  // Turns the pairs (2 i, 2 i + 1) of x[begin, begin + n_rot).
  void turn(Row& x, size_t begin, int64_t position) const {
    const double n_rot = h_.rope.n_rot, base = static_cast<double>(h_.rope.base), f = 40;
    const auto c = [&](double beta) {
      return n_rot * std::log(4096 / (2 * M_PI * beta)) / (2 * std::log(base));
    };
    const double lo = std::max(0., std::floor(c(32))), hi = std::min(n_rot - 1, std::ceil(c(1)));
    for (size_t i = 0; i < static_cast<size_t>(h_.rope.n_rot / 2); ++i) {
      const double rho = 1 - std::clamp((static_cast<double>(i) - lo) / (hi - lo), 0., 1.);
      const double theta = static_cast<double>(position) *
                           std::pow(base, -2 * static_cast<double>(i) / n_rot) * ((1 - rho) / f + rho);
      double &a = x[begin + 2 * i], &b = x[begin + 2 * i + 1];
      const double turned_a = a * std::cos(theta) - b * std::sin(theta);
      b = a * std::sin(theta) + b * std::cos(theta);
      a = turned_a;
    }
  }
  void attention(const LayerWeights& w, std::vector<Row>& x) const {
    const auto d = static_cast<size_t>(h_.d_head), dv = static_cast<size_t>(h_.d_head_v),
               n_head = static_cast<size_t>(h_.n_head), n_rot = static_cast<size_t>(h_.rope.n_rot),
               rank = static_cast<size_t>(h_.kv_lora_rank), nope = d - n_rot;
    std::vector<Row> q, k, v;
    for (size_t t = 0; t < x.size(); ++t) {
      const Row n = norm(w.attn_norm, x[t]);
      q.push_back(w.attn_q.present() ? product(w.attn_q, n)
                                     : product(w.attn_q_b, norm(w.attn_q_a_norm, product(w.attn_q_a, n))));
      const Row both = product(w.attn_kv_a_mqa, n);
      const Row c = norm(w.attn_kv_a_norm, Row(both.begin(), both.begin() + static_cast<int64_t>(rank)));
      Row key(both.begin() + static_cast<int64_t>(rank), both.end());
      turn(key, 0, static_cast<int64_t>(t));
      k.emplace_back(n_head * d);
      v.emplace_back(n_head * dv);
      for (size_t head = 0; head < n_head; ++head) {
        turn(q[t], head * d + nope, static_cast<int64_t>(t));
        for (size_t i = 0; i < nope; ++i)
          for (size_t r = 0; r < rank; ++r)
            k[t][head * d + i] += at(w.attn_k_b, static_cast<int64_t>((head * rank + r) * nope + i)) * c[r];
        for (size_t i = 0; i < n_rot; ++i) k[t][head * d + nope + i] = key[i];
        const Row of_head = product(w.attn_v_b, c, static_cast<int64_t>(head));
        std::copy(of_head.begin(), of_head.end(), v[t].begin() + static_cast<int64_t>(head * dv));
      }
    }
    const double m = 1 + 0.1 * 0.707 * std::log(40.), factor = m * m / std::sqrt(static_cast<double>(d));
    for (size_t t = 0; t < x.size(); ++t) {
      Row out(n_head * dv);
      for (size_t head = 0; head < n_head; ++head) {
        Row p(t + 1);
        double sum = 0;
        for (size_t j = 0; j <= t; ++j) {
          double s = 0;
          for (size_t i = 0; i < d; ++i) s += q[t][head * d + i] * k[j][head * d + i];
          sum += p[j] = std::exp(factor * s);
        }
        for (size_t j = 0; j <= t; ++j)
          for (size_t i = 0; i < dv; ++i) out[head * dv + i] += p[j] / sum * v[j][head * dv + i];
      }
      add(x[t], product(w.attn_output, out));
    }
  }
  static std::vector<size_t> best(const Row& x, size_t k) {
    std::vector<size_t> ids(x.size());
    std::iota(ids.begin(), ids.end(), size_t{0});
    std::stable_sort(ids.begin(), ids.end(), [&](size_t a, size_t b) { return x[a] > x[b]; });
    ids.resize(k);
    return ids;
  }
  Row experts(const LayerWeights& w, const Row& x) const {
    const bool v3 = h_.q_lora_rank > 0;
    const Row z = product(w.ffn_gate_inp, x);
    Row p(z.size());
    for (size_t e = 0; e < z.size(); ++e) p[e] = v3 ? 1 / (1 + std::exp(-z[e])) : std::exp(z[e]);
    if (!v3) {
      const double sum = std::accumulate(p.begin(), p.end(), 0.);
      for (double& value : p) value /= sum;
    }
    Row score = p;
    if (v3) {  // eight experts in four groups of two, of which two take part
      for (size_t e = 0; e < p.size(); ++e) score[e] += at(w.exp_probs_b, static_cast<int64_t>(e));
      Row group(4);
      for (size_t e = 0; e < p.size(); ++e) group[e / 2] += score[e];
      const std::vector<size_t> used = best(group, 2);
      for (size_t e = 0; e < p.size(); ++e)
        if (std::find(used.begin(), used.end(), e / 2) == used.end()) score[e] = -1e30;
    }
    const std::vector<size_t> ids = best(score, static_cast<size_t>(h_.n_expert_used));
    double sum = 0;
    for (const size_t e : ids) sum += p[e];
    Row y(x.size());
    for (const size_t e : ids) {
      const double weight = v3 ? 2.5 * p[e] / sum : p[e];
      add(y, ffn(w.ffn_gate_exps, w.ffn_up_exps, w.ffn_down_exps, x, static_cast<int64_t>(e)), weight);
    }
    return y;
  }

  const Model& m_;
  const HParams& h_;
};

// A model's file with keys and tensors in place of some of it.
class Edited {
 public:
  explicit Edited(const Model& model) : model_(model) {}
  // Keys and tensors to leave out, by their beginnings.
  Edited& drop(const std::string& name) {
    dropped_.push_back(name);
    return *this;
  }
  GgufWriter& out() { return out_; }
  Model open(const std::string& path) {
    for (const GgufEntry& e : model_.file().entries()) {
      if (!gone(e.key) && !out_.has(e.key)) out_.add_value(e.key, e.value);
    }
    for (const GgufTensor& t : model_.file().tensors()) {
      if (gone(t.name)) continue;
      const auto* data = static_cast<const std::byte*>(t.data);
      out_.add_tensor(t.name, t.type, t.ne, std::span(data, static_cast<size_t>(t.bytes)));
    }
    out_.write(path);
    return Model::open(path);
  }

 private:
  bool gone(std::string_view name) const {
    return std::any_of(dropped_.begin(), dropped_.end(),
                       [&](const std::string& d) { return name.starts_with(d); });
  }
  const Model& model_;
  std::vector<std::string> dropped_;
  GgufWriter out_;
};

class Deepseek2 : public testing::Test {
 protected:
  std::vector<float> logits(const Model& model, std::span<const int32_t> tokens, Precision precision,
                            std::vector<const AdapterSet*> adapters = {}) const {
    ThreadPool pool(2);
    CpuBackend cpu(pool, best_isa());
    const auto n = static_cast<int64_t>(tokens.size());
    Session session(model, cpu, std::move(adapters), n, n, precision);
    session.allocate();
    const std::span<const float> l = session.append(tokens);
    return {l.begin(), l.end()};
  }
  // Within `tolerance` of the largest.
  template <class Numbers>
  void expect_close(const std::vector<float>& got, const Numbers& want, double tolerance) const {
    ASSERT_EQ(got.size(), want.size());
    double worst = 0, largest = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      worst = std::max(worst, std::abs(static_cast<double>(got[i]) - static_cast<double>(want[i])));
      largest = std::max(largest, std::abs(static_cast<double>(want[i])));
    }
    EXPECT_GT(largest, 0.1);
    EXPECT_TRUE(worst <= tolerance * largest) << worst << " of " << largest;
  }
  template <class Body>
  void refused(Code code, const std::vector<std::string>& parts, Body body) const {
    try {
      body();
      ADD_FAILURE() << "taken, but wanted: " << parts[0];
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), code) << e.what();
      for (const std::string& part : parts)
        EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << part << "\n" << e.what();
    }
  }
  std::string other() const { return dir_.file("other.gguf"); }

  TempDir dir_;
};

TEST_F(Deepseek2, IsWhatItsEquationsSay) {
  for (const char* kind : {"deepseek2", "deepseek2_v3"}) {
    const Model model = tiny_model(dir_, kind, awkward_sizes(DType::F32));
    const Window window = random_window(model, {13}, 1, 3);
    expect_close(logits(model, window.tokens, Precision::F32), Equations(model).logits(window.tokens),
                 1e-5);  // gradients.md 1.7
  }
}

// Older files have the rows of each head's key, then those of its value, in one matrix.
TEST_F(Deepseek2, OneMatrixOfKeysAndValuesIsTheSameModel) {
  const Model split = tiny_model(dir_, "deepseek2", awkward_sizes(DType::F32));
  const HParams& h = split.hparams();
  EXPECT_TRUE(h.kv_b_by_head);
  const int64_t rank = h.kv_lora_rank, nope = h.d_head - h.rope.n_rot, each = nope + h.d_head_v;
  std::vector<std::vector<float>> joint;
  Edited edited(split);
  for (int64_t il = 0; il < h.n_layer; ++il) {
    const auto *k = static_cast<const float*>(split.layer(il).attn_k_b.data),
               *v = static_cast<const float*>(split.layer(il).attn_v_b.data);
    std::vector<float>& w = joint.emplace_back();
    for (int64_t head = 0; head < h.n_head; ++head) {
      for (int64_t i = 0; i < nope; ++i)
        for (int64_t r = 0; r < rank; ++r) w.push_back(k[(head * rank + r) * nope + i]);
      w.insert(w.end(), v + head * h.d_head_v * rank, v + (head + 1) * h.d_head_v * rank);
    }
    edited.drop(fmt::format("blk.{}.attn_k_b", il)).drop(fmt::format("blk.{}.attn_v_b", il));
    edited.out().add_tensor(fmt::format("blk.{}.attn_kv_b.weight", il), DType::F32,
                            Shape(rank, h.n_head * each).ne, std::as_bytes(std::span(w)));
  }
  edited.drop("deepseek2.attention.key_length").drop("deepseek2.attention.value_length");
  edited.out().add_u32("deepseek2.attention.key_length", static_cast<uint32_t>(h.d_head));
  edited.out().add_u32("deepseek2.attention.value_length", static_cast<uint32_t>(h.d_head_v));
  edited.out().add_u32("deepseek2.attention.head_count_kv", static_cast<uint32_t>(h.n_head));
  const Model one = edited.open(other());
  EXPECT_FALSE(one.hparams().kv_b_by_head);
  EXPECT_EQ(one.hparams().d_head, h.d_head);
  EXPECT_EQ(one.hparams().d_head_v, h.d_head_v);
  const Window window = random_window(split, {17}, 1, 4);
  expect_close(logits(one, window.tokens, Precision::F32), logits(split, window.tokens, Precision::F32),
               1e-5);
}

TEST_F(Deepseek2, ServesInInt8AndBf16) {
  for (const char* kind : {"deepseek2", "deepseek2_joint_kv_b", "deepseek2_v3"}) {
    SynthSettings s = awkward_sizes(DType::Q8_0);
    s.n_expert_used = 7;  // of 7: a near-tie of experts would move the logits by more than rounding does
    s.n_embd = 128;
    s.d_head = 48;
    const Model model = tiny_model(dir_, kind, s);
    const Window window = random_window(model, {9}, 1, 3);
    const std::vector<float> exact = logits(model, window.tokens, Precision::F32);
    for (const Precision p : {Precision::BF16, Precision::Int8}) {
      const std::vector<float> rounded = logits(model, window.tokens, p);
      EXPECT_NE(rounded, exact);
      expect_close(rounded, exact, 0.1);
    }
  }
}

// The sizes of heads as newer files tell them, and the scale of V2-Lite: f = 40, mu = 0.707.
TEST_F(Deepseek2, ReadsItsHyperParameters) {
  SynthSettings s = awkward_sizes(DType::F16);
  s.d_head = 192;
  const Model model = tiny_model(dir_, "deepseek2", s);
  const HParams& h = model.hparams();
  EXPECT_EQ(model.file().get_u64("deepseek2.attention.key_length"), 24u + 64);
  EXPECT_EQ(model.file().get_u64("deepseek2.attention.head_count_kv"), 1u);
  EXPECT_EQ(h.d_head, 192);
  EXPECT_EQ(h.d_head_v, 128);
  EXPECT_EQ(h.n_head_kv, 4);
  EXPECT_EQ(h.rope.n_rot, 64);
  EXPECT_EQ(h.rope.kind, RopeKind::Normal);
  EXPECT_TRUE(h.rope.last);
  EXPECT_EQ(h.rope.yarn_factor, 40.f);
  EXPECT_EQ(h.rope.magnitude, 1.f);
  EXPECT_NEAR(h.score_scale(), 0.114721, 1e-6);
  EXPECT_EQ(h.n_layer_dense_lead, 1);
  EXPECT_EQ(h.n_ff, 160);
  EXPECT_EQ(h.n_ff_shexp, 128);
  EXPECT_EQ(h.routing.gating, Gating::Softmax);
  EXPECT_FALSE(h.routing.renormalize);
  EXPECT_EQ(h.routing.scale, 1.f);
  EXPECT_EQ(h.routing.n_group, 0);
  EXPECT_EQ(model.layer(1).attn_k_b.ne, Shape(128, 24, 4));
  EXPECT_FALSE(model.layer(0).ffn_gate_inp.present());
  EXPECT_FALSE(model.layer(1).ffn_gate.present());

  const Model v3 = tiny_model(dir_, "deepseek2_v3", awkward_sizes(DType::F16));
  EXPECT_EQ(v3.hparams().q_lora_rank, 40);
  EXPECT_EQ(v3.hparams().routing.gating, Gating::Sigmoid);
  EXPECT_TRUE(v3.hparams().routing.renormalize);
  EXPECT_EQ(v3.hparams().routing.scale, 2.5f);
  EXPECT_EQ(v3.hparams().routing.n_group, 4);
  EXPECT_EQ(v3.hparams().routing.n_group_used, 2);
  EXPECT_TRUE(v3.layer(1).exp_probs_b.present());
}

TEST_F(Deepseek2, EveryMisfitIsListed) {
  const Model model = tiny_model(dir_, "deepseek2_v3", awkward_sizes(DType::F32));
  refused(Code::BadData,
          {"blk.0.attn_k_b.weight is missing", "blk.1.attn_v_b.weight is missing",
           "blk.2.attn_kv_a_norm.weight is missing", "blk.0.ffn_up.weight is missing",
           "blk.1.ffn_gate_shexp.weight is missing", "blk.2.attn_q_b.weight is missing"},
          [&] {
            Edited(model)
                .drop("blk.0.attn_k_b")
                .drop("blk.1.attn_v_b")
                .drop("blk.2.attn_kv_a_norm")
                .drop("blk.0.ffn_up")
                .drop("blk.1.ffn_gate_shexp")
                .drop("blk.2.attn_q_b")
                .open(other());
          });
  EXPECT_NO_THROW(Edited(model).drop("blk.1.exp_probs_b").open(other()));  // not every model has it
  refused(Code::BadData, {"attn_q.weight is missing"},
          [&] { Edited(model).drop("deepseek2.attention.q_lora_rank").open(other()); });
}

TEST_F(Deepseek2, WhatIsNotBuiltIsRefused) {
  const Model model = tiny_model(dir_, "deepseek2_v3", awkward_sizes(DType::F32));
  refused(Code::Unsupported, {"yarn_log_multiplier is missing"},
          [&] { Edited(model).drop("deepseek2.rope.scaling.yarn_log_multiplier").open(other()); });
  refused(Code::BadData, {"leading_dense_block_count"},
          [&] { Edited(model).drop("deepseek2.leading_dense_block_count").open(other()); });
  const auto with = [&](const char* key, uint32_t value) {
    Edited edited(model);
    edited.out().add_u32(key, value);
    edited.open(other());
  };
  refused(Code::Unsupported, {"expert_gating_func is 4"}, [&] { with("deepseek2.expert_gating_func", 4); });
  refused(Code::BadData, {"8 experts in 3 groups"}, [&] { with("deepseek2.expert_group_count", 3); });
  refused(Code::BadData, {"8 experts in 4 groups of which 1"},
          [&] { with("deepseek2.expert_group_used_count", 1); });
  refused(Code::BadData, {"rope.dimension_count is 40"}, [&] { with("deepseek2.rope.dimension_count", 40); });
  // All groups used is no choice among them.
  Edited edited(model);
  edited.out().add_u32("deepseek2.expert_group_used_count", 4);
  EXPECT_EQ(edited.open(other()).hparams().routing.n_group, 0);
}

// Every adapter at once, against the double reference of the whole model; experts are counted in layers that
// have some.
TEST_F(Deepseek2, EveryAdapterHasItsGradient) {
  for (const char* kind : {"deepseek2", "deepseek2_joint_kv_b", "deepseek2_v3"}) {
    const Model model = tiny_model(dir_, kind, awkward_sizes(DType::Q8_0));
    AdapterSet adapter = random_adapter(model, "all", 2, 5);
    const Window window = random_window(model, {9, 14}, 3, 21);
    WholeModel whole(model, adapter, window);
    whole.differentiate(0.25f);
    RefExec<double> exec(whole.graph);
    exec.run();
    ThreadPool pool(2);
    CpuBackend cpu(pool, best_isa());
    adapter.allocate_gradients();
    RunnerOptions options;
    options.window_tokens = window.n_tokens();
    options.range_tokens = 64;
    WindowRunner runner(model, cpu, {&adapter}, &adapter, options);
    runner.allocate();
    runner.forward_backward(window, 0.25f, {});
    std::map<std::string, std::span<const float>> got;
    for (const AdapterPair& p : adapter.pairs()) {
      got[p.weight->name + ".lora_a"] = {adapter.a_gradient(p), static_cast<size_t>(p.a_shape.elements())};
      got[p.weight->name + ".lora_b"] = {adapter.b_gradient(p), static_cast<size_t>(p.b_shape.elements())};
    }
    ASSERT_EQ(got.size(), whole.gradients.size());
    for (size_t i = 0; i < whole.gradients.size(); ++i) {
      const std::string& name = whole.names[i];
      ASSERT_TRUE(whole.gradients[i] && got.contains(name)) << name;
      const std::span<const double> want = exec.get(whole.gradients[i]);
      const std::span<const float> here = got.at(name);
      ASSERT_EQ(want.size(), here.size());
      double worst = 0, largest = 0;
      for (size_t j = 0; j < want.size(); ++j) {
        worst = std::max(worst, std::abs(want[j] - static_cast<double>(here[j])));
        largest = std::max(largest, std::abs(want[j]));
      }
      EXPECT_GT(largest, 0) << name;
      EXPECT_TRUE(worst <= 1e-4 * largest) << kind << " " << name << " " << worst << " of " << largest;
    }
    const auto n_expert = static_cast<size_t>(model.hparams().n_expert);
    std::vector<int64_t> counts(n_expert * 3, 0);
    runner.count_experts(window, counts);
    const auto tokens = [&](size_t il) {
      return std::accumulate(counts.begin() + static_cast<int64_t>(il * n_expert),
                             counts.begin() + static_cast<int64_t>((il + 1) * n_expert), int64_t{0});
    };
    EXPECT_EQ(tokens(0), 0);
    EXPECT_GT(tokens(1), 0);
    EXPECT_EQ(tokens(2), window.n_trained() * model.hparams().n_expert_used);
  }
}

// To PEFT and back the same effect, under the modules' names in Hugging Face models.
TEST_F(Deepseek2, AdaptersHaveTheirPlaceInPeft) {
  for (const char* kind : {"deepseek2", "deepseek2_joint_kv_b", "deepseek2_v3"}) {
    const Model model = tiny_model(dir_, kind, awkward_sizes(DType::F16));
    const AdapterSet adapter = random_adapter(model, "all", 2, 5);
    write_peft(dir_.file("p"), adapter, model, PeftExperts::Modules);
    const std::string bytes = read_file(dir_.file("p/adapter_model.safetensors"), size_t{1} << 30);
    const bool v3 = model.hparams().q_lora_rank > 0, joint = !model.hparams().kv_b_by_head;
    const auto named = [&](const std::string& module) {
      return bytes.find("base_model.model.model.layers." + module + ".lora_A.weight") != std::string::npos;
    };
    EXPECT_EQ(named("0.self_attn.q_proj"), !v3);
    EXPECT_EQ(named("0.self_attn.q_a_proj"), v3);
    EXPECT_EQ(named("0.self_attn.q_b_proj"), v3);
    EXPECT_EQ(named("1.self_attn.kv_b_proj"), joint);
    EXPECT_TRUE(named("1.self_attn.kv_a_proj_with_mqa"));
    EXPECT_TRUE(named("2.self_attn.o_proj"));
    EXPECT_TRUE(named("0.mlp.gate_proj"));
    EXPECT_FALSE(named("1.mlp.gate_proj"));
    EXPECT_TRUE(named("1.mlp.shared_experts.down_proj"));
    EXPECT_TRUE(named("2.mlp.experts.6.up_proj"));
    const AdapterSet back = AdapterSet::load(dir_.file("p"), model, 1.f);
    const Window window = random_window(model, {9}, 1, 3);
    EXPECT_EQ(logits(model, window.tokens, Precision::F32, {&back}),
              logits(model, window.tokens, Precision::F32, {&adapter}));
  }
}

}  // namespace
}  // namespace tandem
