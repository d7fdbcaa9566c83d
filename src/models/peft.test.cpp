#include "models/peft.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "base/half.h"
#include "base/rng.h"
#include "tests/support/tiny_models.h"

namespace tandem {
namespace {

using nlohmann::json;

std::string slurp(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// Heads of values narrower than those of queries, and as many ranks as roles.
SynthSettings sizes() {
  SynthSettings s = awkward_sizes(DType::F16);
  s.n_layer = 2;
  s.d_head_v = 24;
  return s;
}

// Whether PEFT has a place for adapters of a weight.
bool has_place(const Model& model, const Weight& w) {
  for (const LayerWeightSpec& spec : model.arch().layer_weights) {
    if (&(model.layer(w.layer).*spec.slot) == &w) return !*spec.hf.refusal;
  }
  return false;
}

// A and B random, with a rank of its own for each weight that has a place in PEFT.
AdapterSet uneven_adapter(const Model& model, float alpha) {
  std::vector<AdapterPair> pairs;
  int64_t i = 0;
  for (const Weight* w : model.adaptable()) {
    if (!has_place(model, *w)) continue;
    AdapterPair p;
    p.weight = w;
    // Gate and up share a parameter in the fused layout: what is exact there is equal ranks.
    p.rank = std::string_view(w->role).starts_with("ffn_") ? 2 + w->layer : 1 + i % 5;
    p.scale = alpha / static_cast<float>(p.rank);
    p.a_shape = Shape(w->ne[0], p.rank, w->ne[2]);
    p.b_shape = Shape(p.rank, w->ne[1], w->ne[2]);
    pairs.push_back(p);
    ++i;
  }
  AdapterSet set = AdapterSet::allocate(std::move(pairs), alpha);
  Rng rng(7);
  for (float& x : set.values()) x = static_cast<float>(rng.next_normal());
  return set;
}

class Peft : public testing::Test {
 protected:
  Peft() : model_(tiny_model(dir_, "qwen3moe", sizes())) {}

  // A tensor of the hand-made adapters below.
  struct Tensor {
    std::string name;
    std::vector<int64_t> shape;
    std::vector<float> values;
  };
  static Tensor tensor(const std::string& module, const char* half, std::vector<int64_t> shape,
                       uint64_t seed = 1) {
    Tensor t{"base_model.model.model." + module + ".lora_" + half + ".weight", std::move(shape), {}};
    int64_t n = 1;
    for (int64_t d : t.shape) n *= d;
    Rng rng(random_bits({seed, key_of(t.name)}));
    for (int64_t i = 0; i < n; ++i) t.values.push_back(static_cast<float>(rng.next_normal()));
    return t;
  }
  // attn_q of layer 0: {96} -> {160}.
  static std::vector<Tensor> q_pair(int64_t rank = 4) {
    return {tensor("layers.0.self_attn.q_proj", "A", {rank, 96}),
            tensor("layers.0.self_attn.q_proj", "B", {160, rank})};
  }
  static json config(int64_t rank = 4) {
    return {
        {"peft_type", "LORA"}, {"r", rank}, {"lora_alpha", 16}, {"target_modules", json::array({"q_proj"})}};
  }
  AdapterSet parse(const json& settings, const std::vector<Tensor>& tensors,
                   SafeType type = SafeType::F32) const {
    SafetensorsWriter writer;
    std::vector<std::vector<std::byte>> kept;
    for (const Tensor& t : tensors) {
      kept.emplace_back();
      for (float x : t.values) {
        const uint16_t half = type == SafeType::F16 ? f32_to_f16(x) : f32_to_bf16(x);
        const auto bytes =
            type == SafeType::F32 ? std::as_bytes(std::span(&x, 1)) : std::as_bytes(std::span(&half, 1));
        kept.back().insert(kept.back().end(), bytes.begin(), bytes.end());
      }
    }
    for (size_t i = 0; i < tensors.size(); ++i)
      writer.add_tensor(tensors[i].name, type, tensors[i].shape, kept[i]);
    const std::vector<std::byte> bytes = writer.to_bytes();
    return parse_peft(settings.dump(), SafetensorsFile::parse(bytes, "here/t"), model_, 1.f, "here");
  }
  void refused(const json& settings, const std::vector<Tensor>& tensors,
               const std::vector<std::string>& parts) const {
    try {
      parse(settings, tensors);
      ADD_FAILURE() << "taken, but wanted: " << parts[0];
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::BadData) << e.what();
      for (const std::string& part : parts)
        EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << part << "\n" << e.what();
    }
  }
  const Weight& q(int64_t il = 0) const { return model_.layer(il).attn_q; }

  TempDir dir_;
  Model model_;
};

// scale B A of one element.
double delta(const AdapterSet& set, const Weight& w, int64_t e, int64_t o, int64_t i) {
  const AdapterPair& p = *set.find(w);
  double sum = 0;
  for (int64_t k = 0; k < p.rank; ++k) {
    sum += static_cast<double>(set.b(p)[(e * w.ne[1] + o) * p.rank + k]) *
           set.a(p)[(e * p.rank + k) * w.ne[0] + i];
  }
  return p.scale * sum;
}

TEST_F(Peft, EveryAdaptableWeightHasAPlace) {
  for (const ArchDef* arch : all_archs()) {
    for (const LayerWeightSpec& spec : arch->layer_weights) {
      EXPECT_EQ(*spec.role != 0, *spec.hf.module != 0 || *spec.hf.refusal != 0)
          << arch->name << " " << spec.name;
      EXPECT_FALSE(*spec.hf.module && *spec.hf.refusal) << arch->name << " " << spec.name;
      if (*spec.hf.refusal) continue;
      const bool is_stack = std::string_view(spec.hf.module).find("{}") != std::string_view::npos;
      EXPECT_EQ(is_stack, *spec.hf.fused != 0) << arch->name << " " << spec.name;
      EXPECT_LT(spec.hf.part, spec.hf.n_parts);
    }
  }
}

// GGUF -> PEFT -> GGUF gives the same bytes, in either layout of experts.
TEST_F(Peft, RoundTripsAreExact) {
  for (const ArchDef* a : all_archs()) {
    const char* arch = a->name;
    const Model model = tiny_model(dir_, arch, sizes());
    const AdapterSet set = uneven_adapter(model, 22.62741661071777f);
    write_adapter(dir_.file("one.gguf"), set, model, "x");
    for (const PeftExperts experts : {PeftExperts::Modules, PeftExperts::Fused}) {
      const std::string directory = dir_.file("peft");
      write_peft(directory, AdapterSet::load(dir_.file("one.gguf"), model, 1.f), model, experts);
      const AdapterSet back = AdapterSet::load(directory, model, 1.f);
      EXPECT_EQ(back.base_hash(), model.base_hash());
      write_adapter(dir_.file("two.gguf"), back, model, "x");
      EXPECT_EQ(slurp(dir_.file("one.gguf")), slurp(dir_.file("two.gguf"))) << arch;
      // The files in it name it too.
      EXPECT_EQ(AdapterSet::load(directory + "/adapter_config.json", model, 1.f).values().size(),
                set.values().size());
      EXPECT_EQ(AdapterSet::load(directory + "/adapter_model.safetensors", model, 1.f).values().size(),
                set.values().size());
    }
  }
}

TEST_F(Peft, ExpertsInAnOrderNotKnownHereAreRefused) {
  const Model model = tiny_model(dir_, "gpt-oss", sizes());
  const std::string directory = dir_.file("refused");
  for (const PeftExperts experts : {PeftExperts::Modules, PeftExperts::Fused}) {
    try {
      write_peft(directory, random_adapter(model, "attention,experts", 2, 1), model, experts);
      ADD_FAILURE() << "written";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::Unsupported);
      EXPECT_NE(
          std::string(e.what()).find("blk.0.ffn_gate_exps.weight: experts of gpt-oss are not exchanged"),
          std::string::npos)
          << e.what();
    }
    EXPECT_FALSE(std::filesystem::exists(directory));
  }
  // A pair that fits the parameter: A {experts * rank, width}, B {2 * width of an expert, rank * experts}.
  SafetensorsWriter writer;
  const std::vector<float> a(7 * 96, 1.f), b(2 * 64 * 7, 1.f);
  const std::string name = "base_model.model.model.layers.0.mlp.experts.lora_";
  writer.add_tensor(name + "A.weight", SafeType::F32, {7, 96}, std::as_bytes(std::span(a)));
  writer.add_tensor(name + "B.weight", SafeType::F32, {2 * 64, 7}, std::as_bytes(std::span(b)));
  const std::vector<std::byte> bytes = writer.to_bytes();
  try {
    parse_peft(config(1).dump(), SafetensorsFile::parse(bytes, "here/t"), model, 1.f, "here");
    ADD_FAILURE() << "read";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::BadData);
    EXPECT_NE(std::string(e.what()).find("experts of gpt-oss are not exchanged with PEFT"), std::string::npos)
        << e.what();
  }
}

