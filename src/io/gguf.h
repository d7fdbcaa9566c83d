// Reading GGUF model files: a container of typed keys and of tensors.  The file stays mapped, tensors point
// into it. Source: gguf.md 1-8.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "formats/dtype.h"

namespace tandem {

constexpr size_t kMaxGgufKeyBytes = 65535;  // Source: gguf.md 7.7
constexpr size_t kMaxGgufNameBytes = 63;    // of a tensor.  Source: gguf.md 7.9
// Alignment of tensor data.  Weights are read in place and blocks hold numbers of up to 8 bytes; the upper
// bound is the one suggested in gguf.md 7.8.
constexpr uint32_t kMinGgufAlignment = 8;
constexpr uint32_t kMaxGgufAlignment = uint32_t{1} << 20;

// The type of a value, numbered as in the file.  Source: gguf.md 2.
enum class GgufType : uint32_t { U8, I8, U16, I16, U32, I32, F32, Bool, Str, Array, U64, I64, F64 };

// A value as it stands in the file: its elements back to back, little-endian, strings with their length in
// front.
struct GgufValue {
  GgufType type;  // of the elements, if it is an array; never Array
  bool is_array;
  uint64_t count;  // elements; 1 if it is no array
  std::span<const std::byte> bytes;
};

struct GgufEntry {
  std::string_view key;
  GgufValue value;
};

// "u32", or "f32[2]" for an array.
std::string type_text(const GgufValue& value);
// The value for people; of long arrays the first max_items elements, of long strings the first 120 bytes.
std::string to_text(const GgufValue& value, size_t max_items = 8);

struct GgufTensor {
  std::string name;
  DType type;                 // perhaps one that has a size but no codec
  uint32_t n_dims;            // as written, 0..4
  std::array<int64_t, 4> ne;  // elements per dimension, fastest first, all > 0; 1 beyond n_dims
  uint64_t offset;            // bytes, from the start of the data section
  int64_t bytes;
  const std::byte* data;
};

// An open GGUF file whose structure has been checked: every value and tensor lies inside the file, names are
// unique, sizes do not overflow.  Names, values and tensors live as long as the GgufFile, also when it is
// moved.  Getters name the file and the key in their messages, and throw BadData if the value has another
// type or is out of range.
class GgufFile {
 public:
  // Throws: Io if the file cannot be mapped, BadData if it breaks a rule of gguf.md 7, Unsupported for a
  // big-endian file and for one shard of a split model.
  static GgufFile open(const std::string& path);
  // The same for a file in memory, which must outlive the result and start at an address aligned like its
  // tensors; `where` stands for its path in messages.
  static GgufFile parse(std::span<const std::byte> bytes, std::string where);

  const std::string& path() const { return path_; }
  uint32_t version() const { return version_; }
  uint32_t alignment() const { return alignment_; }  // bytes, of tensor offsets
  uint64_t file_bytes() const { return bytes_.size(); }
  uint64_t data_start() const { return data_start_; }  // bytes, from the start of the file

  // Keys and tensors in file order.
  std::span<const GgufEntry> entries() const { return entries_; }
  std::span<const GgufTensor> tensors() const { return tensors_; }

  // The tensor of that name, or null.
  const GgufTensor* find(std::string_view name) const;
  // The value of that key, or null.
  const GgufValue* value(std::string_view key) const;
  bool has(std::string_view key) const { return value(key) != nullptr; }

  // Scalars that must be there.  Integers are taken from any integer type that holds them, floats from f32
  // and f64.
  uint64_t get_u64(std::string_view key) const;
  uint32_t get_u32(std::string_view key) const;
  int64_t get_i64(std::string_view key) const;
  float get_f32(std::string_view key) const;
  bool get_bool(std::string_view key) const;
  std::string_view get_str(std::string_view key) const;

  // The same for keys that may be absent.
  uint64_t get_u64_or(std::string_view key, uint64_t otherwise) const;
  uint32_t get_u32_or(std::string_view key, uint32_t otherwise) const;
  int64_t get_i64_or(std::string_view key, int64_t otherwise) const;
  float get_f32_or(std::string_view key, float otherwise) const;
  bool get_bool_or(std::string_view key, bool otherwise) const;
  std::string_view get_str_or(std::string_view key, std::string_view otherwise) const;

  // Arrays that must be there, with the same freedom of types.
  std::vector<uint64_t> get_u64s(std::string_view key) const;
  std::vector<int32_t> get_i32s(std::string_view key) const;
  std::vector<float> get_f32s(std::string_view key) const;
  std::vector<bool> get_bools(std::string_view key) const;
  std::vector<std::string_view> get_strings(std::string_view key) const;
  // One value for each of n layers: an array of exactly n, or one number for all.
  std::vector<uint64_t> get_u64_per_layer(std::string_view key, size_t n_layers) const;

 private:
  GgufFile() = default;

  void parse_all();
  const GgufValue& require(std::string_view key) const;
  const GgufValue& require_scalar(std::string_view key, const char* wanted) const;
  const GgufValue& require_array(std::string_view key, const char* wanted) const;
  [[noreturn]] void refuse_type(std::string_view key, const GgufValue& value, const char* wanted) const;

  std::optional<MappedFile> map_;
  std::string path_;
  std::span<const std::byte> bytes_;
  uint32_t version_ = 0;
  uint32_t alignment_ = 32;
  uint64_t data_start_ = 0;
  std::vector<GgufEntry> entries_;
  std::vector<GgufTensor> tensors_;
  std::vector<uint32_t> entry_order_;   // indices sorted by key
  std::vector<uint32_t> tensor_order_;  // indices sorted by name
};

}  // namespace tandem
