// Reading GGUF model files: a container of typed keys and of tensors, in one file or split over several.  The
// files stay mapped, tensors point into them. Source: gguf.md 1-9.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
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
  uint32_t shard;  // index in GgufFile::shards() of the file it is in
};

// One file of a model: the only one, or a shard of a split model.
struct GgufShard {
  std::string path;
  uint32_t version;
  uint32_t alignment;   // bytes, of tensor offsets
  uint64_t file_bytes;  // of the whole file
  uint64_t data_start;  // bytes, from the start of the file
  size_t n_entries, n_tensors;
};

// The bytes of a file in memory; `where` stands for its path in messages.
struct GgufBytes {
  std::span<const std::byte> bytes;
  std::string where;
};

// An open GGUF model whose structure has been checked: every value and tensor lies inside its file, names are
// unique, sizes do not overflow, shards belong together.  Names, values and tensors live as long as the
// GgufFile, also when it is moved.  Getters name the file and the key in their messages, and throw BadData if
// the value has another type or is out of range.
class GgufFile {
 public:
  // A model in one file, or the first shard of a split one: its siblings are found beside it by their names
  // (`NAME-00002-of-00003.gguf`), and all of them are read as one model.
  // Throws: Io if a file cannot be mapped, BadData if one breaks a rule of gguf.md 7 or 9, Unsupported for a
  // big-endian file, Usage for a shard that is not the first.
  static GgufFile open(const std::string& path);
  // The same for a file in memory, which must outlive the result and start at an address aligned like its
  // tensors; `where` stands for its path in messages.
  static GgufFile parse(std::span<const std::byte> bytes, std::string where);
  // The same for all shards of a model in their order; one alone may be unsplit.
  static GgufFile parse(std::span<const GgufBytes> shards);

  // Of the file, or of the first shard, as are version, alignment and data_start.
  const std::string& path() const { return shards_.front().path; }
  uint32_t version() const { return shards_.front().version; }
  uint32_t alignment() const { return shards_.front().alignment; }    // bytes, of tensor offsets
  uint64_t data_start() const { return shards_.front().data_start; }  // bytes, from the start of the file
  uint64_t file_bytes() const;                                        // of all shards together

  // One for a model that is not split.
  std::span<const GgufShard> shards() const { return shards_; }
  const std::string& path_of(const GgufTensor& tensor) const { return shards_[tensor.shard].path; }
  // Looks again whether every mapped file still covers its mapping (MappedFile::check_size).
  // Throws: Io if one has shrunk.
  void check_size() const;

  // Keys in file order; a split model's are those of its first shard.
  std::span<const GgufEntry> entries() const { return entries_; }
  // Tensors in file order, shard after shard.
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

  // One file, split or not.
  static GgufFile read_one(std::span<const std::byte> bytes, std::string where);
  void index_tensors();
  // How many files the keys say the model has; throws unless this is the first of them.
  uint64_t begin_split() const;
  // Takes the tensors of the next shard.
  void append_shard(GgufFile&& next);
  // Checks that the shards are complete.
  void finish_split();
  const GgufValue& require(std::string_view key) const;
  const GgufValue& require_scalar(std::string_view key, const char* wanted) const;
  const GgufValue& require_array(std::string_view key, const char* wanted) const;
  [[noreturn]] void refuse_type(std::string_view key, const GgufValue& value, const char* wanted) const;

  std::vector<MappedFile> maps_;  // one per shard; none of a model in memory
  std::vector<GgufShard> shards_;
  std::vector<GgufEntry> entries_;
  std::vector<GgufTensor> tensors_;
  std::vector<uint32_t> entry_order_;   // indices sorted by key
  std::vector<uint32_t> tensor_order_;  // indices sorted by name
};

}  // namespace tandem