TEST_F(Peft, UnequalRanksOfOneParameterKeepTheirEffect) {
  AdapterSet gate = random_adapter(model_, "ffn_gate_exps", 3, 1),
             up = random_adapter(model_, "ffn_up_exps", 2, 2);
  std::vector<AdapterPair> pairs;
  for (AdapterSet* s : {&gate, &up}) {
    for (AdapterPair p : s->pairs()) {
      p.scale = 6.f / static_cast<float>(p.rank);
      pairs.push_back(p);
    }
  }
  const AdapterSet both = AdapterSet::allocate(pairs, 6.f);
  for (const AdapterPair& p : both.pairs()) {
    const AdapterSet& from = gate.find(*p.weight) ? gate : up;
    const AdapterPair& q = *from.find(*p.weight);
    std::copy_n(from.a(q), q.a_shape.elements(), both.a(p));
    std::copy_n(from.b(q), q.b_shape.elements(), both.b(p));
  }
  write_peft(dir_.file("p"), both, model_, PeftExperts::Fused);
  const AdapterSet back = read_peft(dir_.file("p"), model_, 1.f);
  ASSERT_EQ(back.pairs().size(), both.pairs().size());
  for (const AdapterPair& p : both.pairs()) {
    EXPECT_EQ(back.find(*p.weight)->rank, p.rank);
    for (int64_t i = 0; i < 20; ++i) {
      const double want = delta(both, *p.weight, i % 7, i, 3 * i),
                   got = delta(back, *p.weight, i % 7, i, 3 * i);
      EXPECT_NEAR(got, want, 1e-6 * std::abs(want) + 1e-7) << p.weight->name;
    }
  }
}

