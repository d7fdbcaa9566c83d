// Any bytes are either a model whose hyper-parameters, weights and vocabulary fit together, or refused with
// an Error.
#include "models/adapter.h"
#include "models/model.h"
#include "tests/fuzz/fuzz.h"
#include "text/vocab.h"

using namespace tandem;
using fuzz::require;

namespace {

// Every byte of every weight can be reached, as a layer would.
void read_weight(const Weight& w, std::span<const std::byte> bytes) {
  if (!w.present()) return;
  require(decodable(w.type) && w.ne.elements() > 0);
  const auto* begin = static_cast<const std::byte*>(w.data);
  const auto n = static_cast<size_t>(row_bytes(w.type, w.ne[0]) * w.ne.rows());
  require(begin >= bytes.data() && n <= bytes.size() &&
          static_cast<size_t>(begin - bytes.data()) <= bytes.size() - n);
}

void read_model(const Model& model, std::span<const std::byte> bytes) {
  const HParams& h = model.hparams();
  require(h.n_head % h.n_head_kv == 0 && h.d_head > 0 && h.d_head_v > 0 && h.rope.n_rot % 2 == 0);
  require(h.n_expert_used <= h.n_expert);
  for (const GlobalWeightSpec& spec : global_weights()) read_weight(model.global().*spec.slot, bytes);
  for (int64_t il = 0; il < h.n_layer; ++il) {
    for (const LayerWeightSpec& spec : model.arch().layer_weights) {
      const Weight& w = model.layer(il).*spec.slot;
      require(w.present() && model.find(w.name) == &w);
      read_weight(w, bytes);
    }
  }
  require(!resolve_targets(model, "all").empty());
}

void read_tokenizer(const Tokenizer& t) {
  for (const char* text : {"a b\n\n<|im_end|> ab", "h\u00E9 \u6F22 12"}) {
    for (const bool special : {false, true}) {
      for (const int32_t id : t.encode(text, special)) require(id >= 0 && id < t.n_vocab());
    }
  }
  for (int32_t id = 0; id < t.n_vocab(); ++id) require(is_utf8(t.decode({&id, 1}, true)));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  try {
    const Model model = Model::from(GgufFile::parse(bytes, "fuzz"));
    read_model(model, bytes);
    read_tokenizer(Tokenizer(read_vocab(model.file())));
  } catch (const Error& e) {
    fuzz::require_refusal(e);
  }
  return 0;
}
