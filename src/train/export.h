// Writing adapters for others: each file is read back and compared before it counts.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "exec/backend.h"
#include "models/adapter.h"
#include "models/peft.h"

namespace tandem {

// Tokens of the row that logits are compared on, at most.
constexpr size_t kProofTokens = 64;

// What an export is proved with.
struct ExportProof {
  Backend& backend;
  std::vector<int32_t> tokens;  // a row of the training data, or random_tokens()
};

// A few tokens drawn from (seed, vocabulary).
std::vector<int32_t> random_tokens(const Model& model, uint64_t seed);

// Requires that two adapters have the same effect: B A of every tensor on random vectors (and number for
// number where they are stored alike), and the logits after the proof's tokens.  `where` names the second in
// messages. Throws: Internal, naming the tensor.
void require_same_effect(const AdapterSet& want, const AdapterSet& got, const Model& model,
                         const ExportProof& proof, const std::string& where);

// Writes a GGUF LoRA (write_adapter), or a PEFT directory (write_peft).  What does not read back with the
// same effect is removed, and the old file or directory stays.  Throws: Io, Internal, Usage; NonFinite if the
// logits are not finite.
void export_gguf(const AdapterSet& set, const Model& model, const ExportProof& proof, const std::string& path,
                 const std::string& name);
void export_peft(const AdapterSet& set, const Model& model, const ExportProof& proof, const std::string& path,
                 PeftExperts experts);

}  // namespace tandem
