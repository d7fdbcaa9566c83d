// A model: hyper-parameters, weights and the description of its architecture.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "io/gguf.h"
#include "ops/ops.h"

namespace tandem {

// Named as in GGUF.  Source: gguf.md 11.
struct HParams {
  int64_t n_layer = 0;
  int64_t n_embd = 0;
  int64_t n_vocab = 0;
  int64_t n_ctx_train = 0;  // tokens
  int64_t n_head = 0;
  int64_t n_head_kv = 0;
  int64_t d_head = 0;  // of queries and keys
  int64_t d_head_v = 0;
  int64_t n_ff = 0;      // dense FFN width, 0 without one
  int64_t n_expert = 0;  // 0: dense
  int64_t n_expert_used = 0;
  int64_t n_ff_exp = 0;  // width of one expert
  float rms_eps = 0;
  RopeParams rope;
};

// A frozen weight in the mapped file.
struct Weight {
  std::string name;
  DType type = DType::F32;
  Shape ne;
  const void* data = nullptr;
  const char* role = "";  // LoRA target name, empty: never adapted
  int layer = -1;         // -1: of the whole model

  bool present() const { return !name.empty(); }
};

// The weights of one layer; each architecture uses its own subset.
struct LayerWeights {
  Weight attn_norm, attn_q, attn_k, attn_v, attn_output, attn_q_norm, attn_k_norm;
  Weight ffn_norm, ffn_gate, ffn_up, ffn_down;
  Weight ffn_gate_inp, ffn_gate_exps, ffn_up_exps, ffn_down_exps;
};

struct GlobalWeights {
  Weight token_embd, output_norm, output;  // output absent: token_embd serves (tied)
};

// Where a weight is in a Hugging Face model, below "model.layers.N.".  Source: lora-adapter.md 3.4, 4.
struct HfPlace {
  const char* module = "";    // "self_attn.q_proj"; {} stands for the expert: "mlp.experts.{}.gate_proj"
  const char* fused = "";     // of experts: the parameter that holds all of them, "mlp.experts.gate_up_proj"
  int part = 0, n_parts = 1;  // which of that parameter's equal runs of output rows
};

// What a weight is, in the schema of an architecture: the one source of load checks, adapter targets, names
// of other formats, and synthetic models.  Roles are those of api.md 10; "router" and "" are never trained
// from the command line.
struct LayerWeightSpec {
  const char* name;  // "blk.{}.attn_q.weight"
  Weight LayerWeights::*slot;
  Shape (*shape)(const HParams& h);
  const char* role = "";
  HfPlace hf = {};
};

struct GlobalWeightSpec {
  const char* name;
  Weight GlobalWeights::*slot;
  Shape (*shape)(const HParams& h);
  bool optional = false;
  const char* hf = "";  // Hugging Face module
};

class Build;

// One architecture, described once.
struct ArchDef {
  const char* name;                                // general.architecture
  void (*read)(const GgufFile& file, HParams& h);  // what goes beyond the common keys; throws BadData
  std::span<const LayerWeightSpec> layer_weights;
  Tensor (*layer)(Build& b, const LayerWeights& w, Tensor x);  // x {n_embd, T} -> {n_embd, T}
  bool moe;
};

// The description with this name; throws Unsupported, naming those that exist.
const ArchDef& find_arch(std::string_view name);
std::span<const ArchDef* const> all_archs();
// The weights outside the layers, the same for every architecture here.
std::span<const GlobalWeightSpec> global_weights();

// A model, opened and checked against its schema.  Weights stay mapped.
class Model {
 public:
  // Throws BadData for a file that breaks the schema (naming every tensor that is missing or has another
  // shape), Unsupported for an architecture or tensor type this engine does not have; as GgufFile::open.
  static Model open(const std::string& path);
  // The same for a file that is open already, or in memory.
  static Model from(GgufFile file);

  const ArchDef& arch() const { return *arch_; }
  const HParams& hparams() const { return hparams_; }
  const GgufFile& file() const { return *file_; }
  const LayerWeights& layer(int64_t il) const { return layers_[static_cast<size_t>(il)]; }
  std::span<const LayerWeights> layers() const { return layers_; }
  const GlobalWeights& global() const { return global_; }
  const Weight& output() const { return global_.output.present() ? global_.output : global_.token_embd; }
  // Every adaptable weight, layer by layer in schema order.
  std::vector<const Weight*> adaptable() const;
  // The weight of that tensor name, or null.
  const Weight* find(std::string_view name) const;
  size_t mapped_bytes() const;  // of all weights
  // The identity of the weights, as written into adapters and checkpoints (io/base_hash.h).
  std::string base_hash() const;

 private:
  Model() = default;
  std::unique_ptr<GgufFile> file_;
  const ArchDef* arch_ = nullptr;
  HParams hparams_;
  std::vector<LayerWeights> layers_;
  GlobalWeights global_;
};

// Reads and checks the keys all architectures share.  Throws BadData.  Source: gguf.md 7.22, 11.
HParams read_hparams(const GgufFile& file, const ArchDef& arch);

}  // namespace tandem
