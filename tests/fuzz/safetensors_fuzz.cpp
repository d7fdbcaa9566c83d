// Any bytes are either read as a safetensors file, and then wholly, or refused with an Error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "base/error.h"
#include "io/safetensors.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

void read_all(const tandem::SafetensorsFile& file, std::span<const std::byte> bytes) {
  size_t n_bytes = 0;
  for (const tandem::SafeTensor& t : file.tensors()) {
    require(file.find(t.name) == &t);
    require(static_cast<uint64_t>(t.elements()) * tandem::bytes_of(t.type) == t.data.size());
    require(t.data.empty() ||
            (t.data.data() >= bytes.data() && t.data.data() + t.data.size() <= bytes.data() + bytes.size()));
    n_bytes += t.data.size();
    if (!tandem::SafetensorsFile::is_float(t)) continue;
    std::vector<float> values(static_cast<size_t>(t.elements()));
    tandem::SafetensorsFile::read_f32(t, values.data());
  }
  require(n_bytes < bytes.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  try {
    read_all(tandem::SafetensorsFile::parse(bytes, "fuzz"), bytes);
  } catch (const tandem::Error& e) {
    require(e.code() != tandem::Code::Internal);
  }
  return 0;
}
