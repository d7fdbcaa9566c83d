// llama.cpp, loaded as a shared library: what our files and our logits are held against.  Its headers do not
// come with the package, so the few functions used are declared here as its API documents them.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tandem {

// An adapter file and its scale.
struct PeerAdapter {
  std::string path;
  float scale = 1.f;
};

// The library, loaded once for the process.
class PeerLibrary;

// Why the library is not there ("not run: ..."), or nothing.
std::optional<std::string> peer_missing();

// A model opened by llama.cpp, with a context of its own.  Keys and values are kept in f32, and weights are
// not repacked, so that its sums are as near to ours as they get.
class Peer {
 public:
  // Throws Internal, with what the library logged, if it refuses the model or an adapter.
  Peer(const std::string& model_path, const std::vector<PeerAdapter>& adapters, int64_t context_tokens);
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  int64_t n_vocab() const { return n_vocab_; }
  // Text to tokens, special tokens read as such.
  std::vector<int32_t> tokens(const std::string& text) const;
  // The logits after every one of `tokens`, on an empty context: n_vocab() numbers for each.
  std::vector<float> logits(std::span<const int32_t> tokens);

 private:
  PeerLibrary& lib_;
  void* model_ = nullptr;
  void* context_ = nullptr;
  std::vector<void*> adapters_;
  int64_t n_vocab_ = 0;
  int64_t context_tokens_ = 0;
};

}  // namespace tandem
