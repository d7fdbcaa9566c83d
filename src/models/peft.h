// LoRA adapters as Hugging Face PEFT keeps them: a directory with adapter_config.json and
// adapter_model.safetensors.  Source: lora-adapter.md 3, 4, 6, api.md 9.
#pragma once
#include <functional>
#include <string>
#include <string_view>

#include "io/safetensors.h"
#include "models/adapter.h"
#include "models/peft_config.h"

namespace tandem {

constexpr const char* kPeftTensors = "adapter_model.safetensors";

// Whether the path names a PEFT adapter rather than a GGUF file: a directory, or one of the two files in it.
bool is_peft(const std::string& path);

// Reads a PEFT adapter for this model.  What one alpha cannot express (alpha_pattern, use_rslora of several
// ranks) is multiplied into B; expert modules are stacked, missing ones are zero, lower ranks are padded with
// zeros.  Everything is checked before anything is taken, and all offences are told at once.
// Throws: Io, BadData, Unsupported.
AdapterSet read_peft(const std::string& path, const Model& model, float user_scale);
// The same from the text of its configuration and its tensors; `where` names the directory in messages.
AdapterSet parse_peft(std::string_view config, const SafetensorsFile& tensors, const Model& model,
                      float user_scale, const std::string& where);

// How experts are written: a pair per expert and projection, as in model classes that have a module for each,
// or a pair per parameter that holds all of them, as in newer ones.
enum class PeftExperts { Modules, Fused };

// Writes such a directory, F32, whole or not at all (write_directory_atomic).  The set must have been loaded
// with user scale 1.  `verify` reads the temporary directory before it takes its place.
// Throws: Usage for a place that is something else; Io; as check_peft_places; whatever verify throws.
void write_peft(const std::string& path, const AdapterSet& set, const Model& model, PeftExperts experts,
                const std::function<void(const std::string& temporary)>& verify = {});
// Throws: Unsupported, saying why, if a weight of the set has no place in PEFT that is known here.
void check_peft_places(const AdapterSet& set, const Model& model);
// Makes sure that write_peft can work; leaves nothing behind.  Throws: Usage, Io.
void check_peft_writable(const std::string& path);

}  // namespace tandem
