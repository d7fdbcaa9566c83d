#include "tests/support/faulty_files.h"

#include <algorithm>

namespace tandem {

FileFaults faults;

namespace {

bool fails(const char* name) {
  if (faults.n_calls++ != faults.fail_at) return false;
  faults.failed = name;
  errno = faults.error;
  return true;
}

int faulty_open(const char* path, int flags, mode_t mode) {
  return fails("open") ? -1 : faults.real.open(path, flags, mode);
}
ssize_t faulty_write(int fd, const void* data, size_t n) {
  if (fails("write")) {
    faults.real.write(fd, data, n / 2);  // the worst kind of failure: half of it is there
    errno = faults.error;
    return -1;
  }
  if (faults.max_write_bytes != SIZE_MAX) {
    faults.interrupt_next_write = !faults.interrupt_next_write;
    if (faults.interrupt_next_write) {
      errno = EINTR;
      return -1;
    }
  }
  return faults.real.write(fd, data, std::min(n, faults.max_write_bytes));
}
int faulty_fsync(int fd) { return fails("fsync") ? -1 : faults.real.fsync(fd); }
int faulty_close(int fd) {
  const int result = faults.real.close(fd);  // a failed close has closed all the same
  return fails("close") ? -1 : result;
}
int faulty_rename(const char* from, const char* to) {
  return fails("rename") ? -1 : faults.real.rename(from, to);
}
int faulty_unlink(const char* path) { return fails("unlink") ? -1 : faults.real.unlink(path); }

}  // namespace

FaultyFiles::FaultyFiles() {
  faults = {};
  faults.real = set_file_ops_for_test(
      {faulty_open, faulty_write, faulty_fsync, faulty_close, faulty_rename, faulty_unlink});
}

FaultyFiles::~FaultyFiles() { set_file_ops_for_test(faults.real); }

}  // namespace tandem
