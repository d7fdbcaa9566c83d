// Any bytes as text: encoding loses nothing, spans tile the text, and only Error may escape.
#include <string>
#include <string_view>
#include <vector>

#include "tests/fuzz/fuzz.h"
#include "text/chat.h"

namespace {

using tandem::TextPart;
using tandem::Tokenizer;
using tandem::TokenSpan;
using tandem::TokenType;
using tandem::fuzz::byte_vocab;
using tandem::fuzz::require;

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
  static const Tokenizer tokenizers[] = {Tokenizer(byte_vocab("qwen2")), Tokenizer(byte_vocab("qwen35")),
                                         Tokenizer(byte_vocab("default"))};
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    for (const Tokenizer& t : tokenizers) check(t, text);
  } catch (const tandem::Error& e) {
    tandem::fuzz::require_refusal(e);
  }
  return 0;
}
