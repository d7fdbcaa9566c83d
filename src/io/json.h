// JSON from outside, read within limits.
#pragma once
#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace tandem {

constexpr int kMaxJsonDepth = 64;   // nested arrays and objects.  Source: api.md 1
constexpr int kMaxJsonKeys = 1024;  // of one object.  Source: api.md 1

// The document in text, which `where` names in messages (a path, "request body").  Integers that fit 64 bits
// stay integers. Throws: BadData for anything but one JSON value in UTF-8, for a duplicate key, more than
// max_keys keys in an object, too deep nesting, or a number beyond the range of a double.
nlohmann::json parse_json(std::string_view text, std::string_view where, size_t max_keys = kMaxJsonKeys);

}  // namespace tandem
