// Conversations as text: ChatML with the model's own markers.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace tandem {

struct Message {
  std::string role;  // system, developer, user or assistant
  std::string content;
  std::optional<bool> train;  // of an assistant: whether the turn is trained; absent: as the caller decides
};

// A stretch of a rendered conversation, normalized on its own.
struct ChatPart {
  std::string text;
  bool from_template;  // special tokens are read here and nowhere else
  bool trained;        // what the model must produce in a turn that is trained: the content and <|im_end|>
  int32_t message;     // index of the message, -1 in the generation prompt
};

// Whether a message may have this role.  Source: api.md 8, without `tool`, which needs a full template.
bool is_chat_role(std::string_view role);

// Throws: Unsupported when <|im_start|> and <|im_end|> are not control tokens of the vocabulary.
void check_chat_markers(const Tokenizer& tokenizer);

// Renders "<|im_start|>{role}\n{content}<|im_end|>\n" per message, four parts each: header, content, marker,
// newline; with `add_generation_prompt` the header of an assistant turn follows.  `trained` is set in turns
// whose `train` is true. Throws: Unsupported as check_chat_markers; Usage for a role that is not a chat role.
// Source: tokenizer.md 9.
std::vector<ChatPart> render_chat(const Tokenizer& tokenizer, std::span<const Message> messages,
                                  bool add_generation_prompt);

// The parts as encode_parts() takes them; they point into `parts`.
std::vector<TextPart> text_parts(std::span<const ChatPart> parts);

// Token ids of a conversation as the model reads it, BOS first where the vocabulary wants one.
// Throws: as render_chat.
std::vector<int32_t> encode_chat(const Tokenizer& tokenizer, std::span<const Message> messages,
                                 bool add_generation_prompt);

}  // namespace tandem
