#include "tests/interop/peer.h"

#include <dlfcn.h>

#include <cstring>
#include <filesystem>

#include "base/error.h"

namespace tandem {
namespace {

const std::string kFolder =
    std::string(TANDEM_SOURCE_DIR) + "/tests/interop/node_modules/@node-llama-cpp/linux-x64/bins/linux-x64/";
const std::string kGgml = kFolder + "libggml.v0.5.0.so", kLlama = kFolder + "libllama.v0.5.0.so";

// A parameter block of the library.  Blocks go by value in memory, so the callee reads its own fields and the
// rest is harmless; offsets are those of release v0.5.0, and check_layout() looks whether they hold.
struct Block {
  alignas(8) unsigned char bytes[256];

  void set_u8(size_t at, bool value) { bytes[at] = value; }
  void set_u32(size_t at, uint32_t value) { std::memcpy(bytes + at, &value, sizeof value); }
  uint32_t u32(size_t at) const {
    uint32_t value;
    std::memcpy(&value, bytes + at, sizeof value);
    return value;
  }
};

// llama_model_params
constexpr size_t kUseExtraBuffers = 74;
// llama_context_params
constexpr size_t kContext = 0, kBatch = 4, kMicroBatch = 8, kSequences = 12, kThreads = 28,
                 kBatchThreads = 32, kFlashAttention = 52, kKeyType = 104, kValueType = 108;

// llama_batch
struct Batch {
  int32_t n_tokens;
  int32_t* token;
  float* embd;
  int32_t* pos;
  int32_t* n_seq_id;
  int32_t** seq_id;
  int8_t* logits;
};

std::string logged;  // errors of the library since the last call

extern "C" void take_log(int level, const char* text, void*) {
  constexpr int kWarning = 3, kError = 4;
  if (level == kWarning || level == kError) logged += text;
}

}  // namespace

// The functions that are used, by the names they have in llama.h.
class PeerLibrary {
 public:
  PeerLibrary() {
    ggml_ = open(kGgml, RTLD_NOW | RTLD_GLOBAL);
    llama_ = open(kLlama, RTLD_NOW);
    find(ggml_, "ggml_backend_load_all_from_path", load_backends);
    find(llama_, "llama_log_set", log_set);
    find(llama_, "llama_backend_init", init);
    find(llama_, "llama_model_default_params", model_defaults);
    find(llama_, "llama_context_default_params", context_defaults);
    find(llama_, "llama_model_load_from_file", load_model);
    find(llama_, "llama_model_free", free_model);
    find(llama_, "llama_init_from_model", new_context);
    find(llama_, "llama_free", free_context);
    find(llama_, "llama_model_get_vocab", get_vocab);
    find(llama_, "llama_vocab_n_tokens", vocab_size);
    find(llama_, "llama_tokenize", tokenize);
    find(llama_, "llama_adapter_lora_init", load_adapter);
    find(llama_, "llama_set_adapters_lora", set_adapters);
    find(llama_, "llama_batch_init", new_batch);
    find(llama_, "llama_batch_free", free_batch);
    find(llama_, "llama_decode", decode);
    find(llama_, "llama_get_logits_ith", get_logits);
    find(llama_, "llama_get_memory", get_memory);
    find(llama_, "llama_memory_clear", clear_memory);
    log_set(take_log, nullptr);
    load_backends(kFolder.c_str());
    init();
    check_layout();
  }

  void (*load_backends)(const char* folder);
  void (*log_set)(void (*take)(int, const char*, void*), void* data);
  void (*init)();
  Block (*model_defaults)();
  Block (*context_defaults)();
  void* (*load_model)(const char* path, Block params);
  void (*free_model)(void* model);
  void* (*new_context)(void* model, Block params);
  void (*free_context)(void* context);
  void* (*get_vocab)(void* model);
  int32_t (*vocab_size)(void* vocab);
  int32_t (*tokenize)(void* vocab, const char* text, int32_t n_bytes, int32_t* tokens, int32_t n_max,
                      bool add_special, bool parse_special);
  void* (*load_adapter)(void* model, const char* path);
  int32_t (*set_adapters)(void* context, void** adapters, size_t n, float* scales);
  Batch (*new_batch)(int32_t n_tokens, int32_t embd, int32_t n_seq_max);
  void (*free_batch)(Batch batch);
  int32_t (*decode)(void* context, Batch batch);
  float* (*get_logits)(void* context, int32_t i);
  void* (*get_memory)(void* context);
  void (*clear_memory)(void* memory, bool data);

