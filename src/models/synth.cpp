#include "models/synth.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/rng.h"
#include "io/gguf_writer.h"

namespace tandem {
namespace {

constexpr int64_t kChunkElements = 1 << 16;  // of one unit of work
constexpr int64_t kChunksAtOnce = 32;        // 8 MiB as f32

// Pairs whose concatenations follow the bytes in the vocabulary; the first is " " in the byte alphabet.
constexpr std::pair<const char*, const char*> kMerges[] = {{"\xc4\xa0", "t"},   {"h", "e"}, {"i", "n"},
                                                           {"\xc4\xa0t", "he"}, {"e", "r"}, {"o", "n"},
                                                           {"\xc4\xa0", "a"},   {"in", "g"}};
constexpr const char* kControl[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
constexpr int64_t kBytes = 256, kNormalTokens = kBytes + std::size(kMerges);

// The character that stands for a byte in the vocabulary.  Source: tokenizer.md 2.
std::string byte_character(int byte) {
  const auto printed = [](int b) { return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b != 0xAD); };
  int code = byte;
  if (!printed(byte)) {
    code = 0x100;
    for (int b = 0; b < byte; ++b) code += !printed(b);
  }
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
}

void add_vocabulary(GgufWriter& out, int64_t n_vocab) {
  std::vector<std::string> tokens, merges;
  for (int b = 0; b < kBytes; ++b) tokens.push_back(byte_character(b));
  for (const auto& [left, right] : kMerges) {
    tokens.push_back(std::string(left) + right);
    merges.push_back(std::string(left) + " " + right);
  }
  tokens.insert(tokens.end(), std::begin(kControl), std::end(kControl));
  std::vector<int32_t> types(static_cast<size_t>(kNormalTokens), 1);
  types.resize(tokens.size(), 3);
  while (static_cast<int64_t>(tokens.size()) < n_vocab)
    tokens.push_back(fmt::format("[PAD{}]", tokens.size()));
  types.resize(tokens.size(), 5);
  out.add_str("tokenizer.ggml.model", "gpt2");
  out.add_str("tokenizer.ggml.pre", "qwen2");
  out.add_strings("tokenizer.ggml.tokens", tokens);
  out.add_i32s("tokenizer.ggml.token_type", types);
  out.add_strings("tokenizer.ggml.merges", merges);
  out.add_u32("tokenizer.ggml.eos_token_id", static_cast<uint32_t>(kNormalTokens + 2));
  out.add_u32("tokenizer.ggml.padding_token_id", static_cast<uint32_t>(kNormalTokens));
  out.add_bool("tokenizer.ggml.add_bos_token", false);
}

bool has_experts(const SynthSettings& s, const ArchDef& arch) {
  return arch.experts == Experts::All || (arch.experts == Experts::ByKey && s.n_expert > 0);
}

HParams as_hparams(const SynthSettings& s, const ArchDef& arch) {
  HParams h;
  h.n_layer = s.n_layer;
  h.n_embd = s.n_embd;
  h.n_vocab = s.n_vocab;
  h.n_ctx_train = s.n_ctx;
  h.n_head = s.n_head;
  h.n_head_kv = s.n_head_kv;
  h.d_head = s.d_head;
  h.d_head_v = s.d_head_v > 0 ? s.d_head_v : s.d_head;
  h.rms_eps = 1e-6f;
  h.rope.n_rot = static_cast<int32_t>(s.d_head);
  h.rope.base = 1e6f;
  if (has_experts(s, arch)) {
    h.n_expert = s.n_expert;
    h.n_expert_used = s.n_expert_used;
    h.n_ff_exp = s.n_ff_exp;
  } else {
    h.n_ff = s.n_ff;
  }
  return h;
}

// The keys that most architectures share, but for those that the architecture wrote itself.
void add_hparams(GgufWriter& out, const HParams& h, const ArchDef& arch) {
  const auto u32 = [&](const char* key, int64_t value) {
    const std::string full = fmt::format("{}.{}", arch.name, key);
    if (!out.has(full)) out.add_u32(full, static_cast<uint32_t>(value));
  };
  u32("block_count", h.n_layer + h.n_layer_nextn);
  u32("context_length", h.n_ctx_train);
  u32("embedding_length", h.n_embd);
  u32("feed_forward_length", h.n_ff > 0 ? h.n_ff : h.n_ff_exp * h.n_expert_used);
  u32("attention.head_count", h.n_head);
  u32("attention.head_count_kv", h.n_head_kv);
  u32("attention.key_length", h.d_head);
  u32("attention.value_length", h.d_head_v);
  u32("rope.dimension_count", h.rope.n_rot);
  out.add_f32(fmt::format("{}.rope.freq_base", arch.name), h.rope.base);
  out.add_f32(fmt::format("{}.attention.layer_norm_rms_epsilon", arch.name), h.rms_eps);
  if (h.n_expert == 0) return;
  u32("expert_count", h.n_expert);
  u32("expert_used_count", h.n_expert_used);
  u32("expert_feed_forward_length", h.n_ff_exp);
}

void check(const SynthSettings& s, const ArchDef& arch) {
  if (s.n_head % s.n_head_kv) {
    fail(Code::Usage, "--heads {} cannot share --kv-heads {} evenly", s.n_head, s.n_head_kv);
  }
  if (s.d_head % 2) fail(Code::Usage, "--head-dim is {}, it must be even", s.d_head);
  if (arch.experts == Experts::All && s.n_expert < 1) {
    fail(Code::Usage, "--experts is {}; every {} model has experts", s.n_expert, arch.name);
  }
  if (has_experts(s, arch) && s.n_expert_used > s.n_expert) {
    fail(Code::Usage, "--experts-used is {}, there are only {} experts", s.n_expert_used, s.n_expert);
  }
  if (s.n_vocab < synth_min_vocab()) {
    fail(Code::Usage, "--vocab is {}, the bytes, merges and markers alone are {}", s.n_vocab,
         synth_min_vocab());
  }
  const TypeInfo& info = type_info(s.type);
  if (info.codec && info.codec->encode) return;
  std::string known;
  for (const TypeInfo& t : all_types()) {
    if (t.codec && t.codec->encode) known += fmt::format("{}{}", known.empty() ? "" : ", ", t.name);
  }
  fail(Code::Unsupported, "--type {}: this type cannot be written; these can: {}", info.name, known);
}

// What one tensor's numbers are.
struct Numbers {
  DType type;
  Shape ne;
  uint64_t key;
  float centre, bound;  // uniform in centre +- bound
};

// Elements [begin, end) in order; begin is a multiple of 4.  One hash gives four numbers of 16 bits.
void draw(const Numbers& f, int64_t begin, int64_t end, float* out) {
  const float step = f.bound / 32768.f;
  for (int64_t i = begin; i < end; i += 4) {
    uint64_t bits = mix64(f.key + static_cast<uint64_t>(i / 4));
    for (int64_t j = i; j < std::min(i + 4, end); ++j, bits >>= 16) {
      *out++ = f.centre + (static_cast<float>(bits & 0xFFFF) - 32767.5f) * step;
    }
  }
}

// Chunks of a tensor, drawn and encoded by the threads of the pool.
struct ChunkWork {
  const Numbers& filling;
  int64_t begin, end, chunk;  // elements
  std::vector<float>& numbers;
  std::vector<std::byte>& blocks;

