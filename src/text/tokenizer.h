// Text to token ids and back: byte-level BPE with the vocabulary of a GGUF file.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/pretokenizer.h"

namespace tandem {

// Values of tokenizer.ggml.token_type.
enum class TokenType : int32_t {
  Undefined = 0,
  Normal = 1,       // text in the byte alphabet; the only type that BPE produces
  Unknown = 2,      // literal text, found only where special text is read
  Control = 3,      // literal text, found only where special text is read, hidden from output
  UserDefined = 4,  // literal text, found in any text
  Unused = 5,
  Byte = 6,
};

// What a file says about its vocabulary, unchecked.  Source: tokenizer.md 1.
struct VocabSource {
  std::string name = "vocabulary";  // of the file, for messages
  std::string model = "gpt2";       // tokenizer.ggml.model
  std::string pre;                  // tokenizer.ggml.pre, empty when absent
  std::vector<std::string> tokens;  // index = id
  std::vector<std::string> merges;  // index = rank, "left right"
  std::vector<int32_t> types;       // empty: all Normal
  std::optional<uint32_t> bos, eos, eot, eom, unk, pad, sep, mask;
  std::optional<uint32_t> fim_pre, fim_suf, fim_mid, fim_pad, fim_rep, fim_sep;
  std::optional<bool> add_bos, add_eos;  // absent: the default of the family; no EOS
  std::string chat_template;             // Jinja source, empty when absent
};

// A stretch of a text.  Parts are concatenated and tokenized as one text; `parse_special` says whether
// control tokens may be read in this stretch (user-defined ones are read everywhere).
struct TextPart {
  std::string_view text;
  bool parse_special = false;
};

// A token and the bytes [begin, end) of the tokenized text that it stands for.
struct TokenSpan {
  int32_t id;
  uint32_t begin, end;
  bool operator==(const TokenSpan&) const = default;
};

// The tokenizer of one vocabulary: immutable, usable from several threads.
class Tokenizer {
 public:
  // Checks the vocabulary and builds the tables.
  // Throws: Unsupported for a model or pre-tokenizer not built here, BadData for a broken vocabulary.
  // Source: tokenizer.md 1 and 3.
  explicit Tokenizer(VocabSource source);
  Tokenizer(Tokenizer&&) noexcept = default;
  Tokenizer& operator=(Tokenizer&&) noexcept = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Token ids of `text`, without BOS and EOS.  Bad UTF-8 becomes U+FFFD, each byte; then special tokens are
  // cut out (control tokens only with `parse_special`) and what lies between is normalized and encoded.
  // Throws: Usage for more than 512 MiB.  Source: tokenizer.md 3 and 5.
  std::vector<int32_t> encode(std::string_view text, bool parse_special) const;

  // Tokens of the concatenated parts; the spans tile it from 0 to its length.  A special token is found even
  // across the border of two parts, a control token only where all parts it touches parse specials.  The
  // parts have been through normalize(), each on its own, so that their borders stay where they are.
  // Throws: Internal for text that is not UTF-8, Usage for more than 512 MiB.
  std::vector<TokenSpan> encode_parts(std::span<const TextPart> parts) const;

  // `text` as encode() would see it: repaired UTF-8, and in form C between the special tokens where the
  // family wants it.
  std::string normalize(std::string_view text, bool parse_special = false) const;

  // The text of `ids`, well-formed UTF-8 (bad bytes become U+FFFD).  Control tokens are left out unless
  // `show_control`.
  // Throws: Usage for an id outside the vocabulary.
  std::string decode(std::span<const int32_t> ids, bool show_control = false) const;

  // The bytes that `id` adds to a text, also for a control token; possibly a part of a character (see
  // Utf8Stream), and empty for unused entries.  Throws: Usage for an id outside the vocabulary.
  std::string_view token_bytes(int32_t id) const;

  // The entry of the vocabulary as it is stored.  Throws: Usage for an id outside the vocabulary.
  std::string_view token_text(int32_t id) const;

  // Throws: Usage for an id outside the vocabulary.
  TokenType token_type(int32_t id) const;

  // The id whose stored text is exactly `text`.
  std::optional<int32_t> find(std::string_view text) const;

  // The first control (or unknown) token whose text stands in `text`.
  std::optional<int32_t> find_control(std::string_view text) const;

  int32_t n_vocab() const { return static_cast<int32_t>(texts_.size()); }
  std::optional<int32_t> bos() const { return bos_; }
  std::optional<int32_t> eos() const { return eos_; }
  std::optional<int32_t> eot() const { return eot_; }
  std::optional<int32_t> pad() const { return pad_; }

  // Whether a text begins with BOS (then bos() is there) or ends with EOS, where the caller adds such tokens.
  bool add_bos() const { return add_bos_; }
  bool add_eos() const { return add_eos_; }

  // Whether `id` ends a generation.  Source: tokenizer.md 6.
  bool is_end_of_generation(int32_t id) const;

  // Jinja source of the file's template, empty when it has none.
  const std::string& chat_template() const { return chat_template_; }

 private:
  // Symbols of BPE: token ids, and numbers from n_vocab() on for texts of merges that are no normal token.
  struct Merge {
    int32_t left, right, result;
  };
  // A node of the tree of special token texts.
  struct SpecialNode {
    std::vector<std::pair<unsigned char, int32_t>> children;
    int32_t id = -1;  // the token whose text ends here
  };
  struct Hit {
    size_t begin, end;
    int32_t id;
  };
  struct Range {
    size_t begin, end;
  };
  struct Workspace;

  void check_sizes(const VocabSource& source) const;
  void index_tokens();
  void index_merges(const std::vector<std::string>& merges);
  void index_specials();
  void index_ids(const VocabSource& source);
  // The special token that begins at `at`, the longest one; `parsed_end` bounds control tokens.
  std::optional<Hit> special_at(std::string_view text, size_t at, size_t parsed_end) const;
  // All special tokens of `text`, left to right; `parsed` are the disjoint ascending ranges that parse
  // specials.
  std::vector<Hit> specials(std::string_view text, std::span<const Range> parsed) const;
  // Appends the tokens of a text without special tokens, whose first byte has the offset `offset`.
  void encode_plain(std::string_view text, uint32_t offset, Workspace& work,
                    std::vector<TokenSpan>& out) const;
  void encode_piece(std::string_view piece, uint32_t offset, Workspace& work,
                    std::vector<TokenSpan>& out) const;
  size_t checked(int32_t id) const;
  [[noreturn]] void bad(const std::string& message) const;

  std::string name_;
  Pretokenizer pretokenizer_;
  std::vector<std::string> texts_;  // as stored
  std::vector<TokenType> types_;
  std::vector<std::string> bytes_;                         // what each token decodes to
  std::unordered_map<std::string_view, int32_t> by_text_;  // views into texts_
  std::array<int32_t, 256> byte_symbol_{};
  std::vector<Merge> merges_;                   // by rank
  std::unordered_map<uint64_t, int32_t> rank_;  // (left, right) -> rank
  std::vector<SpecialNode> specials_;
  std::array<int32_t, 256> special_root_{};  // first byte -> node, -1: none
  std::optional<int32_t> bos_, eos_, eot_, pad_;
  bool add_bos_ = false, add_eos_ = false;
  std::vector<bool> ends_generation_;  // by id
  std::string chat_template_;
};

}  // namespace tandem
