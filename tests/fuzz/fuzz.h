// What the fuzz targets share.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "base/error.h"
#include "io/gguf.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace tandem::fuzz {

// A broken promise ends the process, which the fuzzer reports.
inline void require(bool condition) {
  if (!condition) std::abort();
}

// What every refusal of bad input must be: no fault of ours, and told in valid UTF-8.
inline void require_refusal(const Error& e) {
  require(e.code() != Code::Internal);
  require(is_utf8(e.what()));
}

// Reads whatever a file offers.
inline void read_all(const GgufFile& file) {
  for (const GgufEntry& entry : file.entries()) {
    require(file.value(entry.key) == &entry.value);
    require(!type_text(entry.value).empty());
    require(is_utf8(to_text(entry.value)));
    try {
      if (!entry.value.is_array) {
        file.get_u32(entry.key);
      } else if (entry.value.type == GgufType::Str) {
        require(file.get_strings(entry.key).size() == entry.value.count);
      } else {
        require(file.get_i32s(entry.key).size() == entry.value.count);
      }
    } catch (const Error& e) {
      require_refusal(e);
    }
  }
  for (const GgufTensor& tensor : file.tensors()) require(file.find(tensor.name) == &tensor);
}

// That the tensors of one shard lie inside its bytes.
inline void require_inside(const GgufFile& file, size_t shard, std::span<const std::byte> bytes) {
  for (const GgufTensor& tensor : file.tensors()) {
    if (tensor.shard != shard) continue;
    require(tensor.bytes > 0);
    require(tensor.data >= bytes.data());
    require(static_cast<size_t>(tensor.data - bytes.data()) <=
            bytes.size() - static_cast<size_t>(tensor.bytes));
  }
}

// All bytes, a few merges (one of which makes a text that is no token), and special tokens that overlap.
inline VocabSource byte_vocab(const char* pre) {
  VocabSource v;
  v.pre = pre;
  uint32_t next = 0x100;
  for (uint32_t b = 0; b < 256; ++b) {
    const bool printed = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    const uint32_t c = printed ? b : next++;
    std::string text(1, static_cast<char>(c));
    if (c >= 0x80) text = {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 0x3F))};
    v.tokens.push_back(text);
  }
  v.merges = {"a b",           "b a",           "ab a", "a a", "aa aa", "\u0120 a",
              "\u00C3 \u00A9", "\u010A \u010A", "< |",  "x y", "xy z"};
  for (const char* text :
       {"ab", "ba", "aba", "aa", "aaaa", "\u0120a", "\u00C3\u00A9", "\u010A\u010A", "<|", "xyz"}) {
    v.tokens.emplace_back(text);
  }
  v.types.assign(v.tokens.size(), static_cast<int32_t>(TokenType::Normal));
  const auto special = [&](const char* text, TokenType type) {
    v.tokens.emplace_back(text);
    v.types.push_back(static_cast<int32_t>(type));
  };
  special("<|im_start|>", TokenType::Control);
  special("<|im_end|>", TokenType::Control);
  special("<a>", TokenType::Control);
  special("<a><b>", TokenType::UserDefined);
  special("é漢", TokenType::UserDefined);
  special("xy", TokenType::Control);
  return v;
}

}  // namespace tandem::fuzz