// A GGUF without alpha acts with scale 1 whatever its ranks are; PEFT has no such thing, so B says it.
TEST_F(Peft, NoAlphaIsScaleOne) {
  std::vector<AdapterPair> pairs = uneven_adapter(model_, 1.f).pairs();
  for (AdapterPair& p : pairs) p.scale = 1.f;
  const AdapterSet set = AdapterSet::allocate(pairs, 0.f);
  Rng rng(3);
  for (float& x : set.values()) x = static_cast<float>(rng.next_normal());
  for (const PeftExperts experts : {PeftExperts::Modules, PeftExperts::Fused}) {
    write_peft(dir_.file("p"), set, model_, experts);
    const AdapterSet back = read_peft(dir_.file("p"), model_, 1.f);
    EXPECT_GT(back.alpha(), 0.f);
    for (const AdapterPair& p : set.pairs()) {
      const int64_t e = p.weight->ne[2] - 1;
      EXPECT_NEAR(delta(back, *p.weight, e, 3, 5), delta(set, *p.weight, e, 3, 5), 1e-5) << p.weight->name;
    }
  }
}

TEST_F(Peft, TheConfigurationNamesWhatIsThere) {
  write_peft(dir_.file("p"), uneven_adapter(model_, 16.f), model_, PeftExperts::Modules);
  const json c = json::parse(slurp(dir_.file("p/adapter_config.json")));
  EXPECT_EQ(c.at("peft_type"), "LORA");
  EXPECT_EQ(c.at("task_type"), "CAUSAL_LM");
  EXPECT_EQ(c.at("lora_alpha"), 16);
  EXPECT_EQ(c.at("bias"), "none");
  EXPECT_EQ(c.at("use_rslora"), false);
  EXPECT_EQ(c.at("base_model_name_or_path"), "random qwen3moe");
  EXPECT_TRUE(c.at("alpha_pattern").empty());
  EXPECT_FALSE(c.contains("target_parameters"));
  for (const char* key : {"lora_dropout", "fan_in_fan_out", "inference_mode", "use_dora", "modules_to_save"})
    EXPECT_TRUE(c.contains(key)) << key;
  const std::vector<std::string> modules = c.at("target_modules");
  EXPECT_NE(std::find(modules.begin(), modules.end(), "self_attn.q_proj"), modules.end());
  EXPECT_NE(std::find(modules.begin(), modules.end(), "mlp.experts.6.down_proj"), modules.end());
  EXPECT_EQ(modules.size(), 4u + 1 + 3 * 7);
  EXPECT_EQ(std::filesystem::directory_iterator(dir_.file("p"))->is_regular_file(), true);

  write_peft(dir_.file("f"), random_adapter(model_, "experts", 2, 1), model_, PeftExperts::Fused);
  const json f = json::parse(slurp(dir_.file("f/adapter_config.json")));
  EXPECT_EQ(f.at("target_parameters"), json::array({"mlp.experts.down_proj", "mlp.experts.gate_up_proj"}));
  EXPECT_EQ(f.at("r").get<int>() + f.at("rank_pattern").begin().value().get<int>(), 2 + 4);
  const SafetensorsFile t = SafetensorsFile::open(dir_.file("f/adapter_model.safetensors"));
  // down_proj is wrapped last, so it is outside; its parameter is 64 -> 96, gate_up_proj 96 -> 128, 7
  // experts.
  const std::string base = "base_model.model.model.layers.1.mlp.experts.";
  EXPECT_EQ(t.find(base + "lora_A.weight")->shape, (std::vector<int64_t>{7 * 2, 64}));
  EXPECT_EQ(t.find(base + "lora_B.weight")->shape, (std::vector<int64_t>{96, 7 * 2}));
  EXPECT_EQ(t.find(base + "base_layer.lora_A.weight")->shape, (std::vector<int64_t>{7 * 4, 96}));
  EXPECT_EQ(t.find(base + "base_layer.lora_B.weight")->shape, (std::vector<int64_t>{128, 7 * 4}));
}

