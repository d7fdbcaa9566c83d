#include "models/adapter.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "base/log.h"
#include "base/rng.h"
#include "io/gguf.h"
#include "io/gguf_writer.h"
#include "io/quote.h"
#include "models/offences.h"
#include "models/peft.h"

namespace tandem {
namespace {

// The sets of api.md 10.
struct TargetSet {
  const char* name;
  std::vector<std::string_view> roles;
};
const TargetSet kSets[] = {
    {"attention",
     {"attn_q", "attn_q_a", "attn_q_b", "attn_k", "attn_v", "attn_kv_a_mqa", "attn_kv_b", "attn_output",
      "attn_qkv", "attn_gate", "ssm_out"}},
    {"shared", {"ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp"}},
    {"experts", {"ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"}},
    {"dense", {"ffn_gate", "ffn_up", "ffn_down"}},
};
bool never_trained(std::string_view role) { return role.empty() || role == "ffn_gate_inp"; }

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (;;) {
    const size_t end = text.find(at, begin);
    parts.push_back(text.substr(begin, end - begin));
    if (end == std::string::npos) return parts;
    begin = end + 1;
  }
}

}  // namespace

bool trainable(const Weight& weight) { return !never_trained(weight.role); }

std::vector<const Weight*> resolve_targets(const Model& model, const std::string& targets) {
  const std::vector<const Weight*> all = model.adaptable();
  std::vector<const Weight*> chosen;
  std::vector<std::string_view> known;  // layers differ in what they have
  for (const Weight* w : all) {
    if (trainable(*w) && std::find(known.begin(), known.end(), w->role) == known.end())
      known.emplace_back(w->role);
  }
  const std::string roles_here = fmt::format("{}", fmt::join(known, ", "));
  for (const std::string& name : split(targets, ',')) {
    std::vector<std::string_view> roles{name};
    bool is_set = name == "all";
    for (const TargetSet& set : kSets) {
      if (name == set.name) {
        roles = set.roles;
        is_set = true;
      }
    }
    if (!is_set && never_trained(name)) {
      fail(Code::Unsupported, "target '{}': the router is never trained; these are: {}", name, roles_here);
    }
    bool found = false;
    for (const Weight* w : all) {
      const bool wanted =
          name == "all" ? trainable(*w) : std::find(roles.begin(), roles.end(), w->role) != roles.end();
      if (!wanted) continue;
      found = true;
      if (std::find(chosen.begin(), chosen.end(), w) == chosen.end()) chosen.push_back(w);
    }
    if (!found) {
      fail(Code::Usage,
           "target '{}' matches no tensor of this {} model; its roles are: {} (sets: attention, dense, "
           "shared, experts, all)",
           name, model.arch().name, roles_here);
    }
  }
  std::sort(chosen.begin(), chosen.end(), [&](const Weight* x, const Weight* y) {
    return std::find(all.begin(), all.end(), x) < std::find(all.begin(), all.end(), y);
  });
  return chosen;
}

void AdapterSet::lay_out() {
  n_values_ = 0;
  for (AdapterPair& p : pairs_) {
    p.a_at = n_values_;
    n_values_ += static_cast<size_t>(p.a_shape.elements());
    p.b_at = n_values_;
    n_values_ += static_cast<size_t>(p.b_shape.elements());
  }
  values_ = Buffer(n_values_ * sizeof(float), "an adapter");
}

void AdapterSet::allocate_gradients() {
  gradients_ = Buffer(n_values_ * sizeof(float), "the gradients of an adapter");
}

const AdapterPair* AdapterSet::find(const Weight& weight) const {
  for (const AdapterPair& p : pairs_) {
    if (p.weight == &weight) return &p;
  }
  return nullptr;
}

