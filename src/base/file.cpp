#include "base/file.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"

namespace tandem {
namespace {

std::string reason(int error) { return std::generic_category().message(error); }

// Between a target's name and "PID-N" in the name of its temporary file.
constexpr std::string_view kTemporaryMark = ".tmp-";

int system_open(const char* path, int flags, mode_t mode) { return ::open(path, flags, mode); }

FileOps file_ops = {system_open, ::write, ::fsync, ::close, ::rename, ::unlink};

// Closes on every way out of a reading function.
class ReadFd {
 public:
  explicit ReadFd(int fd) : fd_(fd) {}
  ReadFd(const ReadFd&) = delete;
  ReadFd& operator=(const ReadFd&) = delete;
  ~ReadFd() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

// Where the bytes will really go: the end of a symbolic link, and the permissions of the file to be replaced.
struct Target {
  std::string path;
  std::string directory;
  mode_t mode;
};

Target resolve_target(const std::string& path) {
  if (path.empty()) fail(Code::Io, "cannot write a file without a name");
  Target target{.path = path, .directory = {}, .mode = 0666};
  struct stat status;
  if (::lstat(path.c_str(), &status) == 0 && S_ISLNK(status.st_mode)) {
    const std::unique_ptr<char, void (*)(void*)> resolved(::realpath(path.c_str(), nullptr), ::free);
    if (!resolved) fail(Code::Io, "{}: cannot be written: symbolic link: {}", path, reason(errno));
    target.path = resolved.get();
  }
  if (::stat(target.path.c_str(), &status) == 0) {
    if (!S_ISREG(status.st_mode)) {
      fail(Code::Io, "{}: cannot be written: it is {}, not a regular file", path,
           S_ISDIR(status.st_mode) ? "a directory" : "a device, pipe or socket");
    }
    target.mode = status.st_mode & 0777;
  } else if (errno != ENOENT) {
    fail(Code::Io, "{}: cannot be written: {}", path, reason(errno));
  }
  const size_t slash = target.path.rfind('/');
  if (slash + 1 == target.path.size()) fail(Code::Io, "{}: cannot be written: it names a directory", path);
  target.directory = slash == std::string::npos ? "." : slash == 0 ? "/" : target.path.substr(0, slash);
  return target;
}

// A new file beside the target, gone again unless it was renamed.  Errors name the path the caller gave.
class TempFile {
 public:
  TempFile(const std::string& path, const Target& target) : path_(path), target_(target) {
    static std::atomic<unsigned> counter{0};
    constexpr int kAttempts = 1000;  // names left by killed processes that had our id
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      name_ = fmt::format("{}{}{}-{}", target.path, kTemporaryMark, ::getpid(), counter++);
      do {
        fd_ = file_ops.open(name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, target.mode);
      } while (fd_ < 0 && errno == EINTR);
      if (fd_ >= 0) return;
      if (errno != EEXIST) break;
    }
    fail(Code::Io, "{}: cannot create a temporary file in {}: {}", path_, target.directory, reason(errno));
  }
  TempFile(const TempFile&) = delete;
  TempFile& operator=(const TempFile&) = delete;
  ~TempFile() {
    if (fd_ >= 0) file_ops.close(fd_);
    if (!renamed_) file_ops.unlink(name_.c_str());
  }

  void write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t n = file_ops.write(fd_, bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) fail(Code::Io, "{}: write failed: {}", path_, n == 0 ? "no progress" : reason(errno));
      bytes = bytes.subspan(static_cast<size_t>(n));
    }
  }

  void sync_and_close() {
    if (file_ops.fsync(fd_) != 0) fail(Code::Io, "{}: flush to disk failed: {}", path_, reason(errno));
    if (file_ops.close(std::exchange(fd_, -1)) != 0)
      fail(Code::Io, "{}: close failed: {}", path_, reason(errno));
  }

  const std::string& name() const { return name_; }

  void rename() {
    if (file_ops.rename(name_.c_str(), target_.path.c_str()) != 0) {
      fail(Code::Io, "{}: cannot take the place of the old file: {}", path_, reason(errno));
    }
    renamed_ = true;
  }

 private:
  const std::string& path_;
  const Target& target_;
  std::string name_;
  int fd_ = -1;
  bool renamed_ = false;
};

