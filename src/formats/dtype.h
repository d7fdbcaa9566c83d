// Tensor types: one table, made from formats.def.  No op names a format; it asks this table.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace tandem {

// A tensor type; the value is its id in a GGUF file.
enum class DType : int32_t {
#define FORMAT(name, id, elements, bytes) name = id,
#define KNOWN(name, id, elements, bytes) name = id,
#include "formats/formats.def"
#undef FORMAT
#undef KNOWN
};

// The reference codec of one type: the definition that kernels are tested against.
struct Codec {
  // Decodes n elements (whole blocks) to f32.  Source: quantization.md 3, 4.
  void (*decode)(const void* blocks, float* dst, int64_t n);
  // Encodes n elements (whole blocks); null where we never write the type.  Source: quantization.md 7.
  void (*encode)(const float* src, void* blocks, int64_t n);
};

struct TypeInfo {
  DType type;
  const char* name;  // as in ggml: "Q4_K"
  int32_t block_elements;
  int32_t block_bytes;
  const Codec* codec;  // null: known, but not decodable here
};

// The row of the table for a type.
const TypeInfo& type_info(DType type);
// All rows, in id order.
std::span<const TypeInfo> all_types();
// The type with this GGUF id; nothing for a retired or foreign id.
std::optional<DType> dtype_of_gguf_id(uint32_t id);
// The type with this name, in any case ("q4_k"); nothing for an unknown one.
std::optional<DType> dtype_of_name(std::string_view name);

inline const char* name_of(DType type) { return type_info(type).name; }
inline bool decodable(DType type) { return type_info(type).codec != nullptr; }
inline bool is_quantized(DType type) { return type_info(type).block_elements > 1; }
// Bytes of a row of n elements; n must be a multiple of the type's block.
inline int64_t row_bytes(DType type, int64_t n) {
  const TypeInfo& info = type_info(type);
  return n / info.block_elements * info.block_bytes;
}

}  // namespace tandem
