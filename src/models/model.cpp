#include "models/model.h"

#include <cmath>
#include <utility>

#include "base/log.h"
#include "io/base_hash.h"
#include "io/quote.h"

namespace tandem {

#define ARCH(name) extern const ArchDef name##_arch;
#include "models/archs.def"
#undef ARCH

namespace {

constexpr const ArchDef* kArchs[] = {
#define ARCH(name) &name##_arch,
#include "models/archs.def"
#undef ARCH
};

constexpr GlobalWeightSpec kGlobalWeights[] = {
    {"token_embd.weight", &GlobalWeights::token_embd,
     [](const HParams& h) { return Shape(h.n_embd, h.n_vocab); }, false, "model.embed_tokens"},
    {"output_norm.weight", &GlobalWeights::output_norm, [](const HParams& h) { return Shape(h.n_embd); },
     false, "model.norm"},
    {"output.weight", &GlobalWeights::output, [](const HParams& h) { return Shape(h.n_embd, h.n_vocab); },
     true, "lm_head"},
    {"rope_freqs.weight", &GlobalWeights::rope_freqs,
     [](const HParams& h) { return Shape(h.rope.n_rot / 2); }, true},
};

void read_rope(const GgufFile& file, const std::string& a, HParams& h) {
  h.rope.kind = RopeKind::Neox;
  h.rope.n_rot = static_cast<int32_t>(bounded_or(file, a + "rope.dimension_count", 2, h.d_head, h.d_head));
  if (h.rope.n_rot % 2)
    fail(Code::BadData, "{}: {}rope.dimension_count is {}, which is odd", file.path(), a, h.rope.n_rot);
  h.rope.base = positive_f32(file, a + "rope.freq_base", 10000.f);
  const std::string_view scaling = file.get_str_or(a + "rope.scaling.type", "linear");
  const float old_factor = finite_f32(file, a + "rope.scale_linear", 1.f);  // its name in older files
  const float factor = finite_f32(file, a + "rope.scaling.factor", old_factor);
  if (scaling == "none" || factor == 0.f || (scaling == "linear" && factor == 1.f)) return;
  if (factor < 0.f) {
    fail(Code::BadData, "{}: {}rope.scaling.factor is {}, it must not be negative", file.path(), a, factor);
  }
  if (scaling == "linear") {
    h.rope.scale = 1.f / factor;
  } else if (scaling == "yarn") {
    h.rope.yarn_factor = factor;
    h.rope.yarn_beta_fast = finite_f32(file, a + "rope.scaling.yarn_beta_fast", 32.f);
    h.rope.yarn_beta_slow = finite_f32(file, a + "rope.scaling.yarn_beta_slow", 1.f);
    h.rope.yarn_n_ctx_orig = static_cast<int32_t>(
        bounded_or(file, a + "rope.scaling.original_context_length", 1, 1 << 30, h.n_ctx_train));
    h.rope.magnitude =
        finite_f32(file, a + "rope.scaling.attn_factor", 1.f) * (1.f + 0.1f * std::log(factor));
  } else {
    fail(Code::Unsupported, "{}: rope scaling {} is not built; none, linear and yarn are", file.path(),
         quote(scaling));
  }
}

Weight as_weight(const GgufTensor& t, const char* role, int layer) {
  Weight w;
  w.name = t.name;
  w.type = t.type;
  w.ne = Shape(t.ne[0], t.ne[1], t.ne[2], t.ne[3]);
  w.data = t.data;
  w.role = role;
  w.layer = layer;
  return w;
}

// Collects what is wrong with the tensors, so that one message tells all of it.
class Offences {
 public:
  void add(const std::string& text) {
    if (++count_ <= kShown) text_ += "\n  " + text;
  }
  void raise(const GgufFile& file, const ArchDef& arch) const {
    if (count_ == 0) return;
    fail(Code::BadData, "{}: its tensors do not fit the architecture {}:{}{}", file.path(), arch.name, text_,
         count_ > kShown ? fmt::format("\n  and {} more", count_ - kShown) : "");
  }