// Only one layer of a role: the full path, or the suffix would match the other layer too.
TEST_F(Peft, APartOfTheLayersIsNamedInFull) {
  std::vector<AdapterPair> pairs = uneven_adapter(model_, 8.f).pairs();
  std::erase_if(pairs, [&](const AdapterPair& p) { return p.weight != &q(1); });
  write_peft(dir_.file("p"), AdapterSet::allocate(pairs, 8.f), model_, PeftExperts::Modules);
  const json c = json::parse(slurp(dir_.file("p/adapter_config.json")));
  EXPECT_EQ(c.at("target_modules"), json::array({"model.layers.1.self_attn.q_proj"}));
}

TEST_F(Peft, NumbersAndScale) {
  const std::vector<Tensor> pair = q_pair();
  const AdapterSet set = parse(config(), pair);
  EXPECT_EQ(set.alpha(), 16.f);
  ASSERT_TRUE(set.find(q()));
  const AdapterPair& p = *set.find(q());
  EXPECT_EQ(p.rank, 4);
  EXPECT_EQ(p.scale, 4.f);
  EXPECT_TRUE(std::equal(pair[0].values.begin(), pair[0].values.end(), set.a(p)));
  EXPECT_TRUE(std::equal(pair[1].values.begin(), pair[1].values.end(), set.b(p)));
  EXPECT_TRUE(set.base_hash().empty());
  // The other prefix, and the defaults of a bare configuration: alpha 8.
  std::vector<Tensor> other = pair;
  for (Tensor& t : other) t.name.replace(17, 5, "model.language_model");
  EXPECT_EQ(parse({{"peft_type", "LORA"}, {"target_modules", ".*q_proj"}}, other).find(q())->scale, 2.f);
}

TEST_F(Peft, HalfPrecisionIsRead) {
  for (const SafeType type : {SafeType::F16, SafeType::BF16}) {
    const std::vector<Tensor> pair = q_pair();
    const AdapterSet set = parse(config(), pair, type);
    const float x = pair[1].values[5];
    EXPECT_EQ(set.b(*set.find(q()))[5],
              type == SafeType::F16 ? f16_to_f32(f32_to_f16(x)) : bf16_to_f32(f32_to_bf16(x)));
  }
}

TEST_F(Peft, ScalesThatOneAlphaCannotSayAreFolded) {
  std::vector<Tensor> tensors = q_pair(4);
  tensors.push_back(tensor("layers.1.self_attn.q_proj", "A", {2, 96}));
  tensors.push_back(tensor("layers.1.self_attn.q_proj", "B", {160, 2}));
  json c = config();
  c["rank_pattern"] = {{"layers.1.self_attn.q_proj", 2}};
  const auto raw = [&](size_t i, int64_t o, int64_t in) {  // B A of pair i
    double sum = 0;
    const int64_t r = tensors[2 * i].shape[0];
    for (int64_t k = 0; k < r; ++k)
      sum += static_cast<double>(tensors[2 * i + 1].values[static_cast<size_t>(o * r + k)]) *
             tensors[2 * i].values[static_cast<size_t>(k * 96 + in)];
    return sum;
  };
  const auto expect = [&](const AdapterSet& set, double scale0, double scale1) {
    EXPECT_NEAR(delta(set, q(0), 0, 7, 9), scale0 * raw(0, 7, 9), 1e-5);
    EXPECT_NEAR(delta(set, q(1), 0, 7, 9), scale1 * raw(1, 7, 9), 1e-5);
  };
  expect(parse(c, tensors), 16.0 / 4, 16.0 / 2);
  c["use_rslora"] = true;
  expect(parse(c, tensors), 16 / 2.0, 16 / std::sqrt(2.0));
  c["alpha_pattern"] = {{R"(^model\.layers\.1\..*q_proj)", 5}};
  expect(parse(c, tensors), 16 / 2.0, 5 / std::sqrt(2.0));
  c["use_rslora"] = false;
  expect(parse(c, tensors), 16.0 / 4, 5.0 / 2);
}

