#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <map>

#include "base/log.h"
#include "io/quote.h"
#include "models/offences.h"
#include "models/peft.h"

namespace tandem {
namespace {

constexpr size_t kMaxConfigBytes = size_t{16} << 20;
constexpr std::string_view kBase = "base_model.model.";

// How the experts of a parameter share the rows of A and the columns of B.
enum class Layout {
  Plain,    // A {r, n_in}, B {n_out, r}
  Fused,    // A {E r, n_in}, B {n_out, r E}: row e r + k of A, column k E + e of B
  Swapped,  // the same of the transposed weight: A {E r, n_out}, B {n_in, r E}
};

// The two halves of a module in the file.
struct Halves {
  const SafeTensor* a = nullptr;
  const SafeTensor* b = nullptr;
};

// A pair that adds to a weight, or to one expert of it.
struct Piece {
  Halves from;
  Layout layout = Layout::Plain;
  int64_t expert = -1;                  // of a plain pair; -1: all there are
  int64_t rank = 0;                     // in the file
  double alpha = 0;                     // it acts with alpha / rank
  int64_t first_row = 0;                // of this weight, in the n_out of the file
  int64_t first_rank = 0, n_ranks = 0;  // those that reach this weight
};

// The parameter that holds all experts of one or several weights.
struct FusedParameter {
  std::string name;  // "mlp.experts.gate_up_proj"
  std::vector<const LayerWeightSpec*> parts;
};

std::string shape_text(const SafeTensor& t) { return fmt::format("[{}]", fmt::join(t.shape, ", ")); }

bool strip_prefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

bool strip_suffix(std::string_view& text, std::string_view suffix) {
  if (!text.ends_with(suffix)) return false;
  text.remove_suffix(suffix.size());
  return true;
}

// A decimal number without sign or leading zeros, at the start of the text.
std::optional<int64_t> strip_number(std::string_view& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || text[0] == '-' || (text[0] == '0' && end != text.data() + 1))
    return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return value;
}

// Whether `path` is the module of `form`, whose {} is the expert.
bool is_module(std::string_view path, std::string_view form, int64_t* expert) {
  const size_t hole = form.find("{}");
  *expert = -1;
  if (hole == std::string_view::npos) return !form.empty() && path == form;
  if (!strip_prefix(path, form.substr(0, hole))) return false;
  const std::optional<int64_t> number = strip_number(path);
  if (!number || path != form.substr(hole + 2)) return false;
  *expert = *number;
  return true;
}

// "mlp.experts" of "mlp.experts.gate_up_proj".
std::string_view owner_of(std::string_view parameter) { return parameter.substr(0, parameter.rfind('.')); }

class Reader {
 public:
  Reader(const SafetensorsFile& file, const Model& model, PeftConfig& config, Offences& offences)
      : model_(model), config_(config), offences_(offences) {
    for (const LayerWeightSpec& spec : model.arch().layer_weights) {
      if (!*spec.hf.fused) continue;
      if (parameters_.empty() || parameters_.back().name != spec.hf.fused)
        parameters_.push_back({spec.hf.fused, {}});
      parameters_.back().parts.push_back(&spec);
    }
    for (const SafeTensor& t : file.tensors()) sort_in(t);
    for (const auto& [path, halves] : modules_) place(path, halves);
    if (modules_.empty() && offences.none()) offences.add("there is no tensor in it");
    settle_sides();
  }

  AdapterSet build(float user_scale, const std::string& where);

 private:
  void sort_in(const SafeTensor& t);
  void place(const std::string& path, const Halves& h);
  void place_plain(const std::string& path, const Halves& h, const Weight& w, int64_t expert);
  void place_fused(const std::string& path, const Halves& h, int64_t il);
  bool check_values(const std::string& path, const Halves& h);
  void add(const std::string& path, const Weight& w, Piece piece);
  double alpha(const std::string& path, int64_t rank);
  void check_rank(const std::string& path, const std::string& also, int64_t rank);
  void settle_sides();

