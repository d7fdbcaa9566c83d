#include "formats/dtype.h"

#include <array>
#include <bit>

#include "base/error.h"

namespace tandem {

// Block structs are laid over the bytes of the file.
static_assert(std::endian::native == std::endian::little);

#define FORMAT(name, id, elements, bytes) extern const Codec name##_codec;
#define KNOWN(name, id, elements, bytes)
#include "formats/formats.def"
#undef FORMAT
#undef KNOWN

namespace {

constexpr TypeInfo kTypes[] = {
#define FORMAT(name, id, elements, bytes) {DType::name, #name, elements, bytes, &name##_codec},
#define KNOWN(name, id, elements, bytes) {DType::name, #name, elements, bytes, nullptr},
#include "formats/formats.def"
#undef FORMAT
#undef KNOWN
};

constexpr uint32_t kIds = static_cast<uint32_t>(kTypes[std::size(kTypes) - 1].type) + 1;

// From a GGUF id to its row in kTypes; -1 for retired ids.
constexpr std::array<int8_t, kIds> kRowOfId = [] {
  std::array<int8_t, kIds> rows{};
  rows.fill(-1);
  for (size_t i = 0; i < std::size(kTypes); ++i)
    rows[static_cast<size_t>(kTypes[i].type)] = static_cast<int8_t>(i);
  return rows;
}();

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool equal_in_any_case(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (lower(a[i]) != lower(b[i])) return false;
  }
  return true;
}

}  // namespace

const TypeInfo& type_info(DType type) {
  const auto id = static_cast<uint32_t>(type);
  TANDEM_CHECK(id < kIds && kRowOfId[id] >= 0);
  return kTypes[kRowOfId[id]];
}

std::span<const TypeInfo> all_types() { return kTypes; }

std::optional<DType> dtype_of_gguf_id(uint32_t id) {
  if (id >= kIds || kRowOfId[id] < 0) return std::nullopt;
  return static_cast<DType>(id);
}

std::optional<DType> dtype_of_name(std::string_view name) {
  for (const TypeInfo& info : kTypes) {
    if (equal_in_any_case(name, info.name)) return info.type;
  }
  return std::nullopt;
}

}  // namespace tandem
