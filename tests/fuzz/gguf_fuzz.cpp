// Any bytes are either read as a GGUF file, and then wholly, or refused with an Error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "base/error.h"
#include "io/gguf.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

void read_all(const tandem::GgufFile& file, std::span<const std::byte> bytes) {
  for (const tandem::GgufEntry& entry : file.entries()) {
    require(file.value(entry.key) == &entry.value);
    require(!tandem::type_text(entry.value).empty());
    require(!tandem::to_text(entry.value).empty());
    try {
      if (!entry.value.is_array) {
        file.get_u32(entry.key);
      } else if (entry.value.type == tandem::GgufType::Str) {
        require(file.get_strings(entry.key).size() == entry.value.count);
      } else {
        require(file.get_i32s(entry.key).size() == entry.value.count);
      }
    } catch (const tandem::Error&) {
    }
  }
  for (const tandem::GgufTensor& tensor : file.tensors()) {
    require(file.find(tensor.name) == &tensor);
    require(tensor.bytes > 0);
    require(tensor.data >= bytes.data());
    require(static_cast<size_t>(tensor.data - bytes.data()) <=
            bytes.size() - static_cast<size_t>(tensor.bytes));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  try {
    read_all(tandem::GgufFile::parse(bytes, "fuzz"), bytes);
  } catch (const tandem::Error&) {
  }
  return 0;
}