// Without the slashes at its end: "a/b/" is "a/b".
std::string without_slashes(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

std::string parent_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

// What a directory may be replaced for: it is not there, or holds these files only.  Throws: Usage, Io.
bool check_replaceable(const std::string& path, std::span<const std::string> names) {
  if (path.empty()) fail(Code::Usage, "cannot write a directory without a name");
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::symlink_status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) return false;
  if (error) fail(Code::Io, "{}: cannot be examined: {}", path, error.message());
  if (!std::filesystem::is_directory(status))
    fail(Code::Usage, "{}: is there already and is no directory; name another place", path);
  std::filesystem::directory_iterator entries(path, error);
  for (; !error && entries != std::filesystem::directory_iterator(); entries.increment(error)) {
    const std::string name = entries->path().filename().string();
    std::error_code unknown;
    if (std::find(names.begin(), names.end(), name) == names.end() || !entries->is_regular_file(unknown)) {
      fail(Code::Usage,
           "{}: is there already and holds {}, which would be lost; name another place, or remove it first",
           path, name);
    }
  }
  if (error) fail(Code::Io, "{}: cannot be listed: {}", path, error.message());
  return true;
}

// A new directory beside the one to be written, gone again with its files unless it was moved.
class TempDirectory {
 public:
  explicit TempDirectory(const std::string& path) : path_(path) {
    static std::atomic<unsigned> counter{0};
    constexpr int kAttempts = 1000;  // names left by killed processes that had our id
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      name_ = fmt::format("{}.tmp-{}-{}", path, ::getpid(), counter++);
      if (::mkdir(name_.c_str(), 0777) == 0) return;
      if (errno != EEXIST) break;
    }
    const int error = errno;
    fail(Code::Io, "{}: cannot create a temporary directory in {}: {}", path, parent_of(path), reason(error));
  }
  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;
  ~TempDirectory() {
    std::error_code ignored;
    if (!name_.empty()) std::filesystem::remove_all(name_, ignored);
  }
  const std::string& name() const { return name_; }

  // Takes the place of a directory that may be there, which then is this one, and goes.
  void move(bool replace) {
    if (replace && ::renameat2(AT_FDCWD, name_.c_str(), AT_FDCWD, path_.c_str(), RENAME_EXCHANGE) == 0)
      return;
    // Some file systems cannot exchange; for a moment the place is empty there.
    const std::string old = name_ + ".old";
    if (replace && (errno != EINVAL || file_ops.rename(path_.c_str(), old.c_str()) != 0))
      fail(Code::Io, "{}: cannot take the place of the old directory: {}", path_, reason(errno));
    if (file_ops.rename(name_.c_str(), path_.c_str()) != 0) {
      const int error = errno;
      if (replace) file_ops.rename(old.c_str(), path_.c_str());
      fail(Code::Io, "{}: cannot be put in place: {}", path_, reason(error));
    }
    name_ = replace ? old : "";
  }

 private:
  const std::string path_;
  std::string name_;
};

// Makes the rename itself durable.
void sync_directory(const std::string& path, const std::string& directory) {
  const int fd = file_ops.open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
  int error = fd < 0 ? errno : 0;
  // Some file systems cannot flush directories and say EINVAL; there is nothing more to do on them.
  if (fd >= 0 && file_ops.fsync(fd) != 0 && errno != EINVAL) error = errno;
  if (fd >= 0) file_ops.close(fd);
  if (error != 0) {
    fail(Code::Io,
         "{}: written, but flushing its directory {} failed: {}; a power cut may bring the old file back",
         path, directory, reason(error));
  }
}

// Collects small writes into large ones.
class Output {
 public:
  explicit Output(TempFile& file) : file_(file) { buffer_.reserve(kBufferBytes); }

  void put(std::span<const std::byte> bytes) {
    broken_ = true;  // until this call has succeeded
    if (buffer_.size() + bytes.size() > kBufferBytes) flush();
    if (bytes.size() >= kBufferBytes) {
      file_.write(bytes);
    } else {
      buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
    }
    broken_ = false;
  }

  // A producer that swallowed the error of a put() must not end up with a file that lacks those bytes.
  void finish(const std::string& path) {
    if (broken_) fail(Code::Io, "{}: write failed", path);
    flush();
  }

 private:
  static constexpr size_t kBufferBytes = size_t{1} << 18;

  void flush() {
    file_.write(buffer_);
    buffer_.clear();
  }

  TempFile& file_;
  std::vector<std::byte> buffer_;
  bool broken_ = false;
};

}  // namespace

MappedFile MappedFile::open(const std::string& path) {
  // O_NONBLOCK: opening a pipe must not wait for a writer before it is refused.
  ReadFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) fail(Code::Io, "{}: cannot be opened: {}", path, reason(errno));
  struct stat status;
  if (::fstat(fd.get(), &status) != 0) fail(Code::Io, "{}: cannot be examined: {}", path, reason(errno));
  if (!S_ISREG(status.st_mode)) fail(Code::Io, "{}: cannot be mapped: not a regular file", path);
  MappedFile file;
  file.path_ = path;
  file.size_ = static_cast<size_t>(status.st_size);
  if (file.size_ > 0) {
    void* data = ::mmap(nullptr, file.size_, PROT_READ, MAP_SHARED, fd.get(), 0);
    if (data == MAP_FAILED) fail(Code::Io, "{}: cannot be mapped: {}", path, reason(errno));
    file.data_ = static_cast<const std::byte*>(data);
  }
  file.fd_ = fd.release();
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
  if (fd_ >= 0) ::close(fd_);
}

