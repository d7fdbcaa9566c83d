// Any bytes as a conversation: what is rendered is what was said, markers come from the template alone, and
// only what the model must produce is trained. Input: messages, each a byte (its role and whether it is
// trained) and text up to the next NUL.
#include <algorithm>
#include <string_view>

#include "tests/fuzz/fuzz.h"
#include "text/chat.h"

using namespace tandem;
using fuzz::require;

namespace {

std::vector<Message> messages_of(std::string_view text) {
  constexpr const char* kRoles[] = {"user", "assistant", "system", "developer", "tool"};
  std::vector<Message> messages;
  while (!text.empty()) {
    const auto choice = static_cast<unsigned char>(text[0]);
    const std::string_view content = text.substr(1, text.find('\0', 1) - 1);
    Message m;
    m.role = kRoles[choice % 5];
    m.content = content;
    if (choice / 5 % 3 > 0) m.train = choice / 5 % 3 == 1;
    messages.push_back(std::move(m));
    text.remove_prefix(std::min(text.size(), content.size() + 2));
  }
  return messages;
}

void check(const Tokenizer& t, const std::vector<Message>& messages, bool prompt) {
  const std::vector<ChatPart> parts = render_chat(t, messages, prompt);
  std::string want, got;
  for (const Message& m : messages)
    want += "<|im_start|>" + m.role + "\n" + t.normalize(m.content) + "<|im_end|>\n";
  if (prompt) want += "<|im_start|>assistant\n";
  for (const ChatPart& p : parts) got += p.text;
  require(got == want);

  // Which part, and so whether the template and the training side, a byte belongs to.
  std::vector<const ChatPart*> owner;
  for (const ChatPart& p : parts) owner.insert(owner.end(), p.text.size(), &p);
  for (const ChatPart& p : parts) {
    require(!p.trained || messages[static_cast<size_t>(p.message)].train == true);
    require(!p.trained || messages[static_cast<size_t>(p.message)].role == "assistant");
  }
  std::vector<int32_t> ids;
  for (const TokenSpan& s : t.encode_parts(text_parts(parts))) {
    if (t.token_type(s.id) == TokenType::Control) {
      for (uint32_t i = s.begin; i < s.end; ++i) require(owner[i]->from_template);
    }
    ids.push_back(s.id);
  }
  require(ids == encode_chat(t, messages, prompt));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Tokenizer tokenizer(fuzz::byte_vocab("qwen2"));
  const std::vector<Message> messages = messages_of({reinterpret_cast<const char*>(data), size});
  for (const bool prompt : {false, true}) {
    try {
      check(tokenizer, messages, prompt);
    } catch (const Error& e) {
      fuzz::require_refusal(e);
    }
  }
  return 0;
}
