// Writing GGUF files: version 3, packed.  Source: gguf.md 4, 14.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "formats/dtype.h"
#include "io/gguf.h"

namespace tandem {

// Collects keys and tensors, and writes them in the order they were added; `general.architecture` first by
// habit. A key or tensor added twice, or a name that no reader would accept, throws BadData.
class GgufWriter {
 public:
  void add_u16(std::string_view key, uint16_t value);
  void add_u32(std::string_view key, uint32_t value);  // general.alignment takes effect
  void add_i32(std::string_view key, int32_t value);
  void add_u64(std::string_view key, uint64_t value);
  void add_i64(std::string_view key, int64_t value);
  void add_f32(std::string_view key, float value);
  void add_bool(std::string_view key, bool value);
  void add_str(std::string_view key, std::string_view value);
  void add_u32s(std::string_view key, std::span<const uint32_t> values);
  void add_i32s(std::string_view key, std::span<const int32_t> values);
  void add_f32s(std::string_view key, std::span<const float> values);
  void add_bools(std::string_view key, const std::vector<bool>& values);
  void add_strings(std::string_view key, std::span<const std::string> values);
  bool has(std::string_view key) const { return keys_.contains(key); }
  // A value of another file, byte for byte.
  void add_value(std::string_view key, const GgufValue& value);

  // A tensor with dimensions ne, fastest first; trailing ones are not written.  `data` must hold exactly its
  // bytes, and stay alive until write().
  void add_tensor(std::string_view name, DType type, std::span<const int64_t> ne,
                  std::span<const std::byte> data);
  // The same with a function that hands exactly those bytes to the sink when the file is written.
  void add_tensor(std::string_view name, DType type, std::span<const int64_t> ne,
                  std::function<void(const ByteSink&)> produce);

  // Writes the file, whole or not at all (write_file_atomic, which also says what `verify` is).
  // Throws: Io; whatever a tensor's function or verify throws.
  void write(const std::string& path,
             const std::function<void(const std::string& temporary)>& verify = {}) const;
  // The file in memory.
  std::vector<std::byte> to_bytes() const;

 private:
  struct TensorOut {
    uint64_t bytes;
    std::function<void(const ByteSink&)> produce;
  };

  void begin_entry(std::string_view key);
  template <class T>
  void add_scalar(std::string_view key, GgufType type, T value);
  template <class T>
  void add_array(std::string_view key, GgufType type, std::span<const T> values);
  void emit(const ByteSink& sink) const;

  uint32_t alignment_ = 32;
  uint64_t n_entries_ = 0;
  uint64_t data_bytes_ = 0;         // with padding
  std::vector<std::byte> entries_;  // encoded
  std::vector<std::byte> tensor_infos_;
  std::vector<TensorOut> tensors_;
  std::set<std::string, std::less<>> keys_;
  std::set<std::string, std::less<>> names_;
};

}  // namespace tandem
