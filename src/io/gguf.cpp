#include "io/gguf.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "io/quote.h"

// Numbers are copied from the file as they are.
static_assert(std::endian::native == std::endian::little);

namespace tandem {
namespace {

constexpr uint64_t kHeaderBytes = 24;
constexpr uint64_t kMinEntryBytes = 8 + 4 + 1;           // gguf.md 7.2
constexpr uint64_t kMinTensorInfoBytes = 8 + 4 + 4 + 8;  // gguf.md 7.2
constexpr uint64_t kMaxStringBytes = uint64_t{1} << 30;  // gguf.md 7.3
constexpr uint64_t kMaxArrayCount = uint64_t{1} << 30;   // gguf.md 7.4

struct ValueTypeInfo {
  const char* name;
  uint64_t bytes;  // of one element; the smallest one for strings
};
constexpr ValueTypeInfo kValueTypes[] = {{"u8", 1},  {"i8", 1},  {"u16", 2},  {"i16", 2}, {"u32", 4},
                                         {"i32", 4}, {"f32", 4}, {"bool", 1}, {"str", 8}, {"array", 12},
                                         {"u64", 8}, {"i64", 8}, {"f64", 8}};

const ValueTypeInfo& info_of(GgufType type) { return kValueTypes[static_cast<uint32_t>(type)]; }

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

// The string whose length field stands at `from`, which was checked when the file was parsed.
std::string_view load_string(const std::byte* from) {
  return {reinterpret_cast<const char*>(from + 8), static_cast<size_t>(load<uint64_t>(from))};
}

// Reads forward through the header, knowing what it is in the middle of.
class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, const std::string& where) : bytes_(bytes), where_(where) {}

  uint64_t position() const { return position_; }
  uint64_t remaining() const { return bytes_.size() - position_; }

  // What the next reads belong to, for messages: "key 3 'general.name'".
  void enter(const char* kind, uint64_t index) {
    kind_ = kind;
    index_ = index;
    name_ = {};
  }
  void set_name(std::string_view name) { name_ = name; }

  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    std::string place;
    if (kind_ != nullptr)
      place = fmt::format("{} {}", kind_, name_.empty() ? std::to_string(index_) : quote(name_));
    fail(Code::BadData, "{}: {}{}{}", where_, place, place.empty() ? "" : ": ",
         fmt::format(format, std::forward<Args>(args)...));
  }

  std::span<const std::byte> take_bytes(uint64_t n) {
    if (n > remaining()) {
      refuse("the file ends too early: {} bytes wanted at byte {}, {} left", n, position_, remaining());
    }
    const auto taken = bytes_.subspan(position_, n);
    position_ += n;
    return taken;
  }

  template <class T>
  T take() {
    return load<T>(take_bytes(sizeof(T)).data());
  }

  std::string_view take_string(const char* what, uint64_t max_bytes) {
    const auto n = take<uint64_t>();
    if (n > max_bytes) refuse("{} has {} bytes, more than the {} allowed", what, n, max_bytes);
    const auto bytes = take_bytes(n);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

 private:
  std::span<const std::byte> bytes_;
  const std::string& where_;
  uint64_t position_ = 0;
  const char* kind_ = nullptr;
  uint64_t index_ = 0;
  std::string_view name_;
};

struct Header {
  uint32_t version;
  uint64_t n_tensors;
  uint64_t n_entries;
};

Header take_header(Cursor& in, const std::string& where) {
  if (in.remaining() < kHeaderBytes) {
    in.refuse("the file has {} bytes, fewer than a GGUF header's {}", in.remaining(), kHeaderBytes);
  }
  const auto magic = in.take_bytes(4);
  if (std::memcmp(magic.data(), "GGUF", 4) != 0) {
    in.refuse("not a GGUF file: it starts with {}, wanted 'GGUF'",
              quote({reinterpret_cast<const char*>(magic.data()), magic.size()}));
  }
  Header header{};
  header.version = in.take<uint32_t>();
  if (header.version != 0 && (header.version & 0xffff) == 0) {
    fail(Code::Unsupported, "{}: a big-endian GGUF file; convert it to little-endian", where);
  }
  if (header.version != 2 && header.version != 3) {
    in.refuse("GGUF version {}, wanted 2 or 3; convert the model anew", header.version);
  }
  header.n_tensors = in.take<uint64_t>();
  header.n_entries = in.take<uint64_t>();
  if (header.n_tensors > in.remaining() / kMinTensorInfoBytes) {
    in.refuse("{} tensors announced, but only {} bytes follow", header.n_tensors, in.remaining());
  }
  if (header.n_entries > in.remaining() / kMinEntryBytes) {
    in.refuse("{} keys announced, but only {} bytes follow", header.n_entries, in.remaining());
  }
  return header;
}