AdapterSet AdapterSet::create(const std::vector<const Weight*>& weights, int64_t rank, float alpha,
                              bool rslora, uint64_t seed) {
  if (rank < 1 || rank > kMaxRank)
    fail(Code::Usage, "the LoRA rank must be from 1 to {}, not {}", kMaxRank, rank);
  if (!std::isfinite(alpha) || !(alpha > 0))
    fail(Code::Usage, "the LoRA alpha must be a positive number, not {}", alpha);
  AdapterSet set;
  const float r = static_cast<float>(rank);
  set.alpha_ = rslora ? alpha * std::sqrt(r) : alpha;
  for (const Weight* w : weights) {
    AdapterPair p;
    p.weight = w;
    p.rank = rank;
    p.scale = set.alpha_ / r;
    p.trainable = true;
    p.a_shape = Shape(w->ne[0], rank, w->ne[2]);
    p.b_shape = Shape(rank, w->ne[1], w->ne[2]);
    set.pairs_.push_back(p);
  }
  set.lay_out();
  for (const AdapterPair& p : set.pairs_) {
    Rng rng(random_bits({seed, key_of("lora_a"), key_of(p.weight->name)}));
    const double deviation = 1.0 / std::sqrt(static_cast<double>(p.a_shape[0]));
    float* a = set.a(p);
    for (int64_t i = 0; i < p.a_shape.elements(); ++i)
      a[i] = static_cast<float>(rng.next_normal() * deviation);
  }
  return set;
}

namespace {

// The two halves of a pair in the file.
struct Halves {
  const GgufTensor* a = nullptr;
  const GgufTensor* b = nullptr;
};

Shape shape_of(const GgufTensor& t) { return Shape(t.ne[0], t.ne[1], t.ne[2], t.ne[3]); }

void check_pair(const std::string& base, const Halves& h, const Model& model, Offences& offences) {
  const Weight* w = model.find(base);
  const std::string shown = printable(base);
  if (!h.a || !h.b) {
    offences.add(fmt::format("{} has no {} half", shown, h.a ? "lora_b" : "lora_a"));
  } else if (!w) {
    offences.add(fmt::format("{} is no tensor of the model", shown));
  } else if (!*w->role) {
    offences.add(fmt::format("{} takes no adapter in this engine", base));
  } else {
    const int64_t rank = h.b->ne[0];
    const Shape a(w->ne[0], rank, w->ne[2]), b(rank, w->ne[1], w->ne[2]);
    if (shape_of(*h.a) != a || shape_of(*h.b) != b) {
      offences.add(fmt::format("{}: lora_a is {} and lora_b {}; the weight {} with rank {} needs {} and {}",
                               base, to_string(shape_of(*h.a)), to_string(shape_of(*h.b)), to_string(w->ne),
                               rank, to_string(a), to_string(b)));
    } else if (rank > kMaxRank) {
      offences.add(fmt::format("{}: rank {} is above {}", base, rank, kMaxRank));
    }
    for (const GgufTensor* t : {h.a, h.b}) {
      if (!decodable(t->type))
        offences.add(fmt::format("{} is {}, which cannot be decoded", t->name, name_of(t->type)));
    }
  }
}

std::map<std::string, Halves> collect_halves(const GgufFile& file, Offences& offences) {
  std::map<std::string, Halves> halves;
  for (const GgufTensor& t : file.tensors()) {
    const bool is_a = t.name.ends_with(".lora_a"), is_b = t.name.ends_with(".lora_b");
    if (!is_a && !is_b) {
      offences.add(fmt::format("{} ends in neither .lora_a nor .lora_b", printable(t.name)));
      continue;
    }
    Halves& h = halves[t.name.substr(0, t.name.size() - 7)];
    (is_a ? h.a : h.b) = &t;
  }
  if (halves.empty()) offences.add("there is no tensor in it");
  return halves;
}

}  // namespace

AdapterSet AdapterSet::allocate(std::vector<AdapterPair> pairs, float alpha) {
  AdapterSet set;
  set.pairs_ = std::move(pairs);
  set.alpha_ = alpha;
  set.lay_out();
  return set;
}

AdapterSet AdapterSet::load(const std::string& path, const Model& model, float user_scale) {
  if (is_peft(path)) return read_peft(path, model, user_scale);
  return load(GgufFile::open(path), model, user_scale);
}