void MappedFile::check_size() const {
  struct stat status;
  if (::fstat(fd_, &status) != 0) fail(Code::Io, "{}: cannot be examined: {}", path_, reason(errno));
  if (status.st_size < 0 || static_cast<size_t>(status.st_size) < size_) {
    fail(Code::Io, "{}: has shrunk from {} to {} bytes while in use", path_, size_, status.st_size);
  }
}

std::string read_file(const std::string& path, size_t max_bytes) {
  const ReadFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) fail(Code::Io, "{}: cannot be opened: {}", path, reason(errno));
  std::string text;
  size_t size = 0;
  for (;;) {
    if (size == text.size()) text.resize(std::max<size_t>(size_t{1} << 16, 2 * size));
    const ssize_t n = ::read(fd.get(), text.data() + size, text.size() - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(Code::Io, "{}: cannot be read: {}", path, reason(errno));
    if (n == 0) break;
    size += static_cast<size_t>(n);
    if (size > max_bytes)
      fail(Code::BadData, "{}: is larger than the {} bytes allowed here", path, max_bytes);
  }
  text.resize(size);
  return text;
}

void write_file_atomic(const std::string& path, const std::function<void(const ByteSink&)>& produce,
                       const std::function<void(const std::string&)>& verify) {
  const Target target = resolve_target(path);
  {
    TempFile file(path, target);
    Output output(file);
    produce([&output](std::span<const std::byte> bytes) { output.put(bytes); });
    output.finish(path);
    file.sync_and_close();
    if (verify) verify(file.name());
    file.rename();
  }
  sync_directory(path, target.directory);
}

void write_directory_atomic(const std::string& given, std::span<const std::string> names,
                            const std::function<void(const std::string&)>& produce) {
  const std::string path = without_slashes(given);
  const bool replace = check_replaceable(path, names);
  {
    TempDirectory directory(path);
    produce(directory.name());
    sync_directory(path, directory.name());
    directory.move(replace);
  }
  sync_directory(path, parent_of(path));
}

void check_writable_directory(const std::string& given, std::span<const std::string> names) {
  const std::string path = without_slashes(given);
  check_replaceable(path, names);
  const TempDirectory directory(path);
  check_writable(directory.name() + "/probe");
}

void write_file_atomic(const std::string& path, std::span<const std::byte> contents) {
  write_file_atomic(path, [contents](const ByteSink& sink) { sink(contents); });
}

void write_file_atomic(const std::string& path, std::string_view contents) {
  write_file_atomic(path, std::as_bytes(std::span(contents.data(), contents.size())));
}

void check_writable(const std::string& path) {
  const Target target = resolve_target(path);
  TempFile file(path, target);
  const std::byte probe[1] = {};  // a full disk shows only when something is written
  file.write(probe);
  file.sync_and_close();
}

bool make_directory(const std::string& path) {
  struct stat status;
  if (::mkdir(path.c_str(), 0777) != 0) {
    const int error = errno;
    if (error == EEXIST && ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode)) return false;
    fail(Code::Io, "{}: the directory cannot be made: {}", path, reason(error));
  }
  const size_t slash = path.find_last_not_of('/') == std::string::npos
                           ? std::string::npos
                           : path.rfind('/', path.find_last_not_of('/'));
  sync_directory(path, slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash));
  return true;
}

void remove_file(const std::string& path) {
  if (file_ops.unlink(path.c_str()) != 0 && errno != ENOENT)
    fail(Code::Io, "{}: cannot be removed: {}", path, reason(errno));
}

size_t remove_abandoned_temporaries(const std::string& directory, std::string_view prefix) {
  size_t n_removed = 0;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(directory, none)) {
    const std::string name = entry.path().filename().string();
    const size_t mark = name.rfind(kTemporaryMark);
    if (!name.starts_with(prefix) || mark == std::string::npos) continue;
    long pid = 0;
    unsigned counter = 0;
    int n_read = 0;
    const char* numbers = name.c_str() + mark + kTemporaryMark.size();
    if (std::sscanf(numbers, "%ld-%u%n", &pid, &counter, &n_read) != 2 || numbers[n_read] != 0) continue;
    if (pid <= 0 || ::kill(static_cast<pid_t>(pid), 0) == 0 || errno != ESRCH) continue;
    n_removed += file_ops.unlink(entry.path().c_str()) == 0;
  }
  return n_removed;
}

FileOps set_file_ops_for_test(const FileOps& ops) { return std::exchange(file_ops, ops); }

}  // namespace tandem
