// Messages for people, on stderr: "tandem: warning: ...".
#pragma once
#include <fmt/format.h>

#include <string_view>
#include <utility>

namespace tandem {

enum class LogLevel { Info, Warning, Error };

// What is shown: 0 errors, 1 warnings too, 2 (at the start) and above information too.
void set_verbosity(int verbosity);

// Writes one line if the verbosity allows it; may be called from any thread.
void log_line(LogLevel level, std::string_view message) noexcept;

template <class... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::Info, fmt::format(format, std::forward<Args>(args)...));
}

template <class... Args>
void log_warn(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::Warning, fmt::format(format, std::forward<Args>(args)...));
}

template <class... Args>
void log_error(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::Error, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace tandem
