#include "models/peft_config.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "io/json.h"
#include "io/quote.h"

namespace tandem {
namespace {

using nlohmann::json;

constexpr size_t kMaxKeys = size_t{1} << 20;  // patterns may name each expert of each layer
constexpr size_t kMaxKeyBytes = 512;
constexpr uint32_t kMatchSteps = 100000;  // a key from a file must not run for long

struct FreeCode {
  void operator()(pcre2_code* p) const { pcre2_code_free(p); }
};
struct FreeMatch {
  void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
};
struct FreeContext {
  void operator()(pcre2_match_context* p) const { pcre2_match_context_free(p); }
};

// Anything that says yes, or holds something.
bool says_something(const json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number()) return value != 0;
  if (value.is_string()) return !value.get_ref<const std::string&>().empty();
  return !value.is_null() && !value.empty();
}

struct Refusal {
  const char* key;
  const char* why;
};
constexpr Refusal kRefusals[] = {
    {"modules_to_save", "it has trained modules whole, which are not applied here; train them as LoRA"},
    {"use_dora", "DoRA's magnitudes are not applied here; merge it into its base with PEFT first"},
    {"lora_bias", "biases are not applied here"},
    {"fan_in_fan_out", "it was made for weights that are stored transposed, which no model here has"},
    {"trainable_token_indices", "trained rows of the embedding are not applied here"},
    {"layer_replication", "the model here has every layer once"},
    {"alora_invocation_tokens",
     "an activated LoRA takes effect only after certain tokens; that is not built"},
    {"use_qalora", "QALoRA pools the input of A, which is not built"},
    {"use_bdlora", "block-diagonal LoRA is not built"},
    {"arrow_config", "routing between adapters is not built"},
    {"velora_config", "VeLoRA is not built"},
};

// Known keys without effect on an adapter that has been trained.
constexpr const char* kWithoutEffect[] = {"peft_type",
                                          "task_type",
                                          "base_model_name_or_path",
                                          "revision",
                                          "inference_mode",
                                          "auto_mapping",
                                          "target_modules",
                                          "target_parameters",
                                          "exclude_modules",
                                          "lora_dropout",
                                          "layers_to_transform",
                                          "layers_pattern",
                                          "init_lora_weights",
                                          "megatron_config",
                                          "megatron_core",
                                          "loftq_config",
                                          "eva_config",
                                          "corda_config",
                                          "runtime_config",
                                          "peft_version",
                                          "r",
                                          "lora_alpha",
                                          "rank_pattern",
                                          "alpha_pattern",
                                          "use_rslora",
                                          "bias",
                                          "qalora_group_size",
                                          "ensure_weight_tying",
                                          "lora_ga_config"};

bool is_known(const std::string& key) {
  return std::any_of(std::begin(kRefusals), std::end(kRefusals),
                     [&](const Refusal& r) { return key == r.key; }) ||
         std::any_of(std::begin(kWithoutEffect), std::end(kWithoutEffect),
                     [&](const char* k) { return key == k; });
}

std::string shown(const json& value) {
  const std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  return printable(text.size() <= 60 ? text : text.substr(0, 57) + "...");
}

// A number that is wanted positive; `otherwise` if it is something else, which is an offence.
double positive(const json& value, const std::string& what, double otherwise, Offences& offences) {
  if (value.is_number()) {
    const auto number = value.get<double>();
    if (std::isfinite(static_cast<float>(number)) && static_cast<float>(number) > 0) return number;
  }
  offences.add(fmt::format("{}: {} is {}, a positive number is needed", kPeftConfig, what, shown(value)));
  return otherwise;
}

std::optional<int64_t> rank_of(const json& value, const std::string& what, Offences& offences) {
  if (value.is_number_unsigned() && value >= 1 && value <= (1 << 20)) return value.get<int64_t>();
  offences.add(fmt::format("{}: {} is {}, a rank of at least 1 is needed", kPeftConfig, what, shown(value)));
  return std::nullopt;
}

// "0.18.1" is before 0.19.
bool is_before_0_19(const std::string& version) {
  if (!version.starts_with("0.")) return false;
  int minor = 0;
  for (size_t i = 2; i < version.size() && std::isdigit(static_cast<unsigned char>(version[i])) && i < 6; ++i)
    minor = 10 * minor + (version[i] - '0');
  return minor < 19;
}

void read_patterns(const json& document, const char* name, PeftPatterns& patterns, Offences& offences) {
  if (!document.contains(name) || document.at(name).is_null()) return;
  const json& entries = document.at(name);
  if (!entries.is_object()) {
    offences.add(fmt::format("{}: {} is {}, an object is needed", kPeftConfig, name, shown(entries)));
    return;
  }
  for (const auto& [key, value] : entries.items()) {
    const std::string what = fmt::format("{} {}", name, quote(key));
    patterns.add(key, positive(value, what, 1, offences), what, offences);
  }
}

}  // namespace

struct PeftPatterns::Key {
  std::string text, what;
  double value;
  std::unique_ptr<pcre2_code, FreeCode> code;  // null: the end of a path, as it stands
  std::unique_ptr<pcre2_match_context, FreeContext> context;