GgufType take_type(Cursor& in, const char* what) {
  const auto id = in.take<uint32_t>();
  if (id >= std::size(kValueTypes)) in.refuse("{} {} is not one of 0 to 12", what, id);
  return static_cast<GgufType>(id);
}

GgufValue take_value(Cursor& in) {
  GgufValue value{.type = take_type(in, "value type"), .is_array = false, .count = 1, .bytes = {}};
  if (value.type == GgufType::Array) {
    value.type = take_type(in, "element type");
    if (value.type == GgufType::Array) in.refuse("an array of arrays, which is not supported");
    value.is_array = true;
    value.count = in.take<uint64_t>();
    if (value.count > kMaxArrayCount || value.count > in.remaining() / info_of(value.type).bytes) {
      in.refuse("an array of {} elements, but only {} bytes follow (and {} is the limit)", value.count,
                in.remaining(), kMaxArrayCount);
    }
  }
  if (value.type == GgufType::Str) {
    Cursor ahead = in;
    for (uint64_t i = 0; i < value.count; ++i) ahead.take_string("a string", kMaxStringBytes);
    value.bytes = in.take_bytes(ahead.position() - in.position());
    return value;
  }
  value.bytes = in.take_bytes(value.count * info_of(value.type).bytes);
  if (value.type == GgufType::Bool) {
    for (const std::byte b : value.bytes) {
      if (b > std::byte{1}) in.refuse("a bool has the value {}, wanted 0 or 1", static_cast<int>(b));
    }
  }
  return value;
}

GgufEntry take_entry(Cursor& in) {
  GgufEntry entry{};
  entry.key = in.take_string("the key", kMaxGgufKeyBytes);
  if (entry.key.empty()) in.refuse("the key is empty");
  in.set_name(entry.key);
  for (const char c : entry.key) {
    if (c < ' ' || c > '~') in.refuse("the key has a character that is not printable ASCII");
  }
  entry.value = take_value(in);
  return entry;
}

uint32_t alignment_of(Cursor& in, const GgufEntry& entry) {
  if (entry.value.is_array || entry.value.type != GgufType::U32) {
    in.refuse("is {}, wanted u32", type_text(entry.value));
  }
  const auto alignment = load<uint32_t>(entry.value.bytes.data());
  if (!std::has_single_bit(alignment) || alignment < kMinGgufAlignment || alignment > kMaxGgufAlignment) {
    in.refuse("is {}, wanted a power of two from {} to {}", alignment, kMinGgufAlignment, kMaxGgufAlignment);
  }
  return alignment;
}

// Bytes of a tensor, with every step checked.  Source: gguf.md 7.10-7.16.
int64_t tensor_bytes(Cursor& in, const GgufTensor& tensor) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  int64_t n_elements = 1;
  for (const int64_t d : tensor.ne) {
    if (d == 0) in.refuse("has no elements: a dimension is 0");
    if (n_elements > kMax / d) in.refuse("the number of elements overflows");
    n_elements *= d;
  }
  const TypeInfo& info = type_info(tensor.type);
  if (tensor.ne[0] % info.block_elements != 0) {
    in.refuse("rows of {} elements are no multiple of the {} in a block of {}", tensor.ne[0],
              info.block_elements, info.name);
  }
  const int64_t n_blocks = n_elements / info.block_elements;
  if (n_blocks > kMax / info.block_bytes) in.refuse("the number of bytes overflows");
  return n_blocks * info.block_bytes;
}

