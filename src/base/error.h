// The one exception type, thrown in cold code only: options, loading, graph building, planning, requests.
#pragma once
#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace tandem {

// What kind of failure it was; decides the exit status of the command line (api.md 10).
enum class Code {
  Usage,        // a flag or field the caller can correct
  BadData,      // an input file that is not what it should be
  Unsupported,  // a known thing that this engine does not do
  OutOfMemory,  // would not fit the memory budget
  NonFinite,    // a NaN or infinity where a number was due
  Cancelled,    // stopped on request, with the state saved
  Io,           // the operating system refused
  Internal,     // our fault
};

// The process exit status of a failure.  Source: api.md 10.
constexpr int exit_status(Code code) {
  switch (code) {
    case Code::Usage:
      return 2;
    case Code::BadData:
      return 3;
    case Code::Unsupported:
      return 4;
    case Code::OutOfMemory:
      return 5;
    case Code::NonFinite:
      return 6;
    case Code::Cancelled:
      return 130;
    case Code::Io:
    case Code::Internal:
      return 1;
  }
  return 1;
}

class Error : public std::runtime_error {
 public:
  Error(Code code, const std::string& message) : std::runtime_error(message), code_(code) {}
  Code code() const { return code_; }

 private:
  Code code_;
};

// Throws Error.  The message says what, got, wanted, where, and the remedy if one is known.
template <class... Args>
[[noreturn]] void fail(Code code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace tandem

// Always on: a broken promise between parts of this program.  User input never reaches it.
#define TANDEM_CHECK(condition)                                                                            \
  do {                                                                                                     \
    if (!(condition))                                                                                      \
      ::tandem::fail(::tandem::Code::Internal, "{}:{}: check failed: {}", __FILE__, __LINE__, #condition); \
  } while (0)