  const Model& model_;
  PeftConfig& config_;
  Offences& offences_;
  std::vector<FusedParameter> parameters_;
  std::map<std::string, Halves> modules_;  // "model.layers.0.self_attn.q_proj"
  std::map<const Weight*, std::vector<Piece>> pieces_;
  int n_fused_ = 0, n_swapped_ = 0, n_either_ = 0;
};

// Finds the module of a tensor, or says why it has none.
void Reader::sort_in(const SafeTensor& t) {
  std::string_view path = t.name;
  const std::string shown = printable(t.name);
  if (!strip_prefix(path, kBase)) {
    offences_.add(fmt::format("{} is no tensor of a PEFT LoRA, which begin with {}", shown, kBase));
  } else if (strip_suffix(path, ".lora_A.weight")) {
    modules_[std::string(path)].a = &t;
  } else if (strip_suffix(path, ".lora_B.weight")) {
    modules_[std::string(path)].b = &t;
  } else if (path.find("lora_magnitude_vector") != std::string_view::npos) {
    offences_.add(fmt::format("{} belongs to DoRA, which is not applied here", shown));
  } else if (path.find("lora_embedding_") != std::string_view::npos) {
    offences_.add(fmt::format("{} adapts the embedding, which takes no adapter here", shown));
  } else if (path.ends_with(".lora_A.bias") || path.ends_with(".lora_B.bias") || path.ends_with(".bias")) {
    offences_.add(fmt::format("{} is a bias, which is not applied here", shown));
  } else if (path.find("trainable_tokens") != std::string_view::npos) {
    offences_.add(fmt::format("{} holds trained rows of the embedding, which are not applied here", shown));
  } else if (path.ends_with(".weight")) {
    offences_.add(fmt::format("{} is a whole weight (modules_to_save), which is not applied here", shown));
  } else {
    offences_.add(fmt::format("{} is neither the A nor the B of a LoRA", shown));
  }
}

void Reader::place(const std::string& path, const Halves& h) {
  if (!h.a || !h.b) {
    offences_.add(fmt::format("{} has no lora_{} half", printable(path), h.a ? "B" : "A"));
    return;
  }
  for (const GlobalWeightSpec& spec : global_weights()) {
    if (path != spec.hf) continue;
    offences_.add(fmt::format("{} ({}) takes no adapter in this engine", path, spec.name));
    return;
  }
  std::string_view rest = path;
  const bool inside =
      strip_prefix(rest, "model.language_model.layers.") || strip_prefix(rest, "model.layers.");
  const std::optional<int64_t> il = inside ? strip_number(rest) : std::nullopt;
  if (!il || !strip_prefix(rest, ".")) {
    offences_.add(fmt::format("{} is no module of a {} model", printable(path), model_.arch().name));
    return;
  }
  const int64_t n_layer = model_.hparams().n_layer;
  if (*il >= n_layer) {
    offences_.add(fmt::format("{}: the model has layers 0 to {} only", printable(path), n_layer - 1));
    return;
  }
  for (const LayerWeightSpec& spec : model_.arch().layer_weights) {
    int64_t expert = -1;
    const Weight& w = model_.layer(*il).*spec.slot;
    if (w.present() && is_module(rest, spec.hf.module, &expert)) return place_plain(path, h, w, expert);
  }
  std::string_view owner = rest;
  while (strip_suffix(owner, ".base_layer")) {
  }
  for (const FusedParameter& p : parameters_) {
    if (owner != owner_of(p.name)) continue;
    const char* refusal = p.parts.front()->hf.refusal;
    if (!*refusal) return place_fused(path, h, *il);
    offences_.add(fmt::format("{}: {}", printable(path), refusal));
    return;
  }
  offences_.add(fmt::format("{} is no module of a {} model", printable(path), model_.arch().name));
}

bool Reader::check_values(const std::string& path, const Halves& h) {
  bool good = true;
  for (const SafeTensor* t : {h.a, h.b}) {
    const char half = t == h.a ? 'A' : 'B';
    if (!SafetensorsFile::is_float(*t)) {
      offences_.add(fmt::format("{}: lora_{} is {}; F32, F16 and BF16 are read", printable(path), half,
                                name_of(t->type)));
      good = false;
      continue;
    }
    std::vector<float> values(static_cast<size_t>(t->elements()));
    SafetensorsFile::read_f32(*t, values.data());
    if (!std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); })) {
      offences_.add(fmt::format("{}: a value of lora_{} is not finite", printable(path), half));
      good = false;
    }
    if (t->shape.size() != 2) {
      offences_.add(fmt::format("{}: lora_{} has shape {}, two dimensions are needed", printable(path), half,
                                shape_text(*t)));
      good = false;
    }
  }
  return good;
}

void Reader::add(const std::string& path, const Weight& w, Piece piece) {
  std::vector<Piece>& there = pieces_[&w];
  for (const Piece& p : there) {
    if (p.expert != piece.expert && p.expert >= 0 && piece.expert >= 0) continue;
    offences_.add(fmt::format("{}: {} has another adapter in this file already", printable(path), w.name));
    return;
  }
  there.push_back(piece);
}