GgufTensor take_tensor_info(Cursor& in) {
  GgufTensor tensor{};
  const std::string_view name = in.take_string("the name", kMaxGgufNameBytes);
  if (name.empty()) in.refuse("the name is empty");
  in.set_name(name);
  if (name.find('\0') != std::string_view::npos) in.refuse("the name has a NUL byte");
  tensor.name = name;
  tensor.n_dims = in.take<uint32_t>();
  if (tensor.n_dims > tensor.ne.size()) in.refuse("has {} dimensions, at most 4 are possible", tensor.n_dims);
  tensor.ne.fill(1);
  for (uint32_t i = 0; i < tensor.n_dims; ++i) {
    tensor.ne[i] = in.take<int64_t>();
    if (tensor.ne[i] < 0)
      in.refuse("dimension {} is {}, beyond 2^63-1", i, static_cast<uint64_t>(tensor.ne[i]));
  }
  const auto id = in.take<uint32_t>();
  const std::optional<DType> type = dtype_of_gguf_id(id);
  if (!type) in.refuse("unsupported tensor type {} (retired, or of a fork)", id);
  tensor.type = *type;
  tensor.offset = in.take<uint64_t>();
  tensor.bytes = tensor_bytes(in, tensor);
  return tensor;
}

// Sorts indices by name; gives the first of two equal names, if there are any.  Sorting, unlike a hash table,
// has no bad case that a file could be made for.
template <class Items, class Name>
std::optional<std::string_view> sort_by_name(const Items& items, Name name, std::vector<uint32_t>& order) {
  order.resize(items.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return name(items[a]) < name(items[b]); });
  const auto twice = std::adjacent_find(
      order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return name(items[a]) == name(items[b]); });
  if (twice == order.end()) return std::nullopt;
  return name(items[*twice]);
}

template <class Items, class Name>
auto find_by_name(const Items& items, Name name, const std::vector<uint32_t>& order, std::string_view wanted)
    -> decltype(items.data()) {
  const auto place = std::lower_bound(order.begin(), order.end(), wanted,
                                      [&](uint32_t i, std::string_view w) { return name(items[i]) < w; });
  if (place == order.end() || name(items[*place]) != wanted) return nullptr;
  return &items[*place];
}

std::string_view key_of(const GgufEntry& entry) { return entry.key; }
std::string_view name_of_tensor(const GgufTensor& tensor) { return tensor.name; }

bool is_signed_integer(GgufType type) {
  return type == GgufType::I8 || type == GgufType::I16 || type == GgufType::I32 || type == GgufType::I64;
}
bool is_integer(GgufType type) {
  return is_signed_integer(type) || type == GgufType::U8 || type == GgufType::U16 || type == GgufType::U32 ||
         type == GgufType::U64;
}
bool is_float(GgufType type) { return type == GgufType::F32 || type == GgufType::F64; }

int64_t load_signed(GgufType type, const std::byte* from) {
  switch (type) {
    case GgufType::I8:
      return load<int8_t>(from);
    case GgufType::I16:
      return load<int16_t>(from);
    case GgufType::I32:
      return load<int32_t>(from);
    default:
      return load<int64_t>(from);
  }
}

uint64_t load_unsigned(GgufType type, const std::byte* from) {
  switch (type) {
    case GgufType::U8:
      return load<uint8_t>(from);
    case GgufType::U16:
      return load<uint16_t>(from);
    case GgufType::U32:
      return load<uint32_t>(from);
    default:
      return load<uint64_t>(from);
  }
}

// The integer at `from`, if it lies in 0..2^64-1.
std::optional<uint64_t> as_u64(GgufType type, const std::byte* from) {
  if (!is_signed_integer(type)) return load_unsigned(type, from);
  const int64_t value = load_signed(type, from);
  if (value < 0) return std::nullopt;
  return static_cast<uint64_t>(value);
}

// The integer at `from`, if it lies in -2^63..2^63-1.
std::optional<int64_t> as_i64(GgufType type, const std::byte* from) {
  if (is_signed_integer(type)) return load_signed(type, from);
  const uint64_t value = load_unsigned(type, from);
  if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
  return static_cast<int64_t>(value);
}

// The integer at `from`, if it lies in -2^31..2^31-1.
std::optional<int32_t> as_i32(GgufType type, const std::byte* from) {
  const std::optional<int64_t> value = as_i64(type, from);
  if (!value || !std::in_range<int32_t>(*value)) return std::nullopt;
  return static_cast<int32_t>(*value);
}

