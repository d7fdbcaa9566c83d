// The container of checkpoints: named runs of bytes in one file, sealed by a hash.
//
// Layout, little-endian:
//   "TANDEMCK", u32 version = 1, u32 number of sections, u64 bytes of the whole file
//   for each section: u32 bytes of its name, the name, u64 bytes of its contents
//   the contents in that order, each begun at a multiple of 64 bytes after zeros, so that the mapped file can
//   be read in place
//   XXH3-128 of everything before it (16 bytes, canonical order)
// Not GGUF, although that would hold it: a checkpoint is for this program alone, and here each byte of the
// file is either covered by the hash or is the hash.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace tandem {

struct CheckpointSection {
  std::string name;                  // 1 to 64 of a-z, 0-9, '-', unique in a file
  std::span<const std::byte> bytes;  // alive until the file is written, or as long as the file is open
};

// Bytes of the file that these sections make.
uint64_t checkpoint_file_bytes(std::span<const CheckpointSection> sections);

// Writes the file, whole or not at all (write_file_atomic).  Throws: Io.
void write_checkpoint_file(const std::string& path, std::span<const CheckpointSection> sections);

// The sections of a checkpoint that is in memory, which `where` names in messages.
// Throws: BadData if it is damaged or something else, Unsupported for another version of the layout.
std::vector<CheckpointSection> parse_checkpoint(std::span<const std::byte> bytes, const std::string& where);

// A checkpoint file, mapped and verified: nothing is taken from it before every size has been held against
// the length of the file, and all of it against the hash.
class CheckpointFile {
 public:
  // Throws: Io if it cannot be read, and what parse_checkpoint() throws.
  static CheckpointFile open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  std::span<const CheckpointSection> sections() const { return sections_; }
  // The contents of a section.  Throws: BadData if there is none of this name.
  std::span<const std::byte> section(std::string_view name) const;

 private:
  explicit CheckpointFile(MappedFile file) : file_(std::move(file)) {}

  MappedFile file_;
  std::vector<CheckpointSection> sections_;
};

}  // namespace tandem