 private:
  static void* open(const std::string& path, int flags) {
    void* handle = dlopen(path.c_str(), flags);
    if (!handle) fail(Code::Io, "{}", dlerror());
    return handle;
  }
  template <class F>
  static void find(void* library, const char* name, F& function) {
    void* address = dlsym(library, name);
    if (!address) fail(Code::Internal, "llama.cpp has no function {}", name);
    std::memcpy(&function, &address, sizeof address);
  }
  // Documented defaults at the offsets used: another release would show here, not as wrong logits.
  void check_layout() const {
    const Block c = context_defaults(), m = model_defaults();
    constexpr uint32_t kF16 = 1;
    TANDEM_CHECK(c.u32(kContext) == 512 && c.u32(kBatch) == 2048 && c.u32(kMicroBatch) == 512);
    TANDEM_CHECK(c.u32(kSequences) == 1 && c.u32(kThreads) == 4 && c.u32(kBatchThreads) == 4);
    TANDEM_CHECK(c.u32(kKeyType) == kF16 && c.u32(kValueType) == kF16);
    TANDEM_CHECK(m.bytes[kUseExtraBuffers] == 1);
  }

  void* ggml_ = nullptr;
  void* llama_ = nullptr;
};

std::optional<std::string> peer_missing() {
#if !defined(__x86_64__)
  return "not run: llama.cpp's package is for x86-64";
#endif
  if (std::filesystem::exists(kLlama)) return std::nullopt;
  return "not run: llama.cpp's package is not installed (./dev test --interop installs it)";
}

namespace {

PeerLibrary& library() {
  static PeerLibrary lib;
  return lib;
}

}  // namespace

Peer::Peer(const std::string& model_path, const std::vector<PeerAdapter>& adapters, int64_t context_tokens)
    : lib_(library()), context_tokens_(context_tokens) {
  logged.clear();
  Block model_params = lib_.model_defaults();
  model_params.set_u8(kUseExtraBuffers, false);
  model_ = lib_.load_model(model_path.c_str(), model_params);
  if (!model_) fail(Code::Internal, "llama.cpp refuses {}: {}", model_path, logged);
  n_vocab_ = lib_.vocab_size(lib_.get_vocab(model_));
  Block params = lib_.context_defaults();
  const auto n = static_cast<uint32_t>(context_tokens);
  for (const size_t at : {kContext, kBatch, kMicroBatch}) params.set_u32(at, n);
  for (const size_t at : {kThreads, kBatchThreads}) params.set_u32(at, 1);
  for (const size_t at : {kFlashAttention, kKeyType, kValueType}) params.set_u32(at, 0);
  context_ = lib_.new_context(model_, params);
  if (!context_) fail(Code::Internal, "llama.cpp makes no context for {}: {}", model_path, logged);
  std::vector<float> scales;
  for (const PeerAdapter& a : adapters) {
    void* adapter = lib_.load_adapter(model_, a.path.c_str());
    if (!adapter) fail(Code::Internal, "llama.cpp refuses the adapter {}: {}", a.path, logged);
    adapters_.push_back(adapter);
    scales.push_back(a.scale);
  }
  if (!adapters_.empty() &&
      lib_.set_adapters(context_, adapters_.data(), adapters_.size(), scales.data()) != 0) {
    fail(Code::Internal, "llama.cpp does not apply the adapters: {}", logged);
  }
}

Peer::~Peer() {
  if (context_) lib_.free_context(context_);
  if (model_) lib_.free_model(model_);  // and its adapters
}

std::vector<int32_t> Peer::tokens(const std::string& text) const {
  std::vector<int32_t> out(text.size() + 8);
  const int32_t n = lib_.tokenize(lib_.get_vocab(model_), text.data(), static_cast<int32_t>(text.size()),
                                  out.data(), static_cast<int32_t>(out.size()), false, true);
  TANDEM_CHECK(n >= 0);
  out.resize(static_cast<size_t>(n));
  return out;
}

std::vector<float> Peer::logits(std::span<const int32_t> tokens) {
  TANDEM_CHECK(!tokens.empty() && static_cast<int64_t>(tokens.size()) <= context_tokens_);
  lib_.clear_memory(lib_.get_memory(context_), true);
  Batch batch = lib_.new_batch(static_cast<int32_t>(tokens.size()), 0, 1);
  batch.n_tokens = static_cast<int32_t>(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    batch.token[i] = tokens[i];
    batch.pos[i] = static_cast<int32_t>(i);
    batch.n_seq_id[i] = 1;
    batch.seq_id[i][0] = 0;
    batch.logits[i] = 1;
  }
  logged.clear();
  const int32_t status = lib_.decode(context_, batch);
  std::vector<float> out;
  for (int32_t i = 0; status == 0 && i < batch.n_tokens; ++i) {
    const float* row = lib_.get_logits(context_, i);
    out.insert(out.end(), row, row + n_vocab_);
  }
  lib_.free_batch(batch);
  if (status != 0) fail(Code::Internal, "llama.cpp cannot decode ({}): {}", status, logged);
  return out;
}

}  // namespace tandem
