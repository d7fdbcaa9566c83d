#include "io/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/half.h"
#include "io/json.h"
#include "io/quote.h"

static_assert(std::endian::native == std::endian::little);  // numbers are copied into the file as they are

namespace tandem {
namespace {

using nlohmann::json;

struct SafeTypeInfo {
  const char* name;
  uint64_t bytes;
};
constexpr SafeTypeInfo kTypes[] = {{"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1},
                                   {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},
                                   {"U32", 4},  {"F32", 4}, {"I64", 8}, {"U64", 8},     {"F64", 8}};
static_assert(std::size(kTypes) == static_cast<size_t>(SafeType::F64) + 1);

constexpr size_t kMaxTensors = size_t{1} << 20;  // of a file: experts of a large model are some ten thousand
constexpr size_t kMaxDims = 8;
constexpr size_t kLengthBytes = 8;  // of the header's length, before it

// One number of a shape or of data_offsets.
uint64_t whole_number(const json& value, const std::string& where, const char* field) {
  if (!value.is_number_unsigned()) {
    fail(Code::BadData, "{}: {} holds {}, a whole number that is not negative is needed", where, field,
         printable(value.dump(-1, ' ', false, json::error_handler_t::replace)));
  }
  const auto number = value.get<uint64_t>();
  if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    fail(Code::BadData, "{}: {} holds {}, which is beyond 63 bits", where, field, number);
  }
  return number;
}

SafeType type_of_name(const json& value, const std::string& where) {
  if (!value.is_string()) fail(Code::BadData, "{}: dtype is no string", where);
  const auto& name = value.get_ref<const std::string&>();
  for (size_t i = 0; i < std::size(kTypes); ++i) {
    if (name == kTypes[i].name) return static_cast<SafeType>(i);
  }
  fail(Code::Unsupported, "{}: dtype {} is not known here", where, quote(name));
}

// Bytes of a shape.  Throws: BadData if they overflow.
uint64_t bytes_of_shape(const std::vector<int64_t>& shape, SafeType type, const std::string& where) {
  uint64_t product = bytes_of(type);
  for (const int64_t n : shape) {
    if (n != 0 &&
        product > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) / static_cast<uint64_t>(n))
      fail(Code::BadData, "{}: the shape's product overflows", where);
    product *= static_cast<uint64_t>(n);
  }
  return product;
}

SafeTensor read_entry(const std::string& name, const json& entry, const std::string& path,
                      std::span<const std::byte> data) {
  const std::string where = fmt::format("{}: tensor {}", path, quote(name));
  if (!entry.is_object()) fail(Code::BadData, "{} is no object", where);
  for (const char* field : {"dtype", "shape", "data_offsets"}) {
    if (!entry.contains(field)) fail(Code::BadData, "{} has no {}", where, field);
  }
  if (entry.size() != 3) fail(Code::BadData, "{} has fields beyond dtype, shape and data_offsets", where);
  SafeTensor t;
  t.name = name;
  t.type = type_of_name(entry.at("dtype"), where);
  const json& shape = entry.at("shape");
  if (!shape.is_array()) fail(Code::BadData, "{}: shape is no list", where);
  if (shape.size() > kMaxDims)
    fail(Code::BadData, "{}: {} dimensions are more than {}", where, shape.size(), kMaxDims);
  for (const json& n : shape) t.shape.push_back(static_cast<int64_t>(whole_number(n, where, "shape")));
  const json& offsets = entry.at("data_offsets");
  if (!offsets.is_array() || offsets.size() != 2)
    fail(Code::BadData, "{}: data_offsets is no list of two numbers", where);
  const uint64_t begin = whole_number(offsets[0], where, "data_offsets"),
                 end = whole_number(offsets[1], where, "data_offsets");
  if (end < begin) fail(Code::BadData, "{}: data_offsets run backwards, {} to {}", where, begin, end);
  const uint64_t want = bytes_of_shape(t.shape, t.type, where);
  if (end - begin != want)
    fail(Code::BadData, "{} has {} bytes, its shape and type need {}", where, end - begin, want);
  if (end > data.size())
    fail(Code::BadData, "{} ends at byte {} of the data, there are {}", where, end, data.size());
  t.offset = begin;
  t.data = data.subspan(static_cast<size_t>(begin), static_cast<size_t>(want));
  return t;
}

}  // namespace

const char* name_of(SafeType type) { return kTypes[static_cast<size_t>(type)].name; }
uint64_t bytes_of(SafeType type) { return kTypes[static_cast<size_t>(type)].bytes; }

int64_t SafeTensor::elements() const { return static_cast<int64_t>(data.size() / bytes_of(type)); }

SafetensorsFile SafetensorsFile::open(const std::string& path) {
  SafetensorsFile file;
  file.path_ = path;
  file.map_ = MappedFile::open(path);
  file.parse_all(file.map_->bytes());
  return file;
}

SafetensorsFile SafetensorsFile::parse(std::span<const std::byte> bytes, std::string where) {
  SafetensorsFile file;
  file.path_ = std::move(where);
  file.parse_all(bytes);
  return file;
}