// The float at `from`; nothing for a finite f64 that f32 cannot hold.
std::optional<float> as_f32(GgufType type, const std::byte* from) {
  if (type == GgufType::F32) return load<float>(from);
  const auto value = load<double>(from);
  if (std::isfinite(value) && std::abs(value) > static_cast<double>(std::numeric_limits<float>::max())) {
    return std::nullopt;
  }
  return static_cast<float>(value);
}

std::string element_text(GgufType type, const std::byte* from) {
  if (type == GgufType::Str) return quote(load_string(from), 120);
  if (type == GgufType::Bool) return load<uint8_t>(from) != 0 ? "true" : "false";
  if (type == GgufType::F32) return fmt::format("{}", load<float>(from));
  if (type == GgufType::F64) return fmt::format("{}", load<double>(from));
  if (is_signed_integer(type)) return fmt::format("{}", load_signed(type, from));
  return fmt::format("{}", load_unsigned(type, from));
}

// Bytes from one element to the next.
uint64_t element_bytes(GgufType type, const std::byte* from) {
  return type == GgufType::Str ? 8 + load<uint64_t>(from) : info_of(type).bytes;
}

// All elements of an array of numbers, through one of the functions above.
template <class T>
std::vector<T> numbers_of(const GgufFile& file, std::string_view key, const GgufValue& array,
                          std::optional<T> (*read)(GgufType, const std::byte*), const char* wanted) {
  std::vector<T> numbers(array.count);
  for (size_t i = 0; i < numbers.size(); ++i) {
    const std::byte* from = array.bytes.data() + i * info_of(array.type).bytes;
    const std::optional<T> number = read(array.type, from);
    if (!number) {
      fail(Code::BadData, "{}: element {} of key '{}' is {}, wanted {}", file.path(), i, key,
           element_text(array.type, from), wanted);
    }
    numbers[i] = *number;
  }
  return numbers;
}

// Points the tensors of one file at their data.  Gaps are tolerated, another order than the file's is not.
// Source: gguf.md 4, 7.17-7.19.
void place_tensors(std::vector<GgufTensor>& tensors, std::span<const std::byte> bytes, GgufShard& shard) {
  const uint64_t alignment = shard.alignment;
  shard.data_start += (alignment - shard.data_start % alignment) % alignment;
  if (shard.data_start > bytes.size()) {
    fail(Code::BadData, "{}: the file ends at byte {}, before the tensor data that start at {}", shard.path,
         bytes.size(), shard.data_start);
  }
  const uint64_t room = bytes.size() - shard.data_start;
  uint64_t end = 0;
  for (GgufTensor& tensor : tensors) {
    const auto size = static_cast<uint64_t>(tensor.bytes);
    if (tensor.offset % alignment != 0) {
      fail(Code::BadData, "{}: tensor {}: offset {} is no multiple of the alignment {}", shard.path,
           quote(tensor.name), tensor.offset, alignment);
    }
    if (tensor.offset > room || size > room - tensor.offset) {
      fail(Code::BadData,
           "{}: tensor {}: its {} bytes at offset {} go beyond the {} bytes of data; is the file complete?",
           shard.path, quote(tensor.name), size, tensor.offset, room);
    }
    if (tensor.offset < end) {
      fail(Code::BadData, "{}: tensor {}: offset {} lies before the end of the previous tensor, {}",
           shard.path, quote(tensor.name), tensor.offset, end);
    }
    end = tensor.offset + size;
    tensor.data = bytes.data() + shard.data_start + tensor.offset;
  }
}

}  // namespace

std::string type_text(const GgufValue& value) {
  if (!value.is_array) return info_of(value.type).name;
  return fmt::format("{}[{}]", info_of(value.type).name, value.count);
}

std::string to_text(const GgufValue& value, size_t max_items) {
  const std::byte* from = value.bytes.data();
  if (!value.is_array) return element_text(value.type, from);
  std::string text = "[";
  for (uint64_t i = 0; i < value.count; ++i) {
    if (i > 0) text += ", ";
    if (i == max_items) {
      text += "...";
      break;
    }
    text += element_text(value.type, from);
    from += element_bytes(value.type, from);
  }
  return text + "]";
}

