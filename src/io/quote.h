// Text from files, made safe for messages.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace tandem {

// The bytes in single quotes, as valid UTF-8 without control characters: others appear as \n, \t, \\, \' or
// \xNN. At most about max_bytes of them are shown, then "..." and the full length.
std::string quote(std::string_view bytes, size_t max_bytes = 80);

// The same without the quotes, the length limit, and the escape of a single quote.
std::string printable(std::string_view bytes);

}  // namespace tandem