// Experts that are missing are zero, those of lower rank padded.
TEST_F(Peft, ExpertModulesAreStacked) {
  const std::vector<Tensor> tensors{tensor("layers.0.mlp.experts.2.up_proj", "A", {3, 96}),
                                    tensor("layers.0.mlp.experts.2.up_proj", "B", {64, 3}),
                                    tensor("layers.0.mlp.experts.5.up_proj", "A", {1, 96}),
                                    tensor("layers.0.mlp.experts.5.up_proj", "B", {64, 1})};
  json c = config(3);
  c["rank_pattern"] = {{"experts.5.up_proj", 1}};
  const AdapterSet set = parse(c, tensors);
  const Weight& up = model_.layer(0).ffn_up_exps;
  ASSERT_EQ(set.pairs().size(), 1u);
  EXPECT_EQ(set.find(up)->rank, 3);
  EXPECT_NEAR(delta(set, up, 5, 7, 9), 16.0 * tensors[3].values[7] * tensors[2].values[9], 1e-5);
  double want = 0;
  for (size_t k = 0; k < 3; ++k)
    want += static_cast<double>(tensors[1].values[7 * 3 + k]) * tensors[0].values[k * 96 + 9];
  EXPECT_NEAR(delta(set, up, 2, 7, 9), 16.0 / 3 * want, 1e-5);
  for (int64_t e : {0, 1, 3, 4, 6}) EXPECT_EQ(delta(set, up, e, 7, 9), 0.0);
}

// The parameter of all experts by its formula, as PEFT 0.19 and later write it, and as 0.18 did.
TEST_F(Peft, FusedExpertsEitherWayRound) {
  constexpr int64_t E = 7, r = 2, n_in = 96, n_ff = 64;
  for (const bool swapped : {false, true}) {
    const int64_t side_a = swapped ? 2 * n_ff : n_in, side_b = swapped ? n_in : 2 * n_ff;
    const std::vector<Tensor> tensors{tensor("layers.0.mlp.experts.base_layer", "A", {E * r, side_a}),
                                      tensor("layers.0.mlp.experts.base_layer", "B", {side_b, r * E}),
                                      tensor("layers.0.mlp.experts", "A", {E * r, swapped ? n_in : n_ff}),
                                      tensor("layers.0.mlp.experts", "B", {swapped ? n_ff : n_in, r * E})};
    json c = config(r);
    c["target_parameters"] = json::array({"mlp.experts.gate_up_proj", "mlp.experts.down_proj"});
    const AdapterSet set = parse(c, tensors);
    ASSERT_EQ(set.pairs().size(), 3u);
    // Of the expert's weight, output o and input i, in a parameter of so many inputs and outputs.
    const auto want = [&](size_t which, int64_t e, int64_t o, int64_t i) {
      const Tensor &a = tensors[2 * which], &b = tensors[2 * which + 1];
      double sum = 0;
      for (int64_t k = 0; k < r; ++k) {
        const auto row = static_cast<size_t>((e * r + k) * a.shape[1] + (swapped ? o : i)),
                   column = static_cast<size_t>((swapped ? i : o) * r * E + k * E + e);
        sum += static_cast<double>(a.values[row]) * b.values[column];
      }
      return 16.0 / r * sum;
    };
    const LayerWeights& w = model_.layer(0);
    for (int64_t e : {0, 4}) {
      EXPECT_NEAR(delta(set, w.ffn_gate_exps, e, 5, 11), want(0, e, 5, 11), 1e-4);
      EXPECT_NEAR(delta(set, w.ffn_up_exps, e, 5, 11), want(0, e, n_ff + 5, 11), 1e-4);
      EXPECT_NEAR(delta(set, w.ffn_down_exps, e, 70, 11), want(1, e, 70, 11), 1e-4);
    }
  }
}