GgufFile GgufFile::read_one(std::span<const std::byte> bytes, std::string where) {
  GgufFile file;
  GgufShard& shard = file.shards_.emplace_back();
  shard.path = std::move(where);
  shard.alignment = 32;
  shard.file_bytes = bytes.size();
  Cursor in(bytes, shard.path);
  const Header header = take_header(in, shard.path);
  shard.version = header.version;
  for (uint64_t i = 0; i < header.n_entries; ++i) {
    in.enter("key", i);
    file.entries_.push_back(take_entry(in));
    const GgufEntry& entry = file.entries_.back();
    if (entry.key == "general.alignment") shard.alignment = alignment_of(in, entry);
  }
  if (const auto twice = sort_by_name(file.entries_, key_of, file.entry_order_)) {
    fail(Code::BadData, "{}: key {} appears twice", shard.path, quote(*twice));
  }
  for (uint64_t i = 0; i < header.n_tensors; ++i) {
    in.enter("tensor", i);
    file.tensors_.push_back(take_tensor_info(in));
  }
  file.index_tensors();
  shard.n_entries = file.entries_.size();
  shard.n_tensors = file.tensors_.size();
  shard.data_start = in.position();
  if (!file.tensors_.empty()) place_tensors(file.tensors_, bytes, shard);
  return file;
}

void GgufFile::index_tensors() {
  const auto twice = sort_by_name(tensors_, name_of_tensor, tensor_order_);
  if (!twice) return;
  std::vector<const std::string*> where;
  for (const GgufTensor& tensor : tensors_) {
    if (tensor.name == *twice) where.push_back(&path_of(tensor));
  }
  if (where[0] == where[1]) fail(Code::BadData, "{}: tensor {} appears twice", *where[0], quote(*twice));
  fail(Code::BadData, "{}: tensor {} is in {} too; the shards do not belong together", *where[1],
       quote(*twice), *where[0]);
}

const GgufTensor* GgufFile::find(std::string_view name) const {
  return find_by_name(tensors_, name_of_tensor, tensor_order_, name);
}

const GgufValue* GgufFile::value(std::string_view key) const {
  const GgufEntry* entry = find_by_name(entries_, key_of, entry_order_, key);
  return entry != nullptr ? &entry->value : nullptr;
}

const GgufValue& GgufFile::require(std::string_view key) const {
  const GgufValue* found = value(key);
  if (found == nullptr) fail(Code::BadData, "{}: key '{}' is missing", path(), key);
  return *found;
}

void GgufFile::refuse_type(std::string_view key, const GgufValue& value, const char* wanted) const {
  fail(Code::BadData, "{}: key '{}' is {}, wanted {}", path(), key, type_text(value), wanted);
}

const GgufValue& GgufFile::require_scalar(std::string_view key, const char* wanted) const {
  const GgufValue& found = require(key);
  if (found.is_array) refuse_type(key, found, wanted);
  return found;
}

const GgufValue& GgufFile::require_array(std::string_view key, const char* wanted) const {
  const GgufValue& found = require(key);
  if (!found.is_array) refuse_type(key, found, wanted);
  return found;
}

uint64_t GgufFile::get_u64(std::string_view key) const {
  const GgufValue& found = require_scalar(key, "an integer");
  if (!is_integer(found.type)) refuse_type(key, found, "an integer");
  const auto number = as_u64(found.type, found.bytes.data());
  if (!number) fail(Code::BadData, "{}: key '{}' is {}, wanted 0 or more", path(), key, to_text(found));
  return *number;
}

uint32_t GgufFile::get_u32(std::string_view key) const {
  const uint64_t number = get_u64(key);
  if (number > std::numeric_limits<uint32_t>::max()) {
    fail(Code::BadData, "{}: key '{}' is {}, wanted at most 2^32-1", path(), key, number);
  }
  return static_cast<uint32_t>(number);
}

int64_t GgufFile::get_i64(std::string_view key) const {
  const GgufValue& found = require_scalar(key, "an integer");
  if (!is_integer(found.type)) refuse_type(key, found, "an integer");
  const auto number = as_i64(found.type, found.bytes.data());
  if (!number) fail(Code::BadData, "{}: key '{}' is {}, wanted at most 2^63-1", path(), key, to_text(found));
  return *number;
}

