// Any bytes are either read as a GGUF LoRA adapter of a tiny model, whole and finite, or refused with an
// Error.
#include <cmath>

#include "models/adapter.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/tiny_model.h"

using namespace tandem;
using fuzz::require;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::vector<std::byte> model_bytes = fuzz::tiny_model_bytes(find_arch("qwen3moe"));
  static const Model model = Model::from(GgufFile::parse(model_bytes, "model"));
  const auto bytes = std::as_bytes(std::span(data, size));
  try {
    const AdapterSet set = AdapterSet::load(GgufFile::parse(bytes, "fuzz"), model, 1.f);
    size_t n_values = 0;
    for (const AdapterPair& p : set.pairs()) {
      require(set.find(*p.weight) == &p && p.rank > 0 && std::isfinite(p.scale));
      require(p.a_shape == Shape(p.weight->ne[0], p.rank, p.weight->ne[2]));
      require(p.b_shape == Shape(p.rank, p.weight->ne[1], p.weight->ne[2]));
      n_values += static_cast<size_t>(p.a_shape.elements() + p.b_shape.elements());
    }
    require(n_values > 0 && set.values().size() == n_values);
    for (const float x : set.values()) require(std::isfinite(x));
  } catch (const Error& e) {
    fuzz::require_refusal(e);
  }
  return 0;
}
