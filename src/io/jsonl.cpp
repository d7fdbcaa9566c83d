#include "io/jsonl.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "io/json.h"

namespace tandem {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

bool blank(std::string_view line) { return line.find_first_not_of(" \t\r") == std::string_view::npos; }

}  // namespace

void parse_jsonl(std::string_view text, std::string_view where, const JsonlRow& row) {
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  size_t line_number = 0;
  size_t n_rows = 0;
  while (!text.empty()) {
    ++line_number;
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.size() > kMaxJsonlLineBytes) {
      fail(Code::BadData, "{}:{}: the line has {} bytes, more than the {} allowed", where, line_number,
           line.size(), kMaxJsonlLineBytes);
    }
    if (blank(line)) {
      if (text.empty()) break;
      fail(Code::BadData, "{}:{}: blank line; only the last line may be blank", where, line_number);
    }
    const std::string here = fmt::format("{}:{}", where, line_number);
    // The parser would skip a mark at the start of any document.
    if (line.starts_with(kByteOrderMark)) fail(Code::BadData, "{}: byte order mark inside the file", here);
    const nlohmann::json object = parse_json(line, here);
    if (!object.is_object()) {
      fail(Code::BadData, "{}: the line holds JSON of type {}, wanted an object", here, object.type_name());
    }
    row(line_number, object);
    ++n_rows;
  }
  if (n_rows == 0) fail(Code::BadData, "{}: the file has no rows; wanted one JSON object per line", where);
}

void read_jsonl(const std::string& path, const JsonlRow& row) {
  const MappedFile file = MappedFile::open(path);
  const std::span<const std::byte> bytes = file.bytes();
  parse_jsonl({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path, row);
}

}  // namespace tandem
