// Shapes of known models, to measure with their matrices and layers where the files are not at hand.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "models/synth.h"

namespace tandem {

// A matrix that tokens are multiplied with.
struct NamedMatrix {
  std::string name;       // of the weight in the file, without "blk.N." and ".weight"
  Shape ne;               // {K, N} or {K, N, E}
  bool per_slot = false;  // of experts: each routed slot has its own input row (the way down)
};

struct NamedShape {
  const char* name;
  DType type;  // what its files usually hold
  int64_t n_embd, n_head, n_head_kv, d_head;
  int64_t n_expert, n_expert_used, n_ff_exp;
  std::span<const NamedMatrix> (*matrices)();  // of its layers, those of one shape once
  const char* arch;                            // whose layers do the same work
  const char* difference;                      // of these layers from the model's
  int64_t sliding_window = 0;                  // tokens, of models with layers that slide
};

std::span<const NamedShape> all_shapes();
// The shape with this name.  Throws: Usage, naming those there are.
const NamedShape& find_shape(const std::string& name);

// The type of a matrix with rows of n_in elements: `wanted`, or as write_synthetic() replaces it where rows
// are no multiple of its block.  Throws: Unsupported for a type without an encoder.
DType matrix_type(DType wanted, int64_t n_in);

// A model of `n_layer` such layers.  Throws: Unsupported, naming what can be made, for a shape whose layers
// do other work than any architecture of this engine.
SynthSettings model_of(const NamedShape& shape, int64_t n_layer, int64_t n_vocab, DType type, int64_t n_ctx);

}  // namespace tandem