 private:
  static constexpr int kShown = 8;
  int count_ = 0;
  std::string text_;
};

Weight take(const GgufFile& file, const std::string& name, const Shape& shape, const char* role, int layer,
            bool optional, bool f32, Offences& offences) {
  const GgufTensor* t = file.find(name);
  if (!t) {
    if (!optional) offences.add(fmt::format("{} is missing", name));
    return {};
  }
  Weight w = as_weight(*t, role, layer);
  if (w.ne != shape) {
    offences.add(fmt::format("{} has shape {}, the hyper-parameters give {}{}", name, to_string(w.ne),
                             to_string(shape),
                             file.shards().size() > 1 ? fmt::format(" (in {})", file.path_of(*t)) : ""));
  }
  if (!decodable(w.type)) {
    fail(Code::Unsupported,
         "{}: tensor {} is {}, a type this engine knows but cannot decode; re-quantize the model",
         file.path_of(*t), name, name_of(w.type));
  }
  if ((f32 || shape.rows() == 1) && w.type != DType::F32) {
    fail(Code::Unsupported, "{}: tensor {} is {}; norms, {}other vectors must be F32", file.path_of(*t), name,
         name_of(w.type), f32 ? "convolutions, sinks and " : "biases and ");
  }
  return w;
}

// Whether a tensor belongs to the layers after the last of the model, which take no part in its forward pass.
// Source: architectures.md 2.7.
bool predicts_further_tokens(std::string_view name, const HParams& h) {
  for (int64_t il = h.n_layer; il < h.n_layer + h.n_layer_nextn; ++il) {
    if (name.starts_with(fmt::format("blk.{}.", il))) return true;
  }
  return false;
}

}  // namespace

float HParams::score_scale() const {
  return attention_scale > 0 ? attention_scale : 1.f / std::sqrt(static_cast<float>(d_head));
}

int64_t bounded(const GgufFile& file, const std::string& key, int64_t lo, int64_t hi) {
  const uint64_t value = file.get_u64(key);
  if (value < static_cast<uint64_t>(lo) || value > static_cast<uint64_t>(hi)) {
    fail(Code::BadData, "{}: {} is {}, it must be from {} to {}", file.path(), key, value, lo, hi);
  }
  return static_cast<int64_t>(value);
}

int64_t bounded_or(const GgufFile& file, const std::string& key, int64_t lo, int64_t hi, int64_t otherwise) {
  return file.has(key) ? bounded(file, key, lo, hi) : otherwise;
}

float finite_f32(const GgufFile& file, const std::string& key, float otherwise) {
  constexpr float kLimit = 1e9f;  // far from what any model has, and products of two stay finite
  const float value = file.get_f32_or(key, otherwise);
  if (!(std::abs(value) <= kLimit)) {
    fail(Code::BadData, "{}: {} is {}, it must be a number up to {}", file.path(), key, value, kLimit);
  }
  return value;
}

float positive_f32(const GgufFile& file, const std::string& key, float otherwise) {
  const float value = finite_f32(file, key, otherwise);
  if (!(value > 0)) {
    fail(Code::BadData, "{}: {} is {}, a positive number is needed", file.path(), key, value);
  }
  return value;
}

std::span<const ArchDef* const> all_archs() { return kArchs; }
std::span<const GlobalWeightSpec> global_weights() { return kGlobalWeights; }

const ArchDef& find_arch(std::string_view name) {
  std::string known;
  for (const ArchDef* a : kArchs) {
    if (name == a->name) return *a;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", a->name);
  }
  fail(Code::Unsupported, "architecture {} is not built; these are: {}", quote(name), known);
}

HParams read_hparams(const GgufFile& file, const ArchDef& arch) {
  const std::string a = std::string(arch.name) + ".";
  HParams h;
  h.n_layer = bounded(file, a + "block_count", 1, 512);
  h.n_layer_nextn = bounded_or(file, a + "nextn_predict_layers", 0, h.n_layer - 1, 0);
  h.n_layer -= h.n_layer_nextn;
  h.n_embd = bounded(file, a + "embedding_length", 1, 1 << 20);
  h.n_ctx_train = bounded(file, a + "context_length", 1, 1 << 30);
  h.n_head = bounded(file, a + "attention.head_count", 1, 4096);
  h.n_head_kv = bounded_or(file, a + "attention.head_count_kv", 1, 4096, h.n_head);
  if (h.n_head % h.n_head_kv) {
    fail(Code::BadData, "{}: {} heads cannot share {} key/value heads evenly", file.path(), h.n_head,
         h.n_head_kv);
  }
  h.d_head = bounded_or(file, a + "attention.key_length", 1, 4096, h.n_embd / h.n_head);
  h.d_head_v = bounded_or(file, a + "attention.value_length", 1, 4096, h.n_embd / h.n_head);
  if (h.d_head < 1 || h.d_head_v < 1) {
    fail(Code::BadData, "{}: {} heads share a width of {}, and no key says how wide a head is", file.path(),
         h.n_head, h.n_embd);
  }
  file.get_f32(a + "attention.layer_norm_rms_epsilon");  // must be there
  h.rms_eps = positive_f32(file, a + "attention.layer_norm_rms_epsilon", 0.f);
  const GgufTensor* embd = file.find("token_embd.weight");
  if (!embd) fail(Code::BadData, "{}: tensor token_embd.weight is missing", file.path());
  h.n_vocab = embd->ne[1];
  if (file.has(a + "vocab_size") && file.get_u64(a + "vocab_size") != static_cast<uint64_t>(h.n_vocab)) {
    fail(Code::BadData, "{}: {}vocab_size is {}, token_embd.weight has {} rows", file.path(), a,
         file.get_u64(a + "vocab_size"), h.n_vocab);
  }
  if (file.has("tokenizer.ggml.tokens")) {
    const uint64_t n_tokens = file.value("tokenizer.ggml.tokens")->count;
    if (n_tokens != static_cast<uint64_t>(h.n_vocab)) {
      fail(Code::BadData, "{}: the vocabulary has {} tokens, token_embd.weight {} rows", file.path(),
           n_tokens, h.n_vocab);
    }
  }
  const bool has_experts =
      arch.experts == Experts::All || (arch.experts == Experts::ByKey && file.has(a + "expert_count") &&
                                       file.get_u64(a + "expert_count") > 0);
  if (has_experts) {
    h.n_expert = bounded(file, a + "expert_count", 1, 512);
    h.n_expert_used = bounded(file, a + "expert_used_count", 1, h.n_expert);
    h.n_ff_exp = file.has(a + "expert_feed_forward_length")
                     ? bounded(file, a + "expert_feed_forward_length", 1, 1 << 20)
                     : bounded(file, a + "feed_forward_length", h.n_expert_used, 1 << 20) / h.n_expert_used;
  } else {
    h.n_ff = bounded(file, a + "feed_forward_length", 1, 1 << 20);
  }
  read_rope(file, a, h);
  if (arch.read) arch.read(file, h);
  return h;
}

Model Model::open(const std::string& path, const ModelOptions& options) {
  return from(GgufFile::open(path), options);
}

Model Model::from(GgufFile opened, const ModelOptions& options) {
  Model m;
  m.file_ = std::make_unique<GgufFile>(std::move(opened));
  const GgufFile& file = *m.file_;
  const std::string& path = file.path();
  const std::string_view type = file.get_str_or("general.type", "model");
  if (type != "model")
    fail(Code::BadData, "{}: this is a GGUF file of type {}, not a model", path, quote(type));
  try {
    m.arch_ = &find_arch(file.get_str("general.architecture"));
  } catch (const Error& e) {
    fail(e.code(), "{}: {}", path, e.what());
  }
  m.hparams_ = read_hparams(file, *m.arch_);
  m.hparams_.rope.yarn_truncate = options.yarn_round;

  Offences offences;
  m.layers_.resize(static_cast<size_t>(m.hparams_.n_layer));
  size_t n_taken = 0;
  for (const GlobalWeightSpec& spec : kGlobalWeights) {
    if (spec.slot == &GlobalWeights::rope_freqs && !m.arch_->rope_freqs) continue;
    Weight& w = m.global_.*spec.slot;
    w = take(file, spec.name, spec.shape(m.hparams_), "", -1, spec.optional, false, offences);
    n_taken += w.present();
  }
  for (int64_t il = 0; il < m.hparams_.n_layer; ++il) {
    for (const LayerWeightSpec& spec : m.arch_->layer_weights) {
      if (!spec.present_in(m.hparams_, il)) continue;
      const std::string name = fmt::format(fmt::runtime(spec.name), il);
      Weight& w = m.layers_[static_cast<size_t>(il)].*spec.slot;
      w = take(file, name, spec.shape(m.hparams_), spec.role, static_cast<int>(il), spec.optional, spec.f32,
               offences);
      n_taken += w.present();
    }
  }
  offences.raise(file, *m.arch_);
  if (n_taken != file.tensors().size()) {
    for (const GgufTensor& t : file.tensors()) {
      if (!m.find(t.name) && !predicts_further_tokens(t.name, m.hparams_)) {
        fail(Code::Unsupported,
             "{}: tensor {} is not part of the architecture {} as built here; the model would run without it "
             "and be wrong",
             file.path_of(t), printable(t.name), m.arch_->name);
      }
    }
  }
  return m;
}

std::vector<const Weight*> Model::adaptable() const {
  std::vector<const Weight*> result;
  for (const LayerWeights& layer : layers_) {
    for (const LayerWeightSpec& spec : arch_->layer_weights) {
      if (*spec.role && (layer.*spec.slot).present()) result.push_back(&(layer.*spec.slot));
    }
  }
  return result;
}

const Weight* Model::find(std::string_view name) const {
  for (const GlobalWeightSpec& spec : kGlobalWeights) {
    const Weight& w = global_.*spec.slot;
    if (w.present() && w.name == name) return &w;
  }
  for (const LayerWeights& layer : layers_) {
    for (const LayerWeightSpec& spec : arch_->layer_weights) {
      const Weight& w = layer.*spec.slot;
      if (w.present() && w.name == name) return &w;
    }
  }
  return nullptr;
}

std::string Model::base_hash() const { return tandem::base_hash(file_->tensors()); }

size_t Model::mapped_bytes() const {
  size_t bytes = 0;
  for (const GgufTensor& t : file_->tensors()) bytes += static_cast<size_t>(t.bytes);
  return bytes;
}

}  // namespace tandem
