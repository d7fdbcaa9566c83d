#include "app/output.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace tandem {

void print_text(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void print_json(const nlohmann::json& value) {
  print_text(value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

void finish_output() {
  errno = 0;
  const bool flushed = std::fflush(stdout) == 0;
  if (!flushed || std::ferror(stdout)) {
    fail(Code::Io, "standard output: {}", errno ? std::strerror(errno) : "not everything could be written");
  }
}

std::string format_duration(double seconds) {
  const auto s = static_cast<int64_t>(std::llround(std::clamp(seconds, 0.0, 1e9)));
  if (s < 3600) return fmt::format("{}:{:02}", s / 60, s % 60);
  return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
}

std::string format_count(double n) {
  if (n < 1e4) return fmt::format("{:.0f}", n);
  if (n < 1e6) return fmt::format("{:.1f} k", n / 1e3);
  if (n < 1e9) return fmt::format("{:.2f} M", n / 1e6);
  return fmt::format("{:.2f} G", n / 1e9);
}

std::string Table::text() const {
  std::vector<size_t> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string out;
  for (const auto& row : rows_) {
    std::string line = indent_;
    for (size_t i = 0; i < row.size(); ++i) {
      const bool left = i == 0 || std::find(left_.begin(), left_.end(), i) != left_.end();
      if (i > 0) line += "  ";
      line += left ? fmt::format("{:<{}}", row[i], widths[i]) : fmt::format("{:>{}}", row[i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

}  // namespace tandem
