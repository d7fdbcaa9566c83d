// Case lists of parts of models, built by what builds the models (models/build.h) on tiny random ones.
#pragma once
#include <vector>

#include "tests/op/op_case.h"

namespace tandem {

// Router, experts and weighted sum; each kind of router that has its ops.
std::vector<OpCase> moe_block_cases();
// Attention with its norms and rotation.
std::vector<OpCase> attention_block_cases();
// One layer of each architecture, and two layers through quantized experts, with trained adapters.
std::vector<OpCase> layer_block_cases();

}  // namespace tandem
