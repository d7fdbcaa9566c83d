// JSON Lines: one object per line.
#pragma once
#include <cstddef>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

namespace tandem {

constexpr size_t kMaxJsonlLineBytes = size_t{8} << 20;  // Source: api.md 8

// Takes one row; line numbers count from 1.
using JsonlRow = std::function<void(size_t line, const nlohmann::json& object)>;

// Hands every row of the file to `row`, in order.  A byte order mark at the start, CRLF line ends and one
// blank last line are accepted.  Source: api.md 8. Throws: Io if the file cannot be read; BadData with
// "path:line" for a line that is no JSON object (parse_json), is blank or too long, and for a file without
// rows; whatever row throws.
void read_jsonl(const std::string& path, const JsonlRow& row);

// The same for text in memory, which `where` names in messages.
void parse_jsonl(std::string_view text, std::string_view where, const JsonlRow& row);

}  // namespace tandem
