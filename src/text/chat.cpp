#include "text/chat.h"

#include <algorithm>

#include "base/error.h"
#include "io/quote.h"

namespace tandem {
namespace {

constexpr std::string_view kStart = "<|im_start|>";
constexpr std::string_view kEnd = "<|im_end|>";
constexpr std::string_view kRoles[] = {"system", "developer", "user", "assistant"};

}  // namespace

bool is_chat_role(std::string_view role) {
  return std::find(std::begin(kRoles), std::end(kRoles), role) != std::end(kRoles);
}

void check_chat_markers(const Tokenizer& tokenizer) {
  for (const std::string_view marker : {kStart, kEnd}) {
    const auto id = tokenizer.find(marker);
    if (!id || tokenizer.token_type(*id) != TokenType::Control) {
      fail(Code::Unsupported,
           "this model has no ChatML markers ({} is not a control token of its vocabulary); use "
           "--prompt-style raw or "
           "text rows",
           marker);
    }
  }
}

std::vector<ChatPart> render_chat(const Tokenizer& tokenizer, std::span<const Message> messages,
                                  bool add_generation_prompt) {
  check_chat_markers(tokenizer);
  std::vector<ChatPart> parts;
  parts.reserve(4 * messages.size() + 1);
  int32_t index = 0;
  for (const Message& m : messages) {
    if (!is_chat_role(m.role)) {
      fail(Code::Usage, "message {} has the role {}, wanted system, developer, user or assistant", index,
           quote(m.role));
    }
    const bool trained = m.role == "assistant" && m.train.value_or(false);
    parts.push_back({fmt::format("{}{}\n", kStart, m.role), true, false, index});
    parts.push_back({tokenizer.normalize(m.content), false, trained, index});
    parts.push_back({std::string(kEnd), true, trained, index});
    parts.push_back({"\n", true, false, index});
    ++index;
  }
  if (add_generation_prompt) parts.push_back({fmt::format("{}assistant\n", kStart), true, false, -1});
  return parts;
}

std::vector<TextPart> text_parts(std::span<const ChatPart> parts) {
  std::vector<TextPart> out;
  out.reserve(parts.size());
  for (const ChatPart& p : parts) out.push_back({p.text, p.from_template});
  return out;
}

std::vector<int32_t> encode_chat(const Tokenizer& tokenizer, std::span<const Message> messages,
                                 bool add_generation_prompt) {
  const std::vector<ChatPart> parts = render_chat(tokenizer, messages, add_generation_prompt);
  std::vector<int32_t> ids;
  if (tokenizer.add_bos()) ids.push_back(*tokenizer.bos());
  for (const TokenSpan& span : tokenizer.encode_parts(text_parts(parts))) ids.push_back(span.id);
  return ids;
}

}  // namespace tandem