// What a pair acts with, times its rank.
double Reader::alpha(const std::string& path, int64_t rank) {
  const double a = config_.alpha_of(path, offences_);
  return static_cast<double>(
      static_cast<float>(config_.rslora ? a * std::sqrt(static_cast<double>(rank)) : a));
}

// `also` is another path of the module that a pattern may name, or empty.
void Reader::check_rank(const std::string& path, const std::string& also, int64_t rank) {
  std::optional<double> want = config_.ranks.find(path, offences_);
  if (!want && !also.empty()) want = config_.ranks.find(also, offences_);
  if (!want && config_.rank) want = static_cast<double>(*config_.rank);
  if (want && *want != static_cast<double>(rank)) {
    offences_.add(fmt::format("{} has rank {}, {} says {:g}", printable(path), rank, kPeftConfig, *want));
  }
}

void Reader::place_plain(const std::string& path, const Halves& h, const Weight& w, int64_t expert) {
  if (!check_values(path, h)) return;
  if (expert >= w.ne[2]) {
    offences_.add(fmt::format("{}: the model has experts 0 to {} only", printable(path), w.ne[2] - 1));
    return;
  }
  const int64_t rank = h.a->shape[0];
  if (rank < 1 || h.a->shape[1] != w.ne[0] || h.b->shape[0] != w.ne[1] || h.b->shape[1] != rank) {
    offences_.add(fmt::format("{}: lora_A is {} and lora_B {}; {} needs [r, {}] and [{}, r]", printable(path),
                              shape_text(*h.a), shape_text(*h.b), w.name, w.ne[0], w.ne[1]));
    return;
  }
  if (rank > kMaxRank) {
    offences_.add(fmt::format("{}: rank {} is above {}", printable(path), rank, kMaxRank));
    return;
  }
  check_rank(path, "", rank);
  Piece piece{.from = h, .expert = expert, .rank = rank, .alpha = alpha(path, rank), .n_ranks = rank};
  add(path, w, piece);
}

// Which parameter of the experts it is shows in the shapes only: the name tells how the wrappers nest.
void Reader::place_fused(const std::string& path, const Halves& h, int64_t il) {
  if (!check_values(path, h)) return;
  std::string wanted;
  for (const FusedParameter& p : parameters_) {
    const Weight& first = model_.layer(il).*p.parts.front()->slot;
    const int64_t n_expert = first.ne[2], n_in = first.ne[0],
                  n_out = first.ne[1] * p.parts.front()->hf.n_parts;
    wanted += fmt::format("{}{} ({} experts, {} to {})", wanted.empty() ? "" : " or ", p.name, n_expert, n_in,
                          n_out);
    const int64_t rank = h.a->shape[0] / n_expert;
    if (rank < 1 || h.a->shape[0] != rank * n_expert || h.b->shape[1] != rank * n_expert) continue;
    const bool fused = h.a->shape[1] == n_in && h.b->shape[0] == n_out,
               swapped = h.a->shape[1] == n_out && h.b->shape[0] == n_in;
    if (!fused && !swapped) continue;
    (fused && swapped ? n_either_ : fused ? n_fused_ : n_swapped_) += 1;
    if (rank > kMaxRank * static_cast<int64_t>(p.parts.size())) {
      offences_.add(fmt::format("{}: rank {} is above {}", printable(path), rank, kMaxRank));
      return;
    }
    std::string_view owner = path;
    while (strip_suffix(owner, ".base_layer")) {
    }
    const std::string whole =
        fmt::format("{}{}", owner, std::string_view(p.name).substr(owner_of(p.name).size()));
    check_rank(whole, std::string(owner), rank);
    const double a = alpha(whole, rank);
    for (const LayerWeightSpec* spec : p.parts) {
      const Weight& w = model_.layer(il).*spec->slot;
      add(path, w,
          {.from = h,
           .layout = fused ? Layout::Fused : Layout::Swapped,
           .rank = rank,
           .alpha = a,
           .first_row = spec->hf.part * w.ne[1],
           .n_ranks = rank});
    }
    return;
  }
  offences_.add(fmt::format("{}: lora_A is {} and lora_B {}, which fit none of {}", printable(path),
                            shape_text(*h.a), shape_text(*h.b), wanted));
}

