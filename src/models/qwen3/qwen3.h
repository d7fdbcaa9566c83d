// What qwen3 and qwen3moe share.
#pragma once
#include "models/build.h"

namespace tandem {

// The attention half of a layer, residual included: x {n_embd, T} -> {n_embd, T}.  Source:
// architectures.md 3.
Tensor qwen3_attention(Build& b, const LayerWeights& w, Tensor x);

}  // namespace tandem
