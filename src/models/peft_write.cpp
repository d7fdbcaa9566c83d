#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>

#include "models/peft.h"

namespace tandem {
namespace {

using nlohmann::json;

const std::string kFiles[] = {kPeftConfig, kPeftTensors};

// The layout of fused experts is that of this version; the one before had the sides of A and B swapped.
constexpr const char* kLayoutVersion = "0.19.1";

// What a module (or parameter) is called in the configuration, and its rank.
struct Named {
  std::string place;  // below the layer
  int64_t layer;
  int64_t rank;
  bool is_parameter;
};

std::string full_name(const Named& n) { return fmt::format("model.layers.{}.{}", n.layer, n.place); }

// alpha of a pair, so that it acts with alpha / rank.
double alpha_of(const AdapterSet& set, const AdapterPair& p) {
  return set.alpha() > 0 ? set.alpha() : static_cast<double>(p.rank);
}

std::string expert_module(const char* form, int64_t expert) {
  return fmt::format(fmt::runtime(form), expert);
}

class Writer {
 public:
  Writer(const AdapterSet& set, const Model& model, PeftExperts experts) : set_(set), model_(model) {
    TANDEM_CHECK(!set.pairs().empty());
    check_peft_places(set, model);
    alpha_ = alpha_of(set, set.pairs().front());
    tensors_.add_metadata("format", "pt");
    tensors_.add_metadata(kBaseHashKey, set.base_hash().empty() ? model.base_hash() : set.base_hash());
    const std::span<const LayerWeightSpec> specs = model.arch().layer_weights;
    for (int64_t il = 0; il < model.hparams().n_layer; ++il) {
      std::vector<std::string> fused;  // parameters of this layer, in schema order
      for (const LayerWeightSpec& spec : specs) {
        const AdapterPair* p = set.find(model.layer(il).*spec.slot);
        if (!p) continue;
        TANDEM_CHECK(p->scale == (set.alpha() > 0 ? set.alpha() / static_cast<float>(p->rank) : 1.f));
        if (*spec.hf.fused && experts == PeftExperts::Fused) {
          if (fused.empty() || fused.back() != spec.hf.fused) fused.emplace_back(spec.hf.fused);
        } else {
          add_modules(spec, il, *p);
        }
      }
      for (size_t i = 0; i < fused.size(); ++i) add_parameter(fused[i], il, fused.size() - 1 - i);
    }
  }

  void write(const std::string& directory) const {
    tensors_.write(directory + "/" + kPeftTensors);
    write_file_atomic(directory + "/" + kPeftConfig, std::string_view(config().dump(2) + "\n"));
  }

 private:
  void add_pair(const std::string& path, int64_t il, std::span<const float> a, std::span<const float> b,
                int64_t rows_a, int64_t columns_b) {
    const std::string name = fmt::format("base_model.model.model.layers.{}.{}", il, path);
    const auto n_in = static_cast<int64_t>(a.size()) / rows_a,
               n_out = static_cast<int64_t>(b.size()) / columns_b;
    tensors_.add_tensor(name + ".lora_A.weight", SafeType::F32, {rows_a, n_in}, std::as_bytes(a));
    tensors_.add_tensor(name + ".lora_B.weight", SafeType::F32, {n_out, columns_b}, std::as_bytes(b));
  }

  // One module, or one for each expert.  The numbers stand in the set as PEFT wants them.
  void add_modules(const LayerWeightSpec& spec, int64_t il, const AdapterPair& p) {
    const auto n_a = static_cast<size_t>(p.a_shape[0] * p.rank),
               n_b = static_cast<size_t>(p.rank * p.b_shape[1]);
    const double factor = alpha_of(set_, p) / alpha_;
    const bool is_stack = std::string_view(spec.hf.module).find("{}") != std::string_view::npos;
    for (int64_t e = 0; e < p.a_shape[2]; ++e) {
      const std::string place = is_stack ? expert_module(spec.hf.module, e) : spec.hf.module;
      std::span<const float> b(set_.b(p) + static_cast<size_t>(e) * n_b, n_b);
      if (factor != 1) {
        owned_.emplace_back(b.begin(), b.end());
        for (float& x : owned_.back()) x = static_cast<float>(x * factor);
        b = owned_.back();
      }
      add_pair(place, il, {set_.a(p) + static_cast<size_t>(e) * n_a, n_a}, b, p.rank, p.rank);
      named_.push_back({place, il, p.rank, false});
    }
  }

