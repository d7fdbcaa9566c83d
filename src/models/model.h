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

// How experts are chosen and weighted.  Source: architectures.md 1.6.
enum class Gating {
  Softmax,  // over all experts; where weights are renormalized this equals softmax over the chosen alone
  Sigmoid,  // of each expert by itself, chosen by score plus a bias if the model has one
};
struct Routing {
  Gating gating = Gating::Softmax;
  bool renormalize = true;  // the weights of a token sum to 1, before `scale`
  float scale = 1.f;
  // Experts stand in this many equal groups, of which the best take part in the choice; 0: no groups.
  int n_group = 0;
  int n_group_used = 0;
};

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
  int64_t n_ff_exp = 0;            // width of one expert
  int64_t n_ff_shexp = 0;          // width of the shared expert, 0 without one
  int64_t n_layer_dense_lead = 0;  // layers before the first with experts
  Routing routing;
  float rms_eps = 0;
  RopeParams rope;
  int64_t n_layer_nextn = 0;  // layers of the file after n_layer that predict further tokens; left alone

  // Attention.
  int64_t sliding_window = 0;  // keys a token sees in a sliding layer, itself included; 0: no layer slides
  float attention_scale = 0;   // of the scores; 0: 1 / sqrt(d_head)
  int64_t kv_lora_rank = 0;    // of multi-head latent attention
  int64_t q_lora_rank = 0;     // the same of queries, 0: they are not compressed
  bool kv_b_by_head = false;   // keys and values of a head come from tensors of their own, not from one

  // Gated DeltaNet.  Source: architectures.md 2.1.
  int64_t full_attention_interval = 0;  // every so many layers, one is full attention; 0: all are
  int64_t ssm_conv_kernel = 0;          // taps
  int64_t ssm_state_size = 0;           // of a key head
  int64_t ssm_group_count = 0;          // key heads
  int64_t ssm_time_step_rank = 0;       // value heads
  int64_t ssm_inner_size = 0;           // of all value heads together

  bool is_recurrent(int64_t il) const {
    return full_attention_interval > 0 && (il + 1) % full_attention_interval != 0;
  }
  int64_t conv_channels() const { return 2 * ssm_group_count * ssm_state_size + ssm_inner_size; }
  // Numbers a recurrent layer carries from token to token: the convolution's last inputs, and the state.
  int64_t state_elements() const {
    return full_attention_interval > 0
               ? (ssm_conv_kernel - 1) * conv_channels() + ssm_state_size * ssm_inner_size
               : 0;
  }
  // The factor of attention scores.
  float score_scale() const;
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
  Weight attn_q_bias, attn_k_bias, attn_v_bias, attn_output_bias, attn_sinks;
  // Multi-head latent attention.
  Weight attn_q_a, attn_q_a_norm, attn_q_b, attn_kv_a_mqa, attn_kv_a_norm, attn_kv_b, attn_k_b, attn_v_b;
  // Gated DeltaNet.
  Weight attn_qkv, attn_gate, ssm_conv1d, ssm_beta, ssm_alpha, ssm_ba, ssm_dt, ssm_a, ssm_norm, ssm_out;
  Weight ffn_norm, ffn_gate, ffn_up, ffn_down;
  Weight ffn_gate_inp, ffn_gate_exps, ffn_up_exps, ffn_down_exps;
  Weight ffn_gate_inp_bias, ffn_gate_exps_bias, ffn_up_exps_bias, ffn_down_exps_bias, exp_probs_b;
  Weight ffn_gate_inp_shexp, ffn_gate_shexp, ffn_up_shexp, ffn_down_shexp;
};

struct GlobalWeights {
  Weight token_embd, output_norm, output;  // output absent: token_embd serves (tied)
  Weight rope_freqs;                       // divisors of the rotary angles, {n_rot / 2}
};