  bool matches(std::string_view module) const {
    if (!code) {
      return module.ends_with(text) &&
             (module.size() == text.size() || module[module.size() - text.size() - 1] == '.');
    }
    const std::unique_ptr<pcre2_match_data, FreeMatch> match(pcre2_match_data_create(1, nullptr));
    const int rc = pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(module.data()), module.size(), 0, 0,
                               match.get(), context.get());
    if (rc < 0 && rc != PCRE2_ERROR_NOMATCH)
      fail(Code::BadData, "{}: {} cannot be matched with {}: it takes too long", kPeftConfig, what,
           quote(module));
    return rc >= 0;
  }
};

PeftPatterns::PeftPatterns() = default;
PeftPatterns::~PeftPatterns() = default;
PeftPatterns::PeftPatterns(PeftPatterns&&) noexcept = default;
PeftPatterns& PeftPatterns::operator=(PeftPatterns&&) noexcept = default;

void PeftPatterns::add(const std::string& key, double value, const std::string& what, Offences& offences) {
  auto entry = std::make_unique<Key>();
  entry->text = key;
  entry->what = what;
  entry->value = value;
  const bool plain = !key.empty() && std::all_of(key.begin(), key.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '_' || c == '.';
  });
  if (!plain) {
    int error = 0;
    PCRE2_SIZE at = 0;
    // A key may stand for the end of a path, after a dot, or for all of it.
    const std::string expression = "^(?:.*\\.)?(?:" + key + ")$";
    if (key.size() <= kMaxKeyBytes) {
      entry->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(),
                                      PCRE2_NEVER_BACKSLASH_C | PCRE2_DOLLAR_ENDONLY, &error, &at, nullptr));
    }
    if (!entry->code) {
      offences.add(fmt::format("{}: {} is no regular expression that can be used", kPeftConfig, what));
      return;
    }
    entry->context.reset(pcre2_match_context_create(nullptr));
    TANDEM_CHECK(entry->context);
    pcre2_set_match_limit(entry->context.get(), kMatchSteps);
    pcre2_set_depth_limit(entry->context.get(), kMatchSteps);
  }
  keys_.push_back(std::move(entry));
}

std::optional<double> PeftPatterns::find(std::string_view module, Offences& offences) const {
  const Key* found = nullptr;
  for (const auto& key : keys_) {
    if (!key->matches(module)) continue;
    if (found && found->value != key->value) {
      offences.add(fmt::format("{}: {} and {} disagree about {}", kPeftConfig, found->what, key->what,
                               printable(module)));
      break;
    }
    found = key.get();
  }
  return found ? std::optional(found->value) : std::nullopt;
}

double PeftConfig::alpha_of(std::string_view module, Offences& offences) const {
  return alphas.find(module, offences).value_or(alpha);
}

PeftConfig read_peft_config(std::string_view text, const std::string& where, Offences& offences) {
  const json document = parse_json(text, where + "/" + kPeftConfig, kMaxKeys);
  if (!document.is_object()) fail(Code::BadData, "{}/{}: a JSON object is needed", where, kPeftConfig);
  PeftConfig config;
  const auto field = [&](const char* key) -> const json* {
    const auto at = document.find(key);
    return at == document.end() || at->is_null() ? nullptr : &*at;
  };
  const json* type = field("peft_type");
  if (!type || *type != "LORA") {
    offences.add(fmt::format("{}: peft_type is {}, only \"LORA\" is read here", kPeftConfig,
                             type ? shown(*type) : "missing"));
  }
  for (const Refusal& r : kRefusals) {
    const json* value = field(r.key);
    if (value && says_something(*value))
      offences.add(fmt::format("{}: {} is {}: {}", kPeftConfig, r.key, shown(*value), r.why));
  }
  if (const json* bias = field("bias"); bias && *bias != "none") {
    offences.add(fmt::format("{}: bias is {}: biases are not applied here", kPeftConfig, shown(*bias)));
  }
  if (const json* r = field("r")) config.rank = rank_of(*r, "r", offences);
  if (const json* alpha = field("lora_alpha")) config.alpha = positive(*alpha, "lora_alpha", 1, offences);
  if (const json* rslora = field("use_rslora")) config.rslora = says_something(*rslora);
  read_patterns(document, "rank_pattern", config.ranks, offences);
  read_patterns(document, "alpha_pattern", config.alphas, offences);
  if (const json* version = field("peft_version"); version && version->is_string())
    config.swapped_experts = is_before_0_19(version->get<std::string>());
  if (const json* init = field("init_lora_weights");
      init && init->is_string() && *init != "gaussian" && *init != "orthogonal") {
    log_warn("{}/{}: init_lora_weights is {}; such a start may have changed the base model's weights too",
             where, kPeftConfig, shown(*init));
  }
  std::string unknown;
  for (const auto& [key, value] : document.items()) {
    if (!is_known(key)) unknown += fmt::format("{}{}", unknown.empty() ? "" : ", ", quote(key, 40));
  }
  if (!unknown.empty())
    log_warn("{}/{}: keys that are not known here are ignored: {}", where, kPeftConfig, unknown);
  return config;
}

}  // namespace tandem