  static void run(const void* arg, int64_t unit, int) noexcept {
    const auto& w = *static_cast<const ChunkWork*>(arg);
    const int64_t first = w.begin + unit * w.chunk, last = std::min(first + w.chunk, w.end);
    float* numbers = w.numbers.data() + unit * w.chunk;
    draw(w.filling, first, last, numbers);
    type_info(w.filling.type)
        .codec->encode(numbers, w.blocks.data() + unit * row_bytes(w.filling.type, w.chunk), last - first);
  }
};

void produce(const Numbers& f, ThreadPool& pool, const ByteSink& sink) {
  // Whole blocks of every type, and a multiple of 4; the numbers do not depend on where a chunk begins.
  const int64_t total = f.ne.elements(), chunk = kChunkElements;
  std::vector<float> numbers(static_cast<size_t>(std::min(total, chunk * kChunksAtOnce) + 4));
  std::vector<std::byte> blocks(static_cast<size_t>(row_bytes(f.type, chunk) * kChunksAtOnce));
  for (int64_t begin = 0; begin < total; begin += chunk * kChunksAtOnce) {
    const int64_t end = std::min(total, begin + chunk * kChunksAtOnce);
    const ChunkWork work{f, begin, end, chunk, numbers, blocks};
    const Task task{ChunkWork::run, &work, (end - begin + chunk - 1) / chunk};
    pool.run({&task, 1}, Priority::Training);
    sink(std::span(blocks).first(static_cast<size_t>(row_bytes(f.type, end - begin))));
  }
}

class Writer {
 public:
  Writer(const SynthSettings& settings, ThreadPool& pool) : s_(settings), pool_(pool) {}

