// Models of random weights, tiny or of a real shape, made from the schema of an architecture.
#pragma once
#include <cstdint>
#include <string>

#include "base/thread_pool.h"
#include "models/model.h"

namespace tandem {

struct SynthSettings {
  int64_t n_layer = 2;
  int64_t n_embd = 256;
  int64_t n_head = 4;
  int64_t n_head_kv = 2;
  int64_t d_head = 128;       // even; n_head * d_head need not be n_embd
  int64_t d_head_v = 0;       // 0: d_head
  int64_t n_value_heads = 0;  // of linear attention; 0: twice n_head, which are its key heads
  int64_t n_ff = 512;         // without experts
  int64_t n_expert = 8;       // of architectures with and without: 0 makes the dense one
  int64_t n_expert_used = 2;
  int64_t n_ff_exp = 256;
  int64_t n_vocab = 320;  // at least synth_min_vocab()
  int64_t n_ctx = 512;
  int64_t sliding_window = 8;  // tokens, of architectures with layers that slide
  DType type = DType::Q4_K;    // of matrices; Q8_0, then F16, where rows are no multiple of its block
  bool tied = false;           // no output.weight
  // Of deepseek2.
  int64_t q_lora_rank = 0;      // 0: queries are not compressed
  bool joint_kv_b = false;      // keys and values of all heads come from one matrix, as in older files
  bool sigmoid_router = false;  // that of DeepSeek-V3: bias, groups where they fit, renormalized, scaled
  uint64_t seed = 42;
};

// The bytes, some merges, <|endoftext|>, <|im_start|> and <|im_end|>.
int64_t synth_min_vocab();

// Writes the model: weights uniform with deviation 1 / sqrt(n_in), a function of (seed, tensor, element);
// gains of norms near 1; a byte-level vocabulary with ChatML markers.  Never holds more than a few rows in
// memory.  Atomic. Throws: Usage for sizes that do not fit together, Unsupported for a type without an
// encoder, Io.
void write_synthetic(const ArchDef& arch, const SynthSettings& settings, ThreadPool& pool,
                     const std::string& path);

}  // namespace tandem
