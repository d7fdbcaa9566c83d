// Any bytes are either read as a GGUF file, and then wholly, or refused with an Error.
#include "tests/fuzz/fuzz.h"

using namespace tandem;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  try {
    const GgufFile file = GgufFile::parse(bytes, "fuzz");
    fuzz::read_all(file);
    fuzz::require_inside(file, 0, bytes);
  } catch (const Error& e) {
    fuzz::require_refusal(e);
  }
  return 0;
}
