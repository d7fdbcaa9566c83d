// The rows of a training file, read and checked, before any tokenizer sees them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat.h"

namespace tandem {

// What the rows of a file hold; all rows of one file hold the same.
enum class RowKind {
  Messages,          // "messages": a conversation
  PromptCompletion,  // "prompt" and "completion": two strings, or two lists of messages
  Text,              // "text"
};

struct Row {
  int64_t line = 0;  // of the file, from 1
  std::vector<Message>
      messages;  // Messages, and PromptCompletion of lists: the prompt's, then the completion's
  size_t n_prompt_messages = 0;    // how many of them are the prompt, which is never trained
  std::string prompt, completion;  // PromptCompletion of strings (then there are no messages)
  std::string text;                // Text
};

struct RowFile {
  std::string name;  // of the file, for messages
  RowKind kind = RowKind::Text;
  std::vector<Row> rows;
  std::vector<std::string> warnings;  // one per unknown key of the file, and the like
};

// Reads a JSON Lines training file.  The first row decides the kind; rows with "messages" are Messages even
// when they have a prompt and a completion too.  A null counts as an absent key. Throws: Io, BadData
// ("file:line: ...") for anything wrong in a row, Unsupported for tools, tool calls, tool messages and
// content that is not text.  Source: api.md 8.
RowFile read_rows(const std::string& path);

// The same for text in memory, which `name` names in messages.
RowFile parse_rows(std::string_view text, std::string_view name);

}  // namespace tandem
