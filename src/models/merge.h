// A model file whose weights have adapters added in.  Source: lora-adapter.md 1.
#pragma once
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "models/adapter.h"

namespace tandem {

// A weight that is merged, and the type it gets.
struct MergedWeight {
  const Weight* weight = nullptr;
  DType type = DType::F32;
};

// The weights that the adapters touch, in file order, each in its own type or in `type`.
// Throws: Unsupported, naming every tensor whose type cannot be written, or whose rows are no multiple of the
// type's block; Usage if there is nothing to merge.
std::vector<MergedWeight> plan_merge(const Model& model, std::span<const AdapterSet* const> adapters,
                                     std::optional<DType> type);

// Writes the model: W' = W + sum of scale B A, computed in f32 and encoded as planned; everything else, keys
// too, byte for byte.  Holds some rows in memory, never a tensor.  The file is read back before it takes its
// place: a model whose other tensors and keys are those of the base, whose merged ones are what was computed.
// Throws: NonFinite for a sum that its type cannot hold; Io, Internal.
void write_merged(const std::string& path, const Model& model, std::span<const AdapterSet* const> adapters,
                  const std::vector<MergedWeight>& plan, ThreadPool& pool);

}  // namespace tandem
