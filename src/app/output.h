// What commands print on stdout, and how numbers look there.
#pragma once
#include <fmt/format.h>

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tandem {

// Writes to stdout.  A stdout that takes no more is noticed at the end (finish_output), so that it never ends
// a training run half way.
void print_text(std::string_view text);

template <class... Args>
void print(fmt::format_string<Args...> format, Args&&... args) {
  print_text(fmt::format(format, std::forward<Args>(args)...));
}

// One line of JSON; bytes that are no UTF-8 become U+FFFD.
void print_json(const nlohmann::json& value);

// Flushes stdout.  Throws: Io if something did not arrive there.
void finish_output();

// "0:07", "12:34", "3:04:05".
std::string format_duration(double seconds);
// "1.23 M", "4.20 G", "950".
std::string format_count(double n);

// Lines of columns, each as wide as its widest cell; the first column and those named in `left` are flush
// left.
class Table {
 public:
  explicit Table(std::string indent, std::vector<size_t> left = {})
      : indent_(std::move(indent)), left_(std::move(left)) {}
  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  std::string text() const;

 private:
  std::string indent_;
  std::vector<size_t> left_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace tandem
