#include "io/quote.h"

#include <fmt/format.h>

#include <cstdint>
#include <iterator>

namespace tandem {
namespace {

// Length of the printable UTF-8 sequence at the start of s; 0 if it is none, or a control character.
size_t printable_length(std::string_view s) {
  const auto at = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(s[i])); };
  const uint32_t lead = at(0);
  if (lead < 0x80) return lead >= 0x20 && lead != 0x7f ? 1 : 0;
  const size_t n = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || s.size() < n) return 0;
  uint32_t code = lead & (0x7fu >> n);
  for (size_t i = 1; i < n; ++i) {
    if ((at(i) & 0xc0) != 0x80) return 0;
    code = code << 6 | (at(i) & 0x3f);
  }
  constexpr uint32_t kSmallest[5] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xd800 && code < 0xe000;
  const bool control = code < 0xa0;
  return code < kSmallest[n] || code > 0x10ffff || surrogate || control ? 0 : n;
}

// Appends up to max_bytes of the input; gives how many were taken.
size_t append_escaped(std::string& out, std::string_view bytes, size_t max_bytes, bool escape_quote) {
  size_t i = 0;
  while (i < bytes.size() && i < max_bytes) {
    const char c = bytes[i];
    const size_t n = printable_length(bytes.substr(i));
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c == '\\' || (c == '\'' && escape_quote)) {
      out += '\\';
      out += c;
    } else if (n > 0) {
      out += bytes.substr(i, n);
      i += n - 1;
    } else {
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<unsigned char>(c));
    }
    ++i;
  }
  return i;
}

}  // namespace

std::string quote(std::string_view bytes, size_t max_bytes) {
  std::string out = "'";
  const size_t shown = append_escaped(out, bytes, max_bytes, true);
  out += '\'';
  if (shown < bytes.size()) fmt::format_to(std::back_inserter(out), "... ({} bytes)", bytes.size());
  return out;
}

std::string printable(std::string_view bytes) {
  std::string out;
  append_escaped(out, bytes, bytes.size(), false);
  return out;
}

}  // namespace tandem