  struct Kind {
    std::string_view role = "";
    bool f32 = false;
    Filling filling = Filling::Usual;
  };
  void add(GgufWriter& out, const std::string& name, const Shape& ne, const Kind& kind) {
    Numbers f;
    f.ne = ne;
    f.key = random_bits({s_.seed, key_of(name)});
    if (ne.rows() == 1 || kind.filling != Filling::Usual) {
      f.type = DType::F32;
      f.centre = kind.filling == Filling::Usual ? 1.f : kind.filling == Filling::Rate ? -1.f : 0.f;
      f.bound = 0.1f;
    } else {
      f.type = kind.f32 || kind.role == "ffn_gate_inp" ? DType::F32 : type_for(name, ne[0]);
      f.centre = 0.f;
      f.bound = std::sqrt(3.f / static_cast<float>(ne[0]));
    }
    out.add_tensor(name, f.type, ne.ne, [f, this](const ByteSink& sink) { produce(f, pool_, sink); });
  }

  void report() const {
    if (n_replaced_ == 0) return;
    log_warn("{} tensors ({} the first) have rows that are no multiple of {}'s block; they are {} instead",
             n_replaced_, first_replaced_, name_of(s_.type), replacement_);
  }

 private:
  DType type_for(const std::string& name, int64_t n_in) {
    DType type = s_.type;
    if (n_in % type_info(type).block_elements) type = DType::Q8_0;
    if (n_in % type_info(type).block_elements) type = DType::F16;
    if (type != s_.type) {
      if (n_replaced_++ == 0) first_replaced_ = name;
      if (replacement_.find(name_of(type)) == std::string::npos) {
        replacement_ += fmt::format("{}{}", replacement_.empty() ? "" : " or ", name_of(type));
      }
    }
    return type;
  }

  const SynthSettings& s_;
  ThreadPool& pool_;
  int n_replaced_ = 0;
  std::string first_replaced_, replacement_;
};

}  // namespace

int64_t synth_min_vocab() { return kNormalTokens + static_cast<int64_t>(std::size(kControl)); }

void write_synthetic(const ArchDef& arch, const SynthSettings& settings, ThreadPool& pool,
                     const std::string& path) {
  check(settings, arch);
  HParams h = as_hparams(settings, arch);
  GgufWriter out;
  out.add_str("general.architecture", arch.name);
  out.add_str("general.type", "model");
  out.add_str("general.name", fmt::format("random {}", arch.name));
  if (arch.synth) arch.synth(settings, h, out);
  add_hparams(out, h, arch);
  add_vocabulary(out, settings.n_vocab);
  Writer writer(settings, pool);
  for (const GlobalWeightSpec& spec : global_weights()) {
    if (spec.slot == &GlobalWeights::output && settings.tied) continue;
    if (spec.slot == &GlobalWeights::rope_freqs && !arch.rope_freqs) continue;
    writer.add(out, spec.name, spec.shape(h), {});
  }
  for (int64_t il = 0; il < h.n_layer; ++il) {
    for (const LayerWeightSpec& spec : arch.layer_weights) {
      if (!spec.present_in(h, il)) continue;
      writer.add(out, fmt::format(fmt::runtime(spec.name), il), spec.shape(h),
                 {spec.role, spec.f32, spec.filling});
    }
  }
  writer.report();
  out.write(path);
}

}  // namespace tandem
