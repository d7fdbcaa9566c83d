// Adapters that a command is given, and places where it writes.
#pragma once
#include <string>
#include <vector>

#include "base/options.h"
#include "models/adapter.h"

namespace tandem {

// A GGUF LoRA or a PEFT directory; warns if it was made for other weights, or refuses it (--strict-base).
// Throws: what AdapterSet::load throws; BadData.
AdapterSet load_adapter(const Options& options, const std::string& path, const Model& model,
                        float user_scale = 1.f);
// Those of --lora and --lora-scaled.
std::vector<AdapterSet> load_adapters(const Options& options, const Model& model);
// Their paths.
std::vector<std::string> adapter_paths(const Options& options);

// Throws: Usage if `out` is one of the inputs, or the PEFT directory of one.
void refuse_overwriting(const std::string& flag, const std::string& out,
                        const std::vector<std::string>& inputs);

}  // namespace tandem
