#include "io/gguf_writer.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "base/error.h"
#include "io/quote.h"

static_assert(std::endian::native == std::endian::little);  // numbers are copied into the file as they are

namespace tandem {
namespace {

void append(std::vector<std::byte>& out, std::span<const std::byte> bytes) {
  out.insert(out.end(), bytes.begin(), bytes.end());
}

template <class T>
void append_number(std::vector<std::byte>& out, T value) {
  append(out, std::as_bytes(std::span(&value, 1)));
}

void append_string(std::vector<std::byte>& out, std::string_view s) {
  append_number(out, uint64_t{s.size()});
  append(out, std::as_bytes(std::span(s.data(), s.size())));
}

uint64_t padding(uint64_t position, uint64_t alignment) {
  return (alignment - position % alignment) % alignment;
}

void emit_zeros(const ByteSink& sink, uint64_t n) { sink(std::vector<std::byte>(n)); }

}  // namespace

void GgufWriter::begin_entry(std::string_view key) {
  if (key.empty() || key.size() > kMaxGgufKeyBytes) {
    fail(Code::BadData, "GGUF key {} has {} bytes, wanted 1 to {}", quote(key), key.size(), kMaxGgufKeyBytes);
  }
  for (const char c : key) {
    if (c < ' ' || c > '~') fail(Code::BadData, "GGUF key {} is not printable ASCII", quote(key));
  }
  if (!keys_.emplace(key).second) fail(Code::BadData, "GGUF key {} is written twice", quote(key));
  append_string(entries_, key);
  ++n_entries_;
}

template <class T>
void GgufWriter::add_scalar(std::string_view key, GgufType type, T value) {
  begin_entry(key);
  append_number(entries_, type);
  append_number(entries_, value);
}

template <class T>
void GgufWriter::add_array(std::string_view key, GgufType type, std::span<const T> values) {
  begin_entry(key);
  append_number(entries_, GgufType::Array);
  append_number(entries_, type);
  append_number(entries_, uint64_t{values.size()});
  append(entries_, std::as_bytes(values));
}

void GgufWriter::add_u16(std::string_view key, uint16_t value) { add_scalar(key, GgufType::U16, value); }
void GgufWriter::add_u32(std::string_view key, uint32_t value) {
  if (key == "general.alignment") {
    TANDEM_CHECK(std::has_single_bit(value) && value >= kMinGgufAlignment && value <= kMaxGgufAlignment);
    TANDEM_CHECK(tensors_.empty());  // their offsets would be wrong
    alignment_ = value;
  }
  add_scalar(key, GgufType::U32, value);
}
void GgufWriter::add_i32(std::string_view key, int32_t value) { add_scalar(key, GgufType::I32, value); }
void GgufWriter::add_u64(std::string_view key, uint64_t value) { add_scalar(key, GgufType::U64, value); }
void GgufWriter::add_i64(std::string_view key, int64_t value) { add_scalar(key, GgufType::I64, value); }
void GgufWriter::add_f32(std::string_view key, float value) { add_scalar(key, GgufType::F32, value); }
void GgufWriter::add_bool(std::string_view key, bool value) {
  add_scalar(key, GgufType::Bool, static_cast<uint8_t>(value));
}
void GgufWriter::add_str(std::string_view key, std::string_view value) {
  begin_entry(key);
  append_number(entries_, GgufType::Str);
  append_string(entries_, value);
}

void GgufWriter::add_u32s(std::string_view key, std::span<const uint32_t> values) {
  add_array(key, GgufType::U32, values);
}
void GgufWriter::add_i32s(std::string_view key, std::span<const int32_t> values) {
  add_array(key, GgufType::I32, values);
}
void GgufWriter::add_f32s(std::string_view key, std::span<const float> values) {
  add_array(key, GgufType::F32, values);
}
void GgufWriter::add_bools(std::string_view key, const std::vector<bool>& values) {
  const std::vector<uint8_t> bytes(values.begin(), values.end());
  add_array(key, GgufType::Bool, std::span<const uint8_t>(bytes));
}
void GgufWriter::add_strings(std::string_view key, std::span<const std::string> values) {
  begin_entry(key);
  append_number(entries_, GgufType::Array);
  append_number(entries_, GgufType::Str);
  append_number(entries_, uint64_t{values.size()});
  for (const std::string& value : values) append_string(entries_, value);
}

void GgufWriter::add_value(std::string_view key, const GgufValue& value) {
  if (key == "general.alignment") {
    TANDEM_CHECK(!value.is_array && value.type == GgufType::U32 && value.bytes.size() == 4);
    uint32_t alignment;
    std::copy(value.bytes.begin(), value.bytes.end(),
              std::as_writable_bytes(std::span(&alignment, 1)).begin());
    add_u32(key, alignment);
    return;
  }
  begin_entry(key);
  if (value.is_array) append_number(entries_, GgufType::Array);
  append_number(entries_, value.type);
  if (value.is_array) append_number(entries_, value.count);
  append(entries_, value.bytes);
}

void GgufWriter::add_tensor(std::string_view name, DType type, std::span<const int64_t> ne,
                            std::span<const std::byte> data) {
  add_tensor(name, type, ne, [data](const ByteSink& sink) { sink(data); });
  TANDEM_CHECK(data.size() == tensors_.back().bytes);
}

void GgufWriter::add_tensor(std::string_view name, DType type, std::span<const int64_t> ne,
                            std::function<void(const ByteSink&)> produce) {
  if (name.empty() || name.size() > kMaxGgufNameBytes || name.find('\0') != std::string_view::npos) {
    fail(Code::BadData, "GGUF tensor name {} has {} bytes, wanted 1 to {}, none of them NUL", quote(name),
         name.size(), kMaxGgufNameBytes);
  }
  TANDEM_CHECK(!ne.empty() && ne.size() <= 4);
  const TypeInfo& info = type_info(type);
  TANDEM_CHECK(ne[0] % info.block_elements == 0);
  int64_t n_bytes = info.block_bytes;
  for (size_t i = 0; i < ne.size(); ++i) {
    TANDEM_CHECK(ne[i] > 0);
    const int64_t n = i == 0 ? ne[0] / info.block_elements : ne[i];
    TANDEM_CHECK(n_bytes <= std::numeric_limits<int64_t>::max() / n);
    n_bytes *= n;
  }
  if (!names_.emplace(name).second) fail(Code::BadData, "GGUF tensor {} is written twice", quote(name));

  while (ne.size() > 1 && ne.back() == 1) ne = ne.first(ne.size() - 1);
  append_string(tensor_infos_, name);
  append_number(tensor_infos_, static_cast<uint32_t>(ne.size()));
  append(tensor_infos_, std::as_bytes(ne));
  append_number(tensor_infos_, static_cast<uint32_t>(type));
  append_number(tensor_infos_, data_bytes_);
  tensors_.push_back({.bytes = static_cast<uint64_t>(n_bytes), .produce = std::move(produce)});
  data_bytes_ += tensors_.back().bytes + padding(tensors_.back().bytes, alignment_);
}

void GgufWriter::emit(const ByteSink& sink) const {
  std::vector<std::byte> head;
  append(head, std::as_bytes(std::span("GGUF", 4)));
  append_number(head, uint32_t{3});
  append_number(head, uint64_t{tensors_.size()});
  append_number(head, n_entries_);
  append(head, entries_);
  append(head, tensor_infos_);
  sink(head);
  if (tensors_.empty()) return;
  emit_zeros(sink, padding(head.size(), alignment_));
  for (const TensorOut& tensor : tensors_) {
    uint64_t n_bytes = 0;
    tensor.produce([&](std::span<const std::byte> bytes) {
      n_bytes += bytes.size();
      sink(bytes);
    });
    TANDEM_CHECK(n_bytes == tensor.bytes);
    emit_zeros(sink, padding(n_bytes, alignment_));
  }
}

void GgufWriter::write(const std::string& path, const std::function<void(const std::string&)>& verify) const {
  write_file_atomic(
      path, [this](const ByteSink& sink) { emit(sink); }, verify);
}

std::vector<std::byte> GgufWriter::to_bytes() const {
  std::vector<std::byte> file;
  emit([&file](std::span<const std::byte> bytes) { append(file, bytes); });
  return file;
}

}  // namespace tandem
