#include "text/utf8.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/error.h"

namespace tandem {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// No code point below U+0300 takes part in NFC; those have lead bytes below this one.
constexpr unsigned char kFirstLeadOfNfc = 0xCC;

// A code point decomposes into at most this many (U+1F82 and its like: 4; room to spare).
constexpr size_t kMaxDecomposed = 16;

int combining_class(utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; }

}  // namespace

int utf8_sequence(std::string_view text) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = at(0);
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  const int length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte alone excludes overlong forms, surrogates and what lies beyond U+10FFFF.
  unsigned char low = 0x80, high = 0xBF;
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  for (int i = 1; i < length; ++i) {
    const auto j = static_cast<size_t>(i);
    if (j >= text.size()) return -1;
    if (at(j) < low || at(j) > high) return 0;
    low = 0x80;
    high = 0xBF;
  }
  return length;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const int length = utf8_sequence(text);
    if (length <= 0) return false;
    text.remove_prefix(static_cast<size_t>(length));
  }
  return true;
}

std::string repair_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const int length = utf8_sequence(text);
    if (length > 0) {
      out.append(text.substr(0, static_cast<size_t>(length)));
      text.remove_prefix(static_cast<size_t>(length));
    } else {
      out.append(kReplacement);
      text.remove_prefix(1);
    }
  }
  return out;
}

std::string nfc(std::string_view text) {
  if (std::none_of(text.begin(), text.end(),
                   [](char c) { return static_cast<unsigned char>(c) >= kFirstLeadOfNfc; })) {
    return std::string(text);
  }
  // Decompose and compose by the library, but order the marks here: the library's exchange sort is quadratic
  // in the length of a run of combining marks, and a request may be one such run.
  std::vector<utf8proc_int32_t> points;
  points.reserve(text.size() + kMaxDecomposed);
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  for (size_t i = 0; i < text.size();) {
    utf8proc_int32_t point = 0;
    const utf8proc_ssize_t length =
        utf8proc_iterate(bytes + i, static_cast<utf8proc_ssize_t>(text.size() - i), &point);
    TANDEM_CHECK(length > 0);
    i += static_cast<size_t>(length);
    utf8proc_int32_t parts[kMaxDecomposed];
    int boundary = 0;
    const utf8proc_ssize_t n =
        utf8proc_decompose_char(point, parts, kMaxDecomposed, UTF8PROC_DECOMPOSE, &boundary);
    TANDEM_CHECK(n >= 1 && n <= static_cast<utf8proc_ssize_t>(kMaxDecomposed));
    points.insert(points.end(), parts, parts + n);
  }
  for (size_t i = 0; i < points.size();) {
    if (combining_class(points[i]) == 0) {
      ++i;
      continue;
    }
    size_t end = i;
    while (end < points.size() && combining_class(points[end]) != 0) ++end;
    std::stable_sort(
        points.begin() + static_cast<ptrdiff_t>(i), points.begin() + static_cast<ptrdiff_t>(end),
        [](utf8proc_int32_t a, utf8proc_int32_t b) { return combining_class(a) < combining_class(b); });
    i = end;
  }
  const utf8proc_ssize_t composed =
      utf8proc_normalize_utf32(points.data(), static_cast<utf8proc_ssize_t>(points.size()),
                               static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  TANDEM_CHECK(composed >= 0);
  std::string out;
  out.reserve(text.size());
  for (utf8proc_ssize_t i = 0; i < composed; ++i) {
    utf8proc_uint8_t encoded[4];
    const utf8proc_ssize_t n = utf8proc_encode_char(points[static_cast<size_t>(i)], encoded);
    out.append(reinterpret_cast<const char*>(encoded), static_cast<size_t>(n));
  }
  return out;
}

std::string Utf8Stream::push(std::string_view bytes) {
  std::string joined = std::move(tail_);
  joined.append(bytes);
  tail_.clear();
  std::string out;
  std::string_view rest = joined;
  while (!rest.empty()) {
    const int length = utf8_sequence(rest);
    if (length < 0) {
      tail_ = rest;
      break;
    }
    if (length == 0) {
      out.append(kReplacement);
      rest.remove_prefix(1);
    } else {
      out.append(rest.substr(0, static_cast<size_t>(length)));
      rest.remove_prefix(static_cast<size_t>(length));
    }
  }
  return out;
}

std::string Utf8Stream::finish() {
  const bool unfinished = !tail_.empty();
  tail_.clear();
  return std::string(unfinished ? kReplacement : std::string_view());
}

}  // namespace tandem
