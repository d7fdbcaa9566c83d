// Files: mapping and reading whole ones, and writing them so that a crash leaves the old file or the new one.
#pragma once
#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace tandem {

// A whole file mapped read-only.  The addresses stay the same when the object is moved.
class MappedFile {
 public:
  // Maps the regular file at path; an empty file gives an empty span.
  // Throws: Io if it cannot be opened or mapped, or is not a regular file.
  static MappedFile open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

  // Looks again whether the file still covers the mapping: touching a page beyond its end raises SIGBUS.
  // Throws: Io if the file has shrunk since it was mapped.
  void check_size() const;

 private:
  MappedFile() = default;

  std::string path_;
  int fd_ = -1;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// The contents of a file, or of a pipe until its end.
// Throws: Io if it cannot be read, BadData if it holds more than max_bytes.
std::string read_file(const std::string& path, size_t max_bytes);

// Takes the next bytes of a file that is being written.
using ByteSink = std::function<void(std::span<const std::byte>)>;

// Replaces the file at path by what `produce` hands to the sink: temporary name in the same directory, fsync,
// rename, fsync of the directory.  A symbolic link stays, its target is replaced; an existing file's
// permissions are kept.  If anything fails, or produce throws, the old file is untouched and the temporary
// one is gone; only a failure to flush the directory comes after the new file is in place. Throws: Io;
// whatever produce throws.
// `verify`, if given, reads the flushed temporary file before it takes its place; if it throws, that is a
// failure too.
void write_file_atomic(const std::string& path, const std::function<void(const ByteSink&)>& produce,
                       const std::function<void(const std::string& temporary)>& verify = {});
void write_file_atomic(const std::string& path, std::span<const std::byte> contents);
void write_file_atomic(const std::string& path, std::string_view contents);

// Replaces the directory at path by what `produce` leaves in the temporary one beside it that it is given,
// which holds files of the given names and no directory: the old directory stays or the new one is there,
// whole. An existing directory is replaced only if it holds nothing but files of these names. Throws: Usage
// for a path that is something else; Io; whatever produce throws.
void write_directory_atomic(const std::string& path, std::span<const std::string> names,
                            const std::function<void(const std::string& temporary)>& produce);
// Makes sure that write_directory_atomic can work; leaves nothing behind.  Throws: Usage, Io.
void check_writable_directory(const std::string& path, std::span<const std::string> names);

// Makes sure that write_file_atomic(path) can work, before hours of work depend on it; leaves nothing behind.
// Throws: Io if the directory is missing or not writable, or path is not a regular file.
void check_writable(const std::string& path);

// Makes the directory, unless it is there; the one it lies in must exist, and is flushed.  Says whether it
// was made. Throws: Io.
bool make_directory(const std::string& path);

// Removes a file; one that is not there is no failure.  Throws: Io.
void remove_file(const std::string& path);

// Removes the temporary files that killed processes left in a directory: those of write_file_atomic for
// targets whose name begins with `prefix`, made by a process that no longer lives.  Gives their number.
size_t remove_abandoned_temporaries(const std::string& directory, std::string_view prefix);

// The system calls that writing goes through; each behaves as in POSIX.
struct FileOps {
  int (*open)(const char* path, int flags, mode_t mode);
  ssize_t (*write)(int fd, const void* data, size_t n_bytes);
  int (*fsync)(int fd);
  int (*close)(int fd);
  int (*rename)(const char* from, const char* to);
  int (*unlink)(const char* path);
};

// Replaces the table, for fault tests, while no other thread writes; gives the table it replaced.
FileOps set_file_ops_for_test(const FileOps& ops);

}  // namespace tandem
