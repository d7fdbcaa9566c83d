#include "io/json.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "io/quote.h"

namespace tandem {
namespace {

using nlohmann::json;

// "where", or "where:line 3" for a document of several lines.
std::string position_in(std::string_view text, size_t offset, std::string_view where) {
  const std::string_view before = text.substr(0, offset);
  size_t line = 1;
  size_t column = 1;
  for (const char c : before) {
    ++column;
    if (c == '\n') {
      ++line;
      column = 1;
    }
  }
  if (text.substr(0, text.find_last_not_of("\r\n") + 1).find('\n') == std::string_view::npos) {
    return fmt::format("{}: column {}", where, column);
  }
  return fmt::format("{}: line {}, column {}", where, line, column);
}

// Receives the parser's events and builds the document, so that a limit is met before anything beyond it is
// stored.
class Builder {
 public:
  Builder(std::string_view text, std::string_view where, size_t max_keys)
      : text_(text), where_(where), max_keys_(max_keys) {}

  json take() { return std::move(root_); }

  bool null() { return put(nullptr); }
  bool boolean(bool value) { return put(value); }
  bool number_integer(json::number_integer_t value) { return put(value); }
  bool number_unsigned(json::number_unsigned_t value) { return put(value); }
  bool number_float(json::number_float_t value, const std::string&) { return put(value); }
  bool string(std::string& value) { return put(std::move(value)); }
  bool binary(json::binary_t&) { return false; }  // not in the text form

  bool start_object(size_t) { return open(json::object()); }
  bool end_object() { return close(); }
  bool start_array(size_t) { return open(json::array()); }
  bool end_array() { return close(); }

  bool key(std::string& name) {
    auto& object = open_.back()->get_ref<json::object_t&>();
    if (object.size() >= max_keys_) {
      fail(Code::BadData, "{}: an object has more than {} keys", where_, max_keys_);
    }
    const auto [place, is_new] = object.try_emplace(name);
    if (!is_new) fail(Code::BadData, "{}: key {} appears twice in one object", where_, quote(name));
    member_ = &place->second;
    return true;
  }

  bool parse_error(size_t offset, const std::string&, const json::exception& error) {
    // The library's text is "[id] parse error at line L, column C: reason"; of it only the reason is of use
    // here.
    std::string reason = error.what();
    if (const size_t end = reason.find("] "); end != std::string::npos) reason.erase(0, end + 2);
    if (reason.starts_with("parse error")) reason.erase(0, reason.find(": ") + 2);
    fail(Code::BadData, "{}: not valid JSON: {}", position_in(text_, offset > 0 ? offset - 1 : 0, where_),
         printable(reason));
  }

 private:
  // Puts the value where the document goes on: the member whose key came last, the open array, or the root.
  template <class T>
  json* place(T&& value) {
    if (open_.empty()) {
      root_ = std::forward<T>(value);
      return &root_;
    }
    json& parent = *open_.back();
    if (parent.is_array()) return &parent.get_ref<json::array_t&>().emplace_back(std::forward<T>(value));
    *member_ = std::forward<T>(value);
    return member_;
  }

  template <class T>
  bool put(T&& value) {
    place(std::forward<T>(value));
    return true;
  }

  bool open(json&& container) {
    if (open_.size() >= static_cast<size_t>(kMaxJsonDepth)) {
      fail(Code::BadData, "{}: arrays and objects are nested more than {} deep", where_, kMaxJsonDepth);
    }
    open_.push_back(place(std::move(container)));
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  std::string_view text_;
  std::string_view where_;
  size_t max_keys_;
  json root_;
  std::vector<json*> open_;  // addresses hold: a container grows only while it is the innermost open one
  json* member_ = nullptr;
};

}  // namespace

json parse_json(std::string_view text, std::string_view where, size_t max_keys) {
  // The parser would take a NUL for the end of its input and ignore what follows.
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos) {
    fail(Code::BadData, "{}: not valid JSON: NUL byte", position_in(text, nul, where));
  }
  Builder builder(text, where, max_keys);
  if (!json::sax_parse(text, &builder)) fail(Code::BadData, "{}: not valid JSON", where);
  return builder.take();
}

}  // namespace tandem
