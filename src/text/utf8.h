// UTF-8 as the tokenizer needs it: repair of bad input, NFC, and text out of a stream of bytes.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace tandem {

// Length in bytes (1 to 4) of the well-formed sequence at the start of `text`; 0 when the first byte cannot
// be the start of one; -1 when `text` ends inside what could still become one.  `text` is not empty.
int utf8_sequence(std::string_view text);

// Whether every byte belongs to a well-formed sequence (no surrogates, no overlong forms, at most U+10FFFF).
bool is_utf8(std::string_view text);

// `text` with each byte that belongs to no well-formed sequence replaced by U+FFFD.  Source:
// tokenizer.md 3.5.
std::string repair_utf8(std::string_view text);

// `text` (well-formed UTF-8) in Unicode normalization form C; O(n log n) for any input.
std::string nfc(std::string_view text);

// Makes well-formed text out of bytes that arrive in arbitrary portions: what may still become a sequence
// waits for its rest, a bad byte becomes U+FFFD.  Source: tokenizer.md 7.
class Utf8Stream {
 public:
  // The text that is complete once `bytes` (any cut) have been added.
  std::string push(std::string_view bytes);

  // The end of the stream: one U+FFFD for an unfinished sequence, else nothing.  The object can be used
  // again.
  std::string finish();

 private:
  std::string tail_;  // 0 to 3 bytes, the start of a sequence
};

}  // namespace tandem