// A parameter as wide as it is high fits both ways; one file has one way.
void Reader::settle_sides() {
  if (n_fused_ > 0 && n_swapped_ > 0)
    offences_.add("some of its parameters of experts have the two sides of LoRA swapped, others have not");
  if (n_either_ == 0) return;
  const bool swapped = n_fused_ + n_swapped_ > 0 ? n_swapped_ > 0 : config_.swapped_experts;
  for (auto& [weight, pieces] : pieces_) {
    for (Piece& p : pieces) {
      if (p.layout != Layout::Plain) p.layout = swapped ? Layout::Swapped : Layout::Fused;
    }
  }
}

// The numbers of a piece, and where A and B of an expert stand in them.
class Numbers {
 public:
  Numbers(const Piece& piece, const Weight& w)
      : p_(piece), n_in_(w.ne[0]), n_out_(w.ne[1]), n_expert_(w.ne[2]) {
    a_.resize(static_cast<size_t>(piece.from.a->elements()));
    b_.resize(static_cast<size_t>(piece.from.b->elements()));
    SafetensorsFile::read_f32(*piece.from.a, a_.data());
    SafetensorsFile::read_f32(*piece.from.b, b_.data());
  }
  // Rank k of input i, and of output o, for expert e.
  float a(int64_t e, int64_t k, int64_t i) const {
    if (p_.layout == Layout::Swapped) return b_[at(i, k * n_expert_ + e, p_.rank * n_expert_)];
    return a_[at(p_.layout == Layout::Fused ? e * p_.rank + k : k, i, n_in_)];
  }
  float b(int64_t e, int64_t k, int64_t o) const {
    const int64_t row = p_.first_row + o;
    if (p_.layout == Layout::Plain) return b_[at(row, k, p_.rank)];
    if (p_.layout == Layout::Fused) return b_[at(row, k * n_expert_ + e, p_.rank * n_expert_)];
    return a_[at(e * p_.rank + k, row, static_cast<int64_t>(a_.size()) / (p_.rank * n_expert_))];
  }
  // Ranks from the first to after the last whose B is not zero everywhere: {0, 0} if there is none.
  std::pair<int64_t, int64_t> live() const {
    std::pair<int64_t, int64_t> found{0, 0};
    for (int64_t k = 0; k < p_.rank; ++k) {
      bool any = false;
      for (int64_t e = 0; e < n_expert_ && !any; ++e) {
        for (int64_t o = 0; o < n_out_ && !any; ++o) any = b(e, k, o) != 0;
      }
      if (any) found = {found.second == 0 ? k : found.first, k + 1};
    }
    return found;
  }

 private:
  static size_t at(int64_t row, int64_t column, int64_t n_columns) {
    return static_cast<size_t>(row * n_columns + column);
  }
  const Piece& p_;
  int64_t n_in_, n_out_, n_expert_;
  std::vector<float> a_, b_;
};

// Two weights that share a parameter share A.  Where the first uses only the lower ranks and the second only
// the upper ones, as in an adapter that was made for the two by themselves, each gets its own.
void part_ranks(Piece& first, const Weight& w1, Piece& second, const Weight& w2) {
  const int64_t rank = first.rank, half = rank / 2;
  const auto [begin1, end1] = Numbers(first, w1).live();
  const auto [begin2, end2] = Numbers(second, w2).live();
  if (end1 == 0 && end2 == 0) return;
  int64_t border = -1;
  if (rank % 2 == 0 && end1 <= half && (end2 == 0 || begin2 >= half)) {
    border = half;
  } else if (end2 == 0 || begin2 >= end1) {
    border = end2 == 0 ? rank : end1;
  }
  if (border < 0) return;
  first.n_ranks = border;
  second.first_rank = border;
  second.n_ranks = rank - border;
}

