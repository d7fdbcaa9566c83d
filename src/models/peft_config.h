// What the configuration of a PEFT adapter says of scales and ranks.  Source: lora-adapter.md 3.1.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/offences.h"

namespace tandem {

constexpr const char* kPeftConfig = "adapter_config.json";

// A value for the modules whose path a key names: its end, or a regular expression for it.
class PeftPatterns {
 public:
  PeftPatterns();
  ~PeftPatterns();
  PeftPatterns(PeftPatterns&&) noexcept;
  PeftPatterns& operator=(PeftPatterns&&) noexcept;
  // A key that is no regular expression is an offence.
  void add(const std::string& key, double value, const std::string& what, Offences& offences);
  // The value for a module, "model.layers.0.self_attn.q_proj".  Keys that disagree are an offence.
  std::optional<double> find(std::string_view module, Offences& offences) const;

 private:
  struct Key;
  std::vector<std::unique_ptr<Key>> keys_;
};

struct PeftConfig {
  std::optional<int64_t> rank;
  double alpha = 8;  // PEFT's own default
  bool rslora = false;
  PeftPatterns ranks, alphas;
  bool swapped_experts = false;  // PEFT before 0.19 took the two sides of an experts' parameter the other way

  double alpha_of(std::string_view module, Offences& offences) const;
};

// Reads it.  What this engine does not do is an offence each; warns of keys it does not know.
// Throws: BadData if it is no JSON object.
PeftConfig read_peft_config(std::string_view text, const std::string& where, Offences& offences);

}  // namespace tandem
