#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "app/commands.h"
#include "app/output.h"
#include "base/error.h"
#include "base/memory.h"
#include "io/gguf.h"
#include "io/quote.h"
#include "models/adapter.h"
#include "models/model.h"
#include "text/tokenizer.h"
#include "text/vocab.h"

namespace tandem {
namespace {

using nlohmann::json;

// Tensors of one adaptable role.
struct RoleSummary {
  std::string role;
  int64_t n_tensors = 0;
  int64_t n_weights = 0;
  int64_t per_rank = 0;  // numbers of an adapter of rank 1
  std::string types;
};

struct TypeSummary {
  int64_t n_tensors = 0, n_weights = 0, bytes = 0;
};

// What is found out about a file beyond its contents.
struct Findings {
  bool is_adapter = false;
  std::string obstacle;  // why it cannot be run; empty: it can
  std::string vocabulary;
  std::vector<RoleSummary> roles;
  std::optional<HParams> hparams;
  std::map<std::string, std::string, std::less<>> roles_of;  // of the tensors that can be trained
  std::set<std::string, std::less<>> unused;                 // tensors that take no part in the forward pass
};

int64_t elements(const GgufTensor& t) { return t.ne[0] * t.ne[1] * t.ne[2] * t.ne[3]; }

std::string shape_text(const GgufTensor& t) { return to_string(Shape(t.ne[0], t.ne[1], t.ne[2], t.ne[3])); }

std::string_view file_name(std::string_view path) { return path.substr(path.find_last_of('/') + 1); }

std::vector<RoleSummary> summarize_roles(const Model& model) {
  std::vector<RoleSummary> roles;
  for (const Weight* w : resolve_targets(model, "all")) {
    auto it =
        std::find_if(roles.begin(), roles.end(), [&](const RoleSummary& r) { return r.role == w->role; });
    if (it == roles.end()) it = roles.insert(roles.end(), {w->role, 0, 0, 0, ""});
    it->n_tensors += 1;
    it->n_weights += w->ne.elements();
    it->per_rank += (w->ne[0] + w->ne[1]) * w->ne[2];
    if (it->types.find(name_of(w->type)) == std::string::npos) {
      it->types += fmt::format("{}{}", it->types.empty() ? "" : ", ", name_of(w->type));
    }
  }
  return roles;
}

// What training does with a tensor; empty where the file cannot be run.
std::string training_of(const Findings& f, const std::string& name) {
  if (!f.hparams) return "";
  const auto role = f.roles_of.find(name);
  if (role != f.roles_of.end()) return "trained as " + role->second;
  return f.unused.contains(name) ? "left alone" : "frozen";
}

// An obstacle is an answer here, not a failure: the file is shown all the same.
Findings examine(const GgufFile& file, const std::string& path) {
  Findings f;
  const GgufValue* type = file.value("general.type");
  f.is_adapter =
      type && type->type == GgufType::Str && !type->is_array && file.get_str("general.type") == "adapter";
  if (f.is_adapter) {
    f.obstacle = "this is an adapter; it is applied to its base model with --lora";
    return f;
  }
  try {
    const Model model = Model::open(path);
    f.hparams = model.hparams();
    f.roles = summarize_roles(model);
    for (const Weight* w : resolve_targets(model, "all")) f.roles_of[w->name] = w->role;
    for (const GgufTensor& t : file.tensors()) {
      if (!model.find(t.name)) f.unused.insert(t.name);
    }
    const Tokenizer tokenizer(read_vocab(model.file()));
    f.vocabulary = fmt::format("{} tokens, {}", tokenizer.n_vocab(),
                               printable(file.get_str_or("tokenizer.ggml.pre", "default")));
  } catch (const Error& e) {
    if (e.code() == Code::Internal) throw;
    f.obstacle = e.what();
    const std::string prefix = path + ": ";
    if (f.obstacle.starts_with(prefix)) f.obstacle.erase(0, prefix.size());
  }
  return f;
}

std::map<DType, TypeSummary> summarize_types(const GgufFile& file) {
  std::map<DType, TypeSummary> types;
  for (const GgufTensor& t : file.tensors()) {
    TypeSummary& s = types[t.type];
    s.n_tensors += 1;
    s.n_weights += elements(t);
    s.bytes += t.bytes;
  }
  return types;
}

void print_file(const GgufFile& file, const Findings& f) {
  print("file       {}\n", printable(file.path()));
  print("           GGUF version {}, {}, {} keys, {} tensors\n", file.version(),
        format_bytes(file.file_bytes()), file.entries().size(), file.tensors().size());
  if (file.shards().size() > 1) {
    print("shards     {}\n", file.shards().size());
    Table shards("           ", {1, 2});
    for (const GgufShard& s : file.shards()) {
      shards.add({printable(file_name(s.path)), fmt::format("{} tensors", s.n_tensors),
                  format_bytes(s.file_bytes), fmt::format("alignment {}", s.alignment)});
    }
    print_text(shards.text());
  }
  if (f.hparams) {
    const HParams& h = *f.hparams;
    print("model      {}: {} layers, width {}, {} heads of {} over {}, context {}{}\n",
          printable(file.get_str("general.architecture")), h.n_layer, h.n_embd, h.n_head, h.d_head,
          h.n_head_kv, h.n_ctx_train,
          h.n_expert ? fmt::format(", {} experts of {}, {} used", h.n_expert, h.n_ff_exp, h.n_expert_used)
                     : "");
  }
  if (!f.vocabulary.empty()) print("vocabulary {}\n", f.vocabulary);
  print("runs here  {}\n", f.obstacle.empty() ? "yes" : "no: " + f.obstacle);

  print("\nkeys\n");
  Table keys("  ", {1, 2});
  for (const GgufEntry& e : file.entries())
    keys.add({printable(e.key), type_text(e.value), to_text(e.value)});
  print_text(keys.text());

  print("\ntensors\n");
  Table tensors("  ", {1, 2, 4});
  for (const GgufTensor& t : file.tensors()) {
    tensors.add({printable(t.name), shape_text(t), name_of(t.type),
                 format_bytes(static_cast<size_t>(t.bytes)), training_of(f, t.name)});
  }
  print_text(tensors.text());
}

void print_totals(const GgufFile& file, const Findings& f) {
  print("\ntypes\n");
  Table types("  ");
  TypeSummary all;
  for (const auto& [type, s] : summarize_types(file)) {
    types.add({name_of(type), fmt::format("{} tensors", s.n_tensors),
               fmt::format("{} weights", format_count(static_cast<double>(s.n_weights))),
               format_bytes(static_cast<size_t>(s.bytes)), decodable(type) ? "" : "cannot be decoded here"});
    all.n_tensors += s.n_tensors;
    all.n_weights += s.n_weights;
    all.bytes += s.bytes;
  }
  types.add({"all", fmt::format("{} tensors", all.n_tensors),
             fmt::format("{} weights", format_count(static_cast<double>(all.n_weights))),
             format_bytes(static_cast<size_t>(all.bytes)), ""});
  print_text(types.text());
  if (f.roles.empty()) return;
  print("\nwhat could be adapted (--lora-targets)\n");
  Table roles("  ", {2});
  for (const RoleSummary& r : f.roles) {
    roles.add({r.role, fmt::format("{} tensors", r.n_tensors), r.types,
               fmt::format("{} weights", format_count(static_cast<double>(r.n_weights))),
               fmt::format("{} numbers at rank 8", format_count(8.0 * static_cast<double>(r.per_rank)))});
  }
  print_text(roles.text());
}

json as_json(const GgufFile& file, const Findings& f) {
  json out{{"type", "inspect"},          {"file", file.path()},      {"version", file.version()},
           {"bytes", file.file_bytes()}, {"adapter", f.is_adapter},  {"runs", f.obstacle.empty()},
           {"metadata", json::array()},  {"tensors", json::array()}, {"types", json::array()},
           {"roles", json::array()},     {"shards", json::array()}};
  out["obstacle"] = f.obstacle.empty() ? json() : json(f.obstacle);
  for (const GgufEntry& e : file.entries()) {
    out["metadata"].push_back(
        {{"key", std::string(e.key)}, {"type", type_text(e.value)}, {"value", to_text(e.value)}});
  }
  for (const GgufShard& s : file.shards()) {
    out["shards"].push_back(
        {{"file", s.path}, {"bytes", s.file_bytes}, {"tensors", s.n_tensors}, {"alignment", s.alignment}});
  }
  for (const GgufTensor& t : file.tensors()) {
    const auto role = f.roles_of.find(t.name);
    out["tensors"].push_back({{"name", t.name},
                              {"type", name_of(t.type)},
                              {"ne", t.ne},
                              {"bytes", t.bytes},
                              {"shard", t.shard},
                              {"role", role == f.roles_of.end() ? json() : json(role->second)},
                              {"unused", f.unused.contains(t.name)}});
  }
  for (const auto& [type, s] : summarize_types(file)) {
    out["types"].push_back({{"type", name_of(type)},
                            {"tensors", s.n_tensors},
                            {"weights", s.n_weights},
                            {"bytes", s.bytes},
                            {"decodable", decodable(type)}});
  }
  for (const RoleSummary& r : f.roles) {
    out["roles"].push_back({{"role", r.role},
                            {"tensors", r.n_tensors},
                            {"weights", r.n_weights},
                            {"numbers_per_rank", r.per_rank}});
  }
  return out;
}

}  // namespace

int inspect_command(const Options& options) {
  const GgufFile file = GgufFile::open(options.operand());
  const Findings findings = examine(file, options.operand());
  if (options.on(Opt::Json)) {
    print_json(as_json(file, findings));
  } else {
    print_file(file, findings);
    print_totals(file, findings);
  }
  return 0;
}

}  // namespace tandem
