// File operations that fail when told to.
#pragma once
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/file.h"

namespace tandem {

// Calls are counted over all operations, and the one with number `fail_at` fails with `error`.
struct FileFaults {
  int n_calls = 0;
  int fail_at = -1;
  int error = EIO;
  std::string failed;                 // the operation that was made to fail
  size_t max_write_bytes = SIZE_MAX;  // less: writes are short, and every other one is interrupted
  bool interrupt_next_write = false;
  FileOps real{};
};
extern FileFaults faults;

// While it lives, files are written through `faults`, which it resets.
class FaultyFiles {
 public:
  FaultyFiles();
  ~FaultyFiles();
  FaultyFiles(const FaultyFiles&) = delete;
  FaultyFiles& operator=(const FaultyFiles&) = delete;
};

}  // namespace tandem
