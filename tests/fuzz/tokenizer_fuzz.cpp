// Any bytes as text: encoding loses nothing, spans tile the text, and only Error may escape.
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "text/chat.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace {

using tandem::TextPart;
using tandem::Tokenizer;
using tandem::TokenSpan;
using tandem::TokenType;
using tandem::VocabSource;

// All bytes, a few merges (one of which makes a text that is no token), and special tokens that overlap.
VocabSource vocab(const char* pre) {
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

void require(bool condition) {
  if (!condition) std::abort();
}

void check(const Tokenizer& t, std::string_view text) {
  for (const bool special : {false, true}) {
    const std::string normal = t.normalize(text, special);
    require(tandem::is_utf8(normal));
    require(t.decode(t.encode(text, special), true) == normal);
  }
  // Three parts, cut where the first byte says; the middle one reads no special tokens.
  const size_t cut = text.empty() ? 0 : static_cast<unsigned char>(text[0]) % (text.size() + 1);
  const std::string a = t.normalize(text.substr(0, cut), true);
  const std::string b = t.normalize(text.substr(cut / 2), false);
  const std::string all = a + b + a;
  const std::vector<TextPart> parts = {{a, true}, {b, false}, {a, true}};
  uint32_t at = 0;
  for (const TokenSpan& s : t.encode_parts(parts)) {
    require(s.begin == at && s.end > at && s.end <= all.size());
    require(all.compare(s.begin, s.end - s.begin, t.token_bytes(s.id)) == 0);
    if (t.token_type(s.id) == TokenType::Control)
      require(s.end <= a.size() || s.begin >= a.size() + b.size());
    at = s.end;
  }
  require(at == all.size());
  const std::vector<tandem::Message> messages = {{"user", std::string(text), {}}, {"assistant", a, true}};
  const std::vector<int32_t> ids = tandem::encode_chat(t, messages, true);
  require(t.decode(ids, true) == "<|im_start|>user\n" + t.normalize(text) +
                                     "<|im_end|>\n<|im_start|>assistant\n" + t.normalize(a) +
                                     "<|im_end|>\n<|im_start|>assistant\n");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Tokenizer tokenizers[] = {Tokenizer(vocab("qwen2")), Tokenizer(vocab("qwen35")),
                                         Tokenizer(vocab("default"))};
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    for (const Tokenizer& t : tokenizers) check(t, text);
  } catch (const tandem::Error& e) {
    require(e.code() != tandem::Code::Internal);
  }
  return 0;
}