AdapterSet AdapterSet::load(const GgufFile& file, const Model& model, float user_scale) {
  const std::string& path = file.path();
  const auto expect = [&](const char* key, std::string_view want) {
    if (file.get_str(key) != want) {
      fail(Code::BadData, "{}: {} is {}, this adapter must have '{}'", path, key, quote(file.get_str(key)),
           want);
    }
  };
  expect("general.type", "adapter");
  expect("adapter.type", "lora");
  expect("general.architecture", model.arch().name);
  if (file.has("adapter.alora.invocation_tokens")) {
    fail(Code::Unsupported,
         "{}: this is an activated LoRA, which takes effect only after certain tokens; that is not built",
         path);
  }
  AdapterSet set;
  set.alpha_ = file.get_f32_or("adapter.lora.alpha", 0.f);
  set.base_hash_ = file.get_str_or(kBaseHashKey, "");
  Offences offences;
  if (!std::isfinite(set.alpha_) || set.alpha_ < 0)
    offences.add(fmt::format("adapter.lora.alpha is {}", set.alpha_));
  const std::map<std::string, Halves> halves = collect_halves(file, offences);
  for (const auto& [base, h] : halves) check_pair(base, h, model, offences);
  if (!offences.none())
    fail(Code::BadData, "{}: this adapter does not fit the model:{}", path, offences.text());

  for (const Weight* w : model.adaptable()) {
    const auto it = halves.find(w->name);
    if (it == halves.end()) continue;
    AdapterPair p;
    p.weight = w;
    p.rank = it->second.b->ne[0];
    p.scale = user_scale * (set.alpha_ > 0 ? set.alpha_ / static_cast<float>(p.rank) : 1.f);
    p.a_shape = shape_of(*it->second.a);
    p.b_shape = shape_of(*it->second.b);
    set.pairs_.push_back(p);
  }
  set.lay_out();
  for (const AdapterPair& p : set.pairs_) {
    const Halves& h = halves.at(p.weight->name);
    type_info(h.a->type).codec->decode(h.a->data, set.a(p), p.a_shape.elements());
    type_info(h.b->type).codec->decode(h.b->data, set.b(p), p.b_shape.elements());
    const std::span<const float> numbers(set.a(p),
                                         static_cast<size_t>(p.a_shape.elements() + p.b_shape.elements()));
    if (!std::all_of(numbers.begin(), numbers.end(), [](float x) { return std::isfinite(x); })) {
      offences.add(fmt::format("{}: a value is not finite", p.weight->name));
    }
  }
  if (!offences.none()) fail(Code::BadData, "{}: this adapter is broken:{}", path, offences.text());
  return set;
}

void check_base(const AdapterSet& set, const Model& model, const std::string& path, bool strict) {
  if (set.base_hash().empty()) return;
  const std::string here = model.base_hash();
  if (set.base_hash() == here) return;
  const std::string what =
      fmt::format("{}: this adapter was made for other weights (base hash {}) than {} has ({})", path,
                  quote(set.base_hash()), model.file().path(), here);
  if (strict) fail(Code::BadData, "{}; without --strict-base it is applied all the same", what);
  log_warn("{}; expect another effect", what);
}

void write_adapter(const std::string& path, const AdapterSet& set, const Model& model,
                   const std::string& name, const std::function<void(const std::string&)>& verify) {
  GgufWriter writer;
  writer.add_str("general.architecture", model.arch().name);
  writer.add_str("general.type", "adapter");
  writer.add_str("general.name", name);
  writer.add_str("adapter.type", "lora");
  writer.add_f32("adapter.lora.alpha", set.alpha());
  writer.add_str(kBaseHashKey, set.base_hash().empty() ? model.base_hash() : set.base_hash());
  for (const AdapterPair& p : set.pairs()) {
    const auto add = [&](const char* half, const Shape& ne, const float* data) {
      writer.add_tensor(p.weight->name + half, DType::F32, ne.ne,
                        std::as_bytes(std::span(data, static_cast<size_t>(ne.elements()))));
    };
    add(".lora_a", p.a_shape, set.a(p));
    add(".lora_b", p.b_shape, set.b(p));
  }
  writer.write(path, verify);
}

}  // namespace tandem