void SafetensorsFile::parse_all(std::span<const std::byte> bytes) {
  if (bytes.size() < kLengthBytes)
    fail(Code::BadData, "{}: {} bytes are too few for a safetensors file", path_, bytes.size());
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), kLengthBytes);
  const uint64_t rest = bytes.size() - kLengthBytes;
  if (header_bytes > kMaxSafetensorsHeaderBytes) {
    fail(Code::BadData, "{}: the header claims {} bytes, at most {} are allowed", path_, header_bytes,
         kMaxSafetensorsHeaderBytes);
  }
  if (header_bytes > rest)
    fail(Code::BadData, "{}: the header claims {} bytes, the file has {} after its length", path_,
         header_bytes, rest);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + kLengthBytes,
                              static_cast<size_t>(header_bytes));
  if (text.empty() || text.front() != '{')
    fail(Code::BadData, "{}: the header is no JSON object; this is no safetensors file", path_);
  const std::span<const std::byte> data = bytes.subspan(kLengthBytes + static_cast<size_t>(header_bytes));

  const json header = parse_json(text, path_ + ": header", kMaxTensors);
  for (const auto& [name, entry] : header.items()) {
    if (name != "__metadata__") {
      tensors_.push_back(read_entry(name, entry, path_, data));
      continue;
    }
    if (!entry.is_object()) fail(Code::BadData, "{}: __metadata__ is no object", path_);
    for (const auto& [key, value] : entry.items()) {
      if (!value.is_string()) fail(Code::BadData, "{}: __metadata__ {} is no string", path_, quote(key));
      metadata_.emplace(key, value.get<std::string>());
    }
  }
  check_cover(data.size());
}

void SafetensorsFile::check_cover(uint64_t data_bytes) const {
  std::vector<const SafeTensor*> by_place;
  for (const SafeTensor& t : tensors_) by_place.push_back(&t);
  std::sort(by_place.begin(), by_place.end(), [](const SafeTensor* x, const SafeTensor* y) {
    return std::pair(x->offset, x->data.size()) < std::pair(y->offset, y->data.size());
  });
  uint64_t at = 0;
  for (const SafeTensor* t : by_place) {
    if (t->offset != at) {
      fail(Code::BadData, "{}: tensor {} begins at byte {} of the data, the one before it ends at {}: {}",
           path_, quote(t->name), t->offset, at, t->offset < at ? "they overlap" : "there is a gap");
    }
    at += t->data.size();
  }
  if (at != data_bytes)
    fail(Code::BadData, "{}: the tensors end at byte {} of the data, there are {}", path_, at, data_bytes);
}

const SafeTensor* SafetensorsFile::find(std::string_view name) const {
  const auto at = std::lower_bound(tensors_.begin(), tensors_.end(), name,
                                   [](const SafeTensor& t, std::string_view n) { return t.name < n; });
  return at != tensors_.end() && at->name == name ? &*at : nullptr;
}

bool SafetensorsFile::is_float(const SafeTensor& t) {
  return t.type == SafeType::F32 || t.type == SafeType::F16 || t.type == SafeType::BF16;
}

void SafetensorsFile::read_f32(const SafeTensor& t, float* out) {
  TANDEM_CHECK(is_float(t));
  // The data need not be aligned, since the header may have any length.
  if (t.type == SafeType::F32) {
    if (!t.data.empty()) std::memcpy(out, t.data.data(), t.data.size());
    return;
  }
  const std::byte* from = t.data.data();
  for (int64_t i = 0; i < t.elements(); ++i, from += sizeof(uint16_t)) {
    uint16_t half = 0;
    std::memcpy(&half, from, sizeof half);
    out[i] = t.type == SafeType::F16 ? f16_to_f32(half) : bf16_to_f32(half);
  }
}

void SafetensorsWriter::add_metadata(std::string_view key, std::string_view value) {
  metadata_[std::string(key)] = value;
}

void SafetensorsWriter::add_tensor(std::string_view name, SafeType type, std::vector<int64_t> shape,
                                   std::span<const std::byte> data) {
  for (const int64_t n : shape) TANDEM_CHECK(n >= 0);
  TANDEM_CHECK(data.size() == bytes_of_shape(shape, type, std::string(name)));
  if (name == "__metadata__" || !names_.emplace(name).second)
    fail(Code::BadData, "safetensors tensor {} is written twice, or is a reserved name", quote(name));
  tensors_.push_back({std::string(name), type, std::move(shape), data});
}

std::string SafetensorsWriter::header() const {
  json header = json::object();
  if (!metadata_.empty()) header["__metadata__"] = metadata_;
  uint64_t at = 0;
  for (const Out& t : tensors_) {
    header[t.name] = {
        {"dtype", name_of(t.type)}, {"shape", t.shape}, {"data_offsets", {at, at + t.data.size()}}};
    at += t.data.size();
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

void SafetensorsWriter::emit(const ByteSink& sink) const {
  const std::string text = header();
  TANDEM_CHECK(text.size() <= kMaxSafetensorsHeaderBytes);
  const uint64_t length = text.size();
  sink(std::as_bytes(std::span(&length, 1)));
  sink(std::as_bytes(std::span(text.data(), text.size())));
  for (const Out& t : tensors_) sink(t.data);
}

void SafetensorsWriter::write(const std::string& path) const {
  write_file_atomic(path, [this](const ByteSink& sink) { emit(sink); });
}

std::vector<std::byte> SafetensorsWriter::to_bytes() const {
  std::vector<std::byte> file;
  emit([&file](std::span<const std::byte> bytes) { file.insert(file.end(), bytes.begin(), bytes.end()); });
  return file;
}

}  // namespace tandem