// 2 * 48 = 96: gate_up_proj is as wide as it is high, and what else is known decides.
TEST_F(Peft, ASquareParameterFollowsTheFile) {
  SynthSettings s = sizes();
  s.n_ff_exp = 48;
  TempDir dir;
  const Model square = tiny_model(dir, "qwen3moe", s);
  const auto read = [&](json c, bool with_down, bool down_swapped) {
    std::vector<Tensor> tensors{tensor("layers.0.mlp.experts.base_layer", "A", {7, 96}),
                                tensor("layers.0.mlp.experts.base_layer", "B", {96, 7})};
    if (with_down) {
      tensors.push_back(tensor("layers.0.mlp.experts", "A", {7, down_swapped ? 96 : 48}));
      tensors.push_back(tensor("layers.0.mlp.experts", "B", {down_swapped ? 48 : 96, 7}));
    }
    SafetensorsWriter writer;
    for (const Tensor& t : tensors)
      writer.add_tensor(t.name, SafeType::F32, t.shape, std::as_bytes(std::span(t.values)));
    const std::vector<std::byte> bytes = writer.to_bytes();
    const AdapterSet set = parse_peft(c.dump(), SafetensorsFile::parse(bytes, "t"), square, 1.f, "t");
    // A of the first expert is the file's A, or comes from its B.
    return set.a(*set.find(square.layer(0).ffn_gate_exps))[0] == tensors[0].values[0] ? "A" : "B";
  };
  json old = config(1), recent = config(1);
  old["peft_version"] = "0.18.1";
  recent["peft_version"] = "0.20.0";
  EXPECT_STREQ(read(config(1), false, false), "A");
  EXPECT_STREQ(read(recent, false, false), "A");
  EXPECT_STREQ(read(old, false, false), "B");
  EXPECT_STREQ(read(old, true, false), "A");
  EXPECT_STREQ(read(recent, true, true), "B");
}

TEST_F(Peft, EveryOffenceOfTheConfigurationIsToldAtOnce) {
  json c = config();
  c["peft_type"] = "LOHA";
  c["bias"] = "all";
  c["lora_bias"] = true;
  c["use_dora"] = true;
  c["fan_in_fan_out"] = true;
  c["modules_to_save"] = json::array({"lm_head"});
  c["trainable_token_indices"] = json::array({1, 2});
  c["layer_replication"] = json::array({json::array({0, 1})});
  c["alora_invocation_tokens"] = json::array({1});
  c["use_qalora"] = true;
  c["lora_alpha"] = 0;
  c["alpha_pattern"] = {{"q_proj", "much"}, {"(", 1}};
  c["rank_pattern"] = 7;
  refused(c, q_pair(),
          {"peft_type is \"LOHA\"", "bias is \"all\"", "lora_bias is true", "use_dora is true",
           "fan_in_fan_out is true", "modules_to_save is [\"lm_head\"]", "trainable_token_indices is [1,2]",
           "layer_replication is", "alora_invocation_tokens", "use_qalora", "lora_alpha is 0",
           "alpha_pattern 'q_proj' is \"much\"", "alpha_pattern '(' is no regular expression",
           "rank_pattern is 7, an object"});
  json missing = config();
  missing.erase("peft_type");
  refused(missing, q_pair(), {"peft_type is missing"});
  for (const json& alpha : {json(-1), json("16"), json(1e60), json(nullptr)}) {
    json a = config();
    a["lora_alpha"] = alpha;
    if (alpha.is_null()) {
      EXPECT_NO_THROW(parse(a, q_pair()));  // as if it were not there
    } else {
      refused(a, q_pair(), {"lora_alpha is"});
    }
  }
  json zero = config();
  zero["r"] = 0;
  refused(zero, q_pair(), {"r is 0"});
  EXPECT_THROW(parse(json::array(), q_pair()), Error);
}