// Where a weight is in a Hugging Face model, below "model.layers.N.".  Source: lora-adapter.md 3.4, 4.
struct HfPlace {
  const char* module = "";    // "self_attn.q_proj"; {} stands for the expert: "mlp.experts.{}.gate_proj"
  const char* fused = "";     // of experts: the parameter that holds all of them, "mlp.experts.gate_up_proj"
  int part = 0, n_parts = 1;  // which of that parameter's equal runs of output rows
  const char* refusal = "";   // instead of a module: why adapters of it are not exchanged with PEFT
};

// What numbers a synthetic model has in a weight.
enum class Filling {
  Usual,  // matrices around 0, vectors (gains) around 1
  Bias,   // vectors around 0
  Rate,   // vectors around -1: logarithms of decays are multiplied by it
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
  // Which layers have it; null: every one.
  bool (*in_layer)(const HParams& h, int64_t il) = nullptr;
  bool optional = false;  // a file may lack it
  bool f32 = false;       // must be F32, as vectors must: an op reads it as it is
  Filling filling = Filling::Usual;

  bool present_in(const HParams& h, int64_t il) const { return !in_layer || in_layer(h, il); }
};

struct GlobalWeightSpec {
  const char* name;
  Weight GlobalWeights::*slot;
  Shape (*shape)(const HParams& h);
  bool optional = false;
  const char* hf = "";  // Hugging Face module
};

class Build;

class GgufWriter;
struct SynthSettings;

// Which models of an architecture have experts.
enum class Experts {
  None,
  All,
  ByKey,  // those whose expert_count is positive
};

// One architecture, described once.
struct ArchDef {
  const char* name;                                // general.architecture
  void (*read)(const GgufFile& file, HParams& h);  // what goes beyond the common keys; throws BadData
  std::span<const LayerWeightSpec> layer_weights;
  Tensor (*layer)(Build& b, const LayerWeights& w, Tensor x);  // x {n_embd, T} -> {n_embd, T}
  Experts experts = Experts::None;
  bool rope_freqs = false;  // a file may divide the rotary angles (rope_freqs.weight)
  // The inverse of `read` for a synthetic model: completes h, in which the common part is set, and writes the
  // keys that `read` takes; common keys that mean something else here too.  Throws Usage for settings that do
  // not fit the architecture.
  void (*synth)(const SynthSettings& settings, HParams& h, GgufWriter& out) = nullptr;
};

// The description with this name; throws Unsupported, naming those that exist.
const ArchDef& find_arch(std::string_view name);
std::span<const ArchDef* const> all_archs();
// The weights outside the layers, the same for every architecture here.
std::span<const GlobalWeightSpec> global_weights();

// What a file does not say and engines do differently.
struct ModelOptions {
  // The ends of YaRN's ramp are rounded outward to whole pairs, as llama.cpp does.  gpt-oss was trained
  // without that.  Source: architectures.md 6.
  bool yarn_round = true;
};

// A model, opened and checked against its schema.  Weights stay mapped.
class Model {
 public:
  // Throws BadData for a file that breaks the schema (naming every tensor that is missing or has another
  // shape), Unsupported for an architecture or tensor type this engine does not have; as GgufFile::open.
  static Model open(const std::string& path, const ModelOptions& options = {});
  // The same for a file that is open already, or in memory.
  static Model from(GgufFile file, const ModelOptions& options = {});

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

// Reads and checks the keys all architectures share, then those of `arch`.  Throws BadData.  Source: gguf.md
// 7.22, 11.
HParams read_hparams(const GgufFile& file, const ArchDef& arch);

// For ArchDef::read: keys with their bounds, which keep later arithmetic far from overflow.  Each throws
// BadData, naming the key, what it is and what it may be.
int64_t bounded(const GgufFile& file, const std::string& key, int64_t lo, int64_t hi);
int64_t bounded_or(const GgufFile& file, const std::string& key, int64_t lo, int64_t hi, int64_t otherwise);
float finite_f32(const GgufFile& file, const std::string& key, float otherwise);
float positive_f32(const GgufFile& file, const std::string& key, float otherwise);

}  // namespace tandem