  // The pairs of one parameter's weights, block by block: A of all of them over each other, B of each in its
  // own rows and ranks.  A row of A is (expert, rank), a column of B (rank, expert).
  void add_parameter(const std::string& parameter, int64_t il, size_t n_nested) {
    int64_t rank = 0;
    const Weight* any = nullptr;
    int n_parts = 1;
    for (const LayerWeightSpec& spec : model_.arch().layer_weights) {
      if (parameter != spec.hf.fused || !(model_.layer(il).*spec.slot).present()) continue;
      any = &(model_.layer(il).*spec.slot);
      n_parts = spec.hf.n_parts;
      if (const AdapterPair* p = set_.find(*any)) rank += p->rank;
    }
    const int64_t n_in = any->ne[0], n_rows = any->ne[1], n_expert = any->ne[2];
    std::vector<float> a(static_cast<size_t>(n_expert * rank * n_in)),
        b(static_cast<size_t>(n_rows * n_parts * rank * n_expert));
    int64_t first = 0;
    for (const LayerWeightSpec& spec : model_.arch().layer_weights) {
      if (parameter != spec.hf.fused || !(model_.layer(il).*spec.slot).present()) continue;
      const AdapterPair* p = set_.find(model_.layer(il).*spec.slot);
      if (!p) continue;
      // The file's scale is alpha_ / rank for all of them.
      const double factor =
          alpha_of(set_, *p) * static_cast<double>(rank) / (alpha_ * static_cast<double>(p->rank));
      for (int64_t e = 0; e < n_expert; ++e) {
        const float *from_a = set_.a(*p) + e * p->rank * n_in, *from_b = set_.b(*p) + e * p->rank * n_rows;
        std::copy_n(from_a, p->rank * n_in, a.data() + (e * rank + first) * n_in);
        for (int64_t o = 0; o < n_rows; ++o) {
          float* to = b.data() + (spec.hf.part * n_rows + o) * rank * n_expert + e;
          for (int64_t k = 0; k < p->rank; ++k)
            to[(first + k) * n_expert] = static_cast<float>(from_b[o * p->rank + k] * factor);
        }
      }
      first += p->rank;
    }
    std::string path = parameter.substr(0, parameter.rfind('.'));
    for (size_t i = 0; i < n_nested; ++i) path += ".base_layer";
    owned_.push_back(std::move(a));
    const std::span<const float> a_kept = owned_.back();
    owned_.push_back(std::move(b));
    add_pair(path, il, a_kept, owned_.back(), rank * n_expert, rank * n_expert);
    named_.push_back({parameter, il, rank, true});
  }

  json config() const {
    std::map<int64_t, size_t> ranks;
    std::map<std::string, std::vector<const Named*>> places;
    for (const Named& n : named_) {
      ++ranks[n.rank];
      places[n.place].push_back(&n);
    }
    const int64_t rank = std::max_element(ranks.begin(), ranks.end(), [](const auto& x, const auto& y) {
                           return x.second < y.second;
                         })->first;
    json modules = json::array(), parameters = json::array(), rank_pattern = json::object();
    for (const auto& [place, all] : places) {
      // The end of a path stands for all layers.
      const bool everywhere = static_cast<int64_t>(all.size()) == model_.hparams().n_layer;
      const Named& first = *all[0];
      const bool one_rank =
          std::all_of(all.begin(), all.end(), [&](const Named* n) { return n->rank == first.rank; });
      json& targets = first.is_parameter ? parameters : modules;
      if (everywhere) targets.push_back(place);
      if (everywhere && one_rank && first.rank != rank) rank_pattern[place] = first.rank;
      for (const Named* n : all) {
        if (!everywhere) targets.push_back(full_name(*n));
        if (n->rank != rank && !(everywhere && one_rank)) rank_pattern[full_name(*n)] = n->rank;
      }
    }
    const bool whole = alpha_ == std::floor(alpha_) && alpha_ < 1e15;
    json out{{"peft_type", "LORA"},
             {"task_type", "CAUSAL_LM"},
             {"base_model_name_or_path", base_name()},
             {"inference_mode", true},
             {"r", rank},
             {"lora_alpha", whole ? json(static_cast<int64_t>(alpha_)) : json(alpha_)},
             {"lora_dropout", 0.0},
             {"bias", "none"},
             {"target_modules", modules},
             {"use_rslora", false},
             {"use_dora", false},
             {"fan_in_fan_out", false},
             {"modules_to_save", nullptr},
             {"rank_pattern", rank_pattern},
             {"alpha_pattern", json::object()}};
    if (!parameters.empty()) {
      out["target_parameters"] = parameters;
      out["peft_version"] = kLayoutVersion;
    }
    return out;
  }

  std::string base_name() const {
    const GgufFile& file = model_.file();
    for (const char* key : {"general.source.huggingface.repository", "general.name", "general.basename"}) {
      const GgufValue* value = file.value(key);
      if (value && value->type == GgufType::Str && !value->is_array && !file.get_str(key).empty())
        return std::string(file.get_str(key));
    }
    return file.path();
  }

  const AdapterSet& set_;
  const Model& model_;
  double alpha_ = 0;  // lora_alpha
  SafetensorsWriter tensors_;
  std::deque<std::vector<float>> owned_;  // numbers that stand otherwise in the set
  std::vector<Named> named_;
};

}  // namespace

void write_peft(const std::string& path, const AdapterSet& set, const Model& model, PeftExperts experts,
                const std::function<void(const std::string&)>& verify) {
  const Writer writer(set, model, experts);
  write_directory_atomic(path, kFiles, [&](const std::string& temporary) {
    writer.write(temporary);
    if (verify) verify(temporary);
  });
}

void check_peft_places(const AdapterSet& set, const Model& model) {
  for (const LayerWeights& layer : model.layers()) {
    for (const LayerWeightSpec& spec : model.arch().layer_weights) {
      if (*spec.hf.refusal && set.find(layer.*spec.slot))
        fail(Code::Unsupported, "{}: {}", (layer.*spec.slot).name, spec.hf.refusal);
    }
  }
}

void check_peft_writable(const std::string& path) { check_writable_directory(path, kFiles); }

}  // namespace tandem