TEST_F(Peft, EveryOffenceOfTheTensorsIsToldAtOnce) {
  std::vector<Tensor> t = q_pair();
  const std::string base = "base_model.model.model.layers.0.";
  t.push_back(tensor("layers.0.self_attn.k_proj", "A", {4, 96}));  // no B
  t.push_back(tensor("layers.0.self_attn.v_proj", "B", {48, 4}));  // no A
  t.push_back(tensor("layers.0.self_attn.o_proj", "A", {4, 95}));  // shape
  t.push_back(tensor("layers.0.self_attn.o_proj", "B", {96, 4}));
  t.push_back(tensor("layers.9.self_attn.q_proj", "A", {4, 96}));  // layer
  t.push_back(tensor("layers.9.self_attn.q_proj", "B", {160, 4}));
  t.push_back(tensor("layers.0.mlp.experts.7.up_proj", "A", {4, 96}));  // expert
  t.push_back(tensor("layers.0.mlp.experts.7.up_proj", "B", {64, 4}));
  t.push_back(tensor("layers.0.mlp.up_proj", "A", {4, 96}));  // another architecture
  t.push_back(tensor("layers.0.mlp.up_proj", "B", {64, 4}));
  t.push_back(tensor("layers.0.mlp.experts", "A", {28, 50}));  // fits no parameter
  t.push_back(tensor("layers.0.mlp.experts", "B", {64, 28}));
  t.push_back(tensor("embed_tokens", "A", {4, 267}));
  t.push_back(tensor("embed_tokens", "B", {96, 4}));
  t.push_back({"base_model.model.lm_head.lora_A.weight", {1, 96}, std::vector<float>(96)});
  t.push_back({"base_model.model.lm_head.lora_B.weight", {2, 1}, std::vector<float>(2)});
  t.push_back({base + "self_attn.q_proj.lora_magnitude_vector", {1}, {1}});
  t.push_back({base + "self_attn.q_proj.lora_B.bias", {1}, {1}});
  t.push_back({base + "self_attn.q_proj.lora_embedding_A", {1}, {1}});
  t.push_back({base + "mlp.gate.weight", {1}, {1}});
  t.push_back({base + "what.is.this", {1}, {1}});
  t.push_back({"model.layers.0.self_attn.q_proj.lora_A.weight", {1}, {1}});
  t.push_back(tensor("layers.1.self_attn.q_proj", "A", {2, 96}));  // r is 4
  t.push_back(tensor("layers.1.self_attn.q_proj", "B", {160, 2}));
  t.push_back(tensor("layers.1.self_attn.k_proj", "A", {4, 96}));  // not finite
  t.push_back(tensor("layers.1.self_attn.k_proj", "B", {80, 4}));
  t.back().values[3] = std::numeric_limits<float>::quiet_NaN();
  t.push_back(tensor("layers.1.self_attn.v_proj", "A", {4, 96, 1}));  // three dimensions
  t.push_back(tensor("layers.1.self_attn.v_proj", "B", {48, 4}));
  refused(config(), t,
          {"self_attn.k_proj has no lora_B half", "self_attn.v_proj has no lora_A half",
           "o_proj: lora_A is [4, 95] and lora_B [96, 4]; blk.0.attn_output.weight needs [r, 96] and [96, r]",
           "model.layers.9.self_attn.q_proj: the model has layers 0 to 1 only",
           "experts.7.up_proj: the model has experts 0 to 6 only",
           "model.layers.0.mlp.up_proj is no module of a qwen3moe model",
           "which fit none of mlp.experts.gate_up_proj (7 experts, 96 to 128)",
           "model.embed_tokens (token_embd.weight) takes no adapter",
           "lm_head (output.weight) takes no adapter", "lora_magnitude_vector belongs to DoRA",
           "lora_B.bias is a bias", "lora_embedding_A adapts the embedding",
           "mlp.gate.weight is a whole weight", "what.is.this is neither", "is no tensor of a PEFT LoRA",
           "layers.1.self_attn.q_proj has rank 2, adapter_config.json says 4",
           "k_proj: a value of lora_B is not finite", "lora_A has shape [4, 96, 1], two dimensions"});
}