AdapterSet Reader::build(float user_scale, const std::string& where) {
  for (const LayerWeights& layer : model_.layers()) {
    for (const FusedParameter& p : parameters_) {
      if (p.parts.size() != 2) continue;
      const Weight &w1 = layer.*p.parts[0]->slot, &w2 = layer.*p.parts[1]->slot;
      const auto one = pieces_.find(&w1), two = pieces_.find(&w2);
      if (one == pieces_.end() || two == pieces_.end() || one->second[0].layout == Layout::Plain) continue;
      part_ranks(one->second[0], w1, two->second[0], w2);
    }
  }
  std::vector<AdapterPair> pairs;
  float alpha = 0;
  for (const Weight* w : model_.adaptable()) {
    const auto found = pieces_.find(w);
    if (found == pieces_.end()) continue;
    int64_t rank = 0;
    for (const Piece& piece : found->second) rank = std::max(rank, piece.n_ranks);
    if (rank == 0) continue;
    if (rank > kMaxRank) fail(Code::BadData, "{}: {}: rank {} is above {}", where, w->name, rank, kMaxRank);
    if (pairs.empty()) {
      alpha = static_cast<float>(config_.rslora
                                     ? config_.alpha * std::sqrt(static_cast<double>(found->second[0].rank))
                                     : config_.alpha);
    }
    AdapterPair p;
    p.weight = w;
    p.rank = rank;
    p.scale = user_scale * (alpha / static_cast<float>(rank));
    p.a_shape = Shape(w->ne[0], rank, w->ne[2]);
    p.b_shape = Shape(rank, w->ne[1], w->ne[2]);
    pairs.push_back(p);
  }
  AdapterSet set = AdapterSet::allocate(std::move(pairs), alpha);
  Offences offences;
  for (const AdapterPair& pair : set.pairs()) {
    const Weight& w = *pair.weight;
    const int64_t n_in = w.ne[0], n_out = w.ne[1];
    for (const Piece& piece : pieces_.at(&w)) {
      const Numbers from(piece, w);
      // Its own alpha / rank instead of the set's.
      const double factor =
          piece.alpha * static_cast<double>(pair.rank) / (static_cast<double>(piece.rank) * alpha);
      const int64_t first = piece.expert >= 0 ? piece.expert : 0,
                    last = piece.expert >= 0 ? piece.expert + 1 : w.ne[2];
      for (int64_t e = first; e < last; ++e) {
        float *a = set.a(pair) + e * n_in * pair.rank, *b = set.b(pair) + e * n_out * pair.rank;
        for (int64_t k = 0; k < piece.n_ranks; ++k) {
          for (int64_t i = 0; i < n_in; ++i) a[k * n_in + i] = from.a(e, piece.first_rank + k, i);
        }
        for (int64_t o = 0; o < n_out; ++o) {
          for (int64_t k = 0; k < piece.n_ranks; ++k)
            b[o * pair.rank + k] = static_cast<float>(from.b(e, piece.first_rank + k, o) * factor);
        }
      }
    }
    const std::span<const float> b(set.b(pair), static_cast<size_t>(pair.b_shape.elements()));
    if (!std::all_of(b.begin(), b.end(), [](float x) { return std::isfinite(x); }))
      offences.add(fmt::format("{}: its scale takes a value beyond f32", w.name));
  }
  if (!offences.none()) fail(Code::BadData, "{}: this adapter is broken:{}", where, offences.text());
  return set;
}

}  // namespace

bool is_peft(const std::string& path) {
  std::error_code none;
  const std::filesystem::path p(path);
  return std::filesystem::is_directory(p, none) || p.filename() == kPeftConfig ||
         p.extension() == ".safetensors";
}

AdapterSet parse_peft(std::string_view text, const SafetensorsFile& tensors, const Model& model,
                      float user_scale, const std::string& where) {
  Offences offences;
  PeftConfig config = read_peft_config(text, where, offences);
  Reader reader(tensors, model, config, offences);
  if (!offences.none())
    fail(Code::BadData, "{}: this adapter does not fit the model, or cannot be applied here:{}", where,
         offences.text());
  AdapterSet set = reader.build(user_scale, where);
  const auto hash = tensors.metadata().find(kBaseHashKey);
  if (hash != tensors.metadata().end()) set.set_base_hash(hash->second);
  return set;
}

AdapterSet read_peft(const std::string& path, const Model& model, float user_scale) {
  namespace fs = std::filesystem;
  std::error_code none;
  const fs::path directory = fs::is_directory(path, none) ? fs::path(path) : fs::path(path).parent_path();
  const fs::path config = directory / kPeftConfig, tensors = directory / kPeftTensors;
  if (!fs::exists(config, none)) {
    fail(Code::BadData,
         "{}: this is no PEFT adapter: there is no {} (one that is not called \"default\" is in a "
         "directory of its name below)",
         path, kPeftConfig);
  }
  if (!fs::exists(tensors, none)) {
    if (fs::exists(directory / "adapter_model.bin", none)) {
      fail(Code::Unsupported,
           "{}: adapter_model.bin is a pickle, which can run code and is not read; save it with PEFT as {}",
           path, kPeftTensors);
    }
    fail(Code::BadData, "{}: there is no {}", path, kPeftTensors);
  }
  return parse_peft(read_file(config.string(), kMaxConfigBytes), SafetensorsFile::open(tensors.string()),
                    model, user_scale, path);
}

}  // namespace tandem
