// Any bytes are either read as JSON Lines or refused with an Error whose text is valid UTF-8; what was read
// survives being written and read again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/error.h"
#include "io/json.h"
#include "io/jsonl.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    tandem::parse_jsonl(text, "fuzz", [](size_t, const nlohmann::json& object) {
      const std::string written = object.dump();  // throws for a string that is not UTF-8
      if (tandem::parse_json(written, "fuzz").dump() != written) std::abort();
    });
  } catch (const tandem::Error& e) {
    nlohmann::json(e.what()).dump();
  }
  return 0;
}
