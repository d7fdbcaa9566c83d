// Any bytes are either read as one JSON document or refused with an Error; what was read survives being
// written and read again.
#include <nlohmann/json.hpp>
#include <string_view>

#include "io/json.h"
#include "tests/fuzz/fuzz.h"

using namespace tandem;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const std::string written = parse_json(text, "fuzz").dump();  // throws for a string that is not UTF-8
    fuzz::require(parse_json(written, "fuzz").dump() == written);
  } catch (const Error& e) {
    fuzz::require_refusal(e);
  }
  return 0;
}
