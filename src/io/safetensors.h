// Safetensors files: a JSON header of named tensors, and their bytes.  Source: lora-adapter.md 3.3.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace tandem {

constexpr uint64_t kMaxSafetensorsHeaderBytes = 100'000'000;

enum class SafeType : uint8_t {
  BOOL,
  U8,
  I8,
  F8_E5M2,
  F8_E4M3,
  I16,
  U16,
  F16,
  BF16,
  I32,
  U32,
  F32,
  I64,
  U64,
  F64
};

const char* name_of(SafeType type);
uint64_t bytes_of(SafeType type);  // of one element

struct SafeTensor {
  std::string name;
  SafeType type;
  std::vector<int64_t> shape;  // slowest first, as in PyTorch; empty: a scalar
  uint64_t offset;             // bytes, from the start of the data
  std::span<const std::byte> data;

  int64_t elements() const;
};

// An open file whose structure has been checked: names are unique, every tensor's bytes are what its shape
// needs, and together they cover the data without gap or overlap.
class SafetensorsFile {
 public:
  // The file stays mapped.  Throws: Io if it cannot be mapped, BadData if it breaks a rule of lora-adapter.md
  // 3.3, Unsupported for an element type that is not known.
  static SafetensorsFile open(const std::string& path);
  // The same for a file in memory, which must outlive the result; `where` stands for its path in messages.
  static SafetensorsFile parse(std::span<const std::byte> bytes, std::string where);

  const std::string& path() const { return path_; }
  std::span<const SafeTensor> tensors() const { return tensors_; }  // sorted by name
  const SafeTensor* find(std::string_view name) const;              // or null
  const std::map<std::string, std::string, std::less<>>& metadata() const { return metadata_; }

  // The elements of an F32, F16 or BF16 tensor as f32: `out` has room for all of them.
  static bool is_float(const SafeTensor& t);
  static void read_f32(const SafeTensor& t, float* out);

 private:
  SafetensorsFile() = default;
  void parse_all(std::span<const std::byte> bytes);
  void check_cover(uint64_t data_bytes) const;

  std::optional<MappedFile> map_;
  std::string path_;
  std::vector<SafeTensor> tensors_;
  std::map<std::string, std::string, std::less<>> metadata_;
};

// Collects tensors and writes them in the order they were added.
class SafetensorsWriter {
 public:
  void add_metadata(std::string_view key, std::string_view value);
  // `data` must hold exactly the bytes of the shape, and stay alive until it is written.  A name added twice
  // throws BadData.
  void add_tensor(std::string_view name, SafeType type, std::vector<int64_t> shape,
                  std::span<const std::byte> data);

  // Writes the file, whole or not at all (write_file_atomic).  Throws: Io.
  void write(const std::string& path) const;
  // The file in memory.
  std::vector<std::byte> to_bytes() const;

 private:
  struct Out {
    std::string name;
    SafeType type;
    std::vector<int64_t> shape;
    std::span<const std::byte> data;
  };
  std::string header() const;
  void emit(const ByteSink& sink) const;

  std::map<std::string, std::string> metadata_;
  std::vector<Out> tensors_;
  std::set<std::string, std::less<>> names_;
};

}  // namespace tandem
