// The first cut of byte-level BPE: text into pieces by the regular expressions of a family.
#pragma once
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace tandem {

// One family of `tokenizer.ggml.pre`: qwen2, qwen35 or default.  Usable from several threads.  Source:
// tokenizer.md 3.2.
class Pretokenizer {
 public:
  // `where` names the file in messages.
  // Throws: Unsupported for a family that is not one of the three.
  explicit Pretokenizer(std::string_view family, std::string_view where = "vocabulary");
  ~Pretokenizer();
  Pretokenizer(Pretokenizer&&) noexcept;
  Pretokenizer& operator=(Pretokenizer&&) noexcept;

  // Cuts `text` (well-formed UTF-8, at most 2 GiB) into pieces that follow each other without a gap; replaces
  // `ends` by the byte offset where each one ends, the last being text.size().
  void split(std::string_view text, std::vector<uint32_t>& ends) const;

  // Whether the family's models saw text in normalization form C.  Source: tokenizer.md 3.5.
  bool wants_nfc() const;

  // What a file means that does not say whether BOS is added.  Source: tokenizer.md 3.2.
  bool default_add_bos() const;

 private:
  struct Impl;
  std::unique_ptr<const Impl> impl_;
};

}  // namespace tandem