float GgufFile::get_f32(std::string_view key) const {
  const GgufValue& found = require_scalar(key, "f32");
  if (!is_float(found.type)) refuse_type(key, found, "f32");
  const auto number = as_f32(found.type, found.bytes.data());
  if (!number) fail(Code::BadData, "{}: key '{}' is {}, beyond f32", path(), key, to_text(found));
  return *number;
}

bool GgufFile::get_bool(std::string_view key) const {
  const GgufValue& found = require_scalar(key, "bool");
  if (found.type != GgufType::Bool) refuse_type(key, found, "bool");
  return load<uint8_t>(found.bytes.data()) != 0;
}

std::string_view GgufFile::get_str(std::string_view key) const {
  const GgufValue& found = require_scalar(key, "str");
  if (found.type != GgufType::Str) refuse_type(key, found, "str");
  return load_string(found.bytes.data());
}

uint64_t GgufFile::get_u64_or(std::string_view key, uint64_t otherwise) const {
  return has(key) ? get_u64(key) : otherwise;
}
uint32_t GgufFile::get_u32_or(std::string_view key, uint32_t otherwise) const {
  return has(key) ? get_u32(key) : otherwise;
}
int64_t GgufFile::get_i64_or(std::string_view key, int64_t otherwise) const {
  return has(key) ? get_i64(key) : otherwise;
}
float GgufFile::get_f32_or(std::string_view key, float otherwise) const {
  return has(key) ? get_f32(key) : otherwise;
}
bool GgufFile::get_bool_or(std::string_view key, bool otherwise) const {
  return has(key) ? get_bool(key) : otherwise;
}
std::string_view GgufFile::get_str_or(std::string_view key, std::string_view otherwise) const {
  return has(key) ? get_str(key) : otherwise;
}

std::vector<uint64_t> GgufFile::get_u64s(std::string_view key) const {
  const GgufValue& found = require_array(key, "an array of integers");
  if (!is_integer(found.type)) refuse_type(key, found, "an array of integers");
  return numbers_of<uint64_t>(*this, key, found, as_u64, "0 or more");
}

std::vector<int32_t> GgufFile::get_i32s(std::string_view key) const {
  const GgufValue& found = require_array(key, "an array of integers");
  if (!is_integer(found.type)) refuse_type(key, found, "an array of integers");
  return numbers_of<int32_t>(*this, key, found, as_i32, "an i32");
}

std::vector<float> GgufFile::get_f32s(std::string_view key) const {
  const GgufValue& found = require_array(key, "an array of f32");
  if (!is_float(found.type)) refuse_type(key, found, "an array of f32");
  return numbers_of<float>(*this, key, found, as_f32, "an f32");
}

std::vector<bool> GgufFile::get_bools(std::string_view key) const {
  const GgufValue& found = require_array(key, "an array of bool");
  if (found.type != GgufType::Bool) refuse_type(key, found, "an array of bool");
  std::vector<bool> flags(found.count);
  for (size_t i = 0; i < flags.size(); ++i) flags[i] = found.bytes[i] != std::byte{0};
  return flags;
}

std::vector<std::string_view> GgufFile::get_strings(std::string_view key) const {
  const GgufValue& found = require_array(key, "an array of str");
  if (found.type != GgufType::Str) refuse_type(key, found, "an array of str");
  std::vector<std::string_view> strings(found.count);
  const std::byte* from = found.bytes.data();
  for (std::string_view& s : strings) {
    s = load_string(from);
    from += 8 + s.size();
  }
  return strings;
}

std::vector<uint64_t> GgufFile::get_u64_per_layer(std::string_view key, size_t n_layers) const {
  if (!require(key).is_array) return std::vector<uint64_t>(n_layers, get_u64(key));
  std::vector<uint64_t> numbers = get_u64s(key);
  if (numbers.size() != n_layers) {
    fail(Code::BadData, "{}: key '{}' has {} values, wanted one for each of {} layers", path(), key,
         numbers.size(), n_layers);
  }
  return numbers;
}

}  // namespace tandem