TEST_F(Peft, OtherBadTensors) {
  refused(config(), {}, {"there is no tensor in it"});
  std::vector<Tensor> twice = q_pair();
  for (const Tensor& t : q_pair()) {
    twice.push_back(t);
    twice.back().name.replace(17, 5, "model.language_model");
  }
  refused(config(), twice, {"blk.0.attn_q.weight has another adapter in this file already"});
  std::vector<Tensor> both{tensor("layers.0.mlp.experts.1.down_proj", "A", {4, 64}),
                           tensor("layers.0.mlp.experts.1.down_proj", "B", {96, 4}),
                           tensor("layers.0.mlp.experts", "A", {28, 64}),
                           tensor("layers.0.mlp.experts", "B", {96, 28})};
  refused(config(), both, {"has another adapter"});
  refused(config(300), q_pair(300), {"rank 300 is above 256"});
  std::vector<Tensor> empty{tensor("layers.0.self_attn.q_proj", "A", {0, 96}),
                            tensor("layers.0.self_attn.q_proj", "B", {160, 0})};
  refused(config(), empty, {"needs [r, 96] and [160, r]"});
  std::vector<Tensor> mixed{
      tensor("layers.0.mlp.experts", "A", {28, 64}), tensor("layers.0.mlp.experts", "B", {96, 28}),
      tensor("layers.1.mlp.experts", "A", {28, 96}), tensor("layers.1.mlp.experts", "B", {64, 28})};
  refused(config(), mixed, {"swapped"});
  json ambiguous = config();
  ambiguous["alpha_pattern"] = {{"q_proj", 3}, {"self_attn.q_proj", 4}};
  refused(ambiguous, q_pair(), {"disagree about model.layers.0.self_attn.q_proj"});
  SafetensorsWriter writer;
  const std::vector<int32_t> ints(4 * 96);
  writer.add_tensor(q_pair()[0].name, SafeType::I32, {4, 96}, std::as_bytes(std::span(ints)));
  const std::vector<Tensor> pair = q_pair();
  writer.add_tensor(pair[1].name, SafeType::F32, {160, 4}, std::as_bytes(std::span(pair[1].values)));
  const std::vector<std::byte> bytes = writer.to_bytes();
  try {
    parse_peft(config().dump(), SafetensorsFile::parse(bytes, "t"), model_, 1.f, "t");
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("lora_A is I32; F32, F16 and BF16 are read"), std::string::npos)
        << e.what();
  }
  // A pattern that a module takes for ever to match with.
  json slow = config();
  slow["alpha_pattern"] = {{"(([a-z_.0-9]+)*)*[#!]", 3}};
  EXPECT_THROW(parse(slow, q_pair()), Error);
  // A value that only the folded scale takes beyond f32.
  std::vector<Tensor> large = q_pair();
  large.push_back(tensor("layers.1.self_attn.q_proj", "A", {4, 96}));
  large.push_back(tensor("layers.1.self_attn.q_proj", "B", {160, 4}));
  large.back().values[0] = 1e38f;
  json folded = config();
  folded["alpha_pattern"] = {{"layers.1.self_attn.q_proj", 16000}};
  refused(folded, large, {"beyond f32"});
}

TEST_F(Peft, DirectoriesThatAreNone) {
  const auto refused_at = [&](const std::string& name, Code code, const std::string& part) {
    try {
      AdapterSet::load(dir_.file(name), model_, 1.f);
      ADD_FAILURE() << part;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), code) << e.what();
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    }
  };
  std::filesystem::create_directory(dir_.file("d"));
  refused_at("d", Code::BadData, "there is no adapter_config.json");
  std::ofstream(dir_.file("d/adapter_config.json")) << config().dump();
  refused_at("d", Code::BadData, "there is no adapter_model.safetensors");
  std::ofstream(dir_.file("d/adapter_model.bin")) << "PK";
  refused_at("d", Code::Unsupported, "is a pickle");
  std::ofstream(dir_.file("d/adapter_model.safetensors")) << "short";
  refused_at("d", Code::BadData, "too few");
}

TEST_F(Peft, NothingElseIsReplaced) {
  const AdapterSet set = random_adapter(model_, "attn_q", 2, 1);
  const std::string place = dir_.file("p");
  const auto refused_here = [&](const std::string& part) {
    try {
      write_peft(place, set, model_, PeftExperts::Modules);
      ADD_FAILURE() << part;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    }
  };
  std::ofstream(place) << "a file";
  refused_here("is no directory");
  EXPECT_EQ(slurp(place), "a file");
  std::filesystem::remove(place);
  std::filesystem::create_directory(place);
  std::ofstream(place + "/notes.txt") << "mine";
  refused_here("holds notes.txt");
  EXPECT_EQ(slurp(place + "/notes.txt"), "mine");
  std::filesystem::remove(place + "/notes.txt");
  write_peft(place, set, model_, PeftExperts::Modules);
  const std::string before = slurp(place + "/adapter_model.safetensors");
  // What its check refuses leaves the old one, and nothing beside it.
  EXPECT_THROW(write_peft(place, random_adapter(model_, "attn_q", 2, 9), model_, PeftExperts::Modules,
                          [](const std::string&) { fail(Code::Internal, "no"); }),
               Error);
  EXPECT_EQ(slurp(place + "/adapter_model.safetensors"), before);
  write_peft(place + "/", random_adapter(model_, "attn_q", 2, 9), model_, PeftExperts::Modules);
  EXPECT_NE(slurp(place + "/adapter_model.safetensors"), before);
  int n_entries = 0;
  for (const auto& e : std::filesystem::directory_iterator(dir_.path())) n_entries += e.is_directory();
  EXPECT_EQ(n_entries, 1);
}

}  // namespace
}  // namespace tandem
