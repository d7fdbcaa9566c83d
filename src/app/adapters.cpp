#include "app/adapters.h"

#include <charconv>
#include <cmath>
#include <filesystem>

#include "base/error.h"

namespace tandem {
namespace {

constexpr double kMaxScale = 100;  // Source: api.md 3

struct Scaled {
  std::string path;
  float scale;
};

// "FILE:SCALE".  Throws: Usage.
Scaled split_scaled(const std::string& text) {
  const size_t colon = text.rfind(':');
  const std::string number = colon == std::string::npos ? "" : text.substr(colon + 1);
  float scale = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), scale);
  if (number.empty() || colon == 0 || error != std::errc() || end != number.data() + number.size() ||
      !(std::abs(scale) <= kMaxScale)) {
    fail(Code::Usage, "--lora-scaled takes FILE:SCALE with a scale from {} to {}, not '{}'", -kMaxScale,
         kMaxScale, text);
  }
  return {text.substr(0, colon), scale};
}

}  // namespace

AdapterSet load_adapter(const Options& o, const std::string& path, const Model& model, float user_scale) {
  AdapterSet set = AdapterSet::load(path, model, user_scale);
  check_base(set, model, path, o.on(Opt::StrictBase));
  return set;
}

std::vector<AdapterSet> load_adapters(const Options& o, const Model& model) {
  std::vector<AdapterSet> adapters;
  for (const std::string& path : o.list(Opt::Lora)) adapters.push_back(load_adapter(o, path, model));
  for (const std::string& text : o.list(Opt::LoraScaled)) {
    const Scaled scaled = split_scaled(text);
    adapters.push_back(load_adapter(o, scaled.path, model, scaled.scale));
  }
  return adapters;
}

std::vector<std::string> adapter_paths(const Options& o) {
  std::vector<std::string> paths = o.list(Opt::Lora);
  for (const std::string& text : o.list(Opt::LoraScaled)) paths.push_back(split_scaled(text).path);
  return paths;
}

void refuse_overwriting(const std::string& flag, const std::string& out,
                        const std::vector<std::string>& inputs) {
  namespace fs = std::filesystem;
  std::error_code none;
  for (const std::string& input : inputs) {
    if (input.empty()) continue;
    const bool same = fs::equivalent(out, input, none) ||
                      (!fs::is_directory(input, none) && fs::is_directory(out, none) &&
                       fs::equivalent(out, fs::absolute(input, none).parent_path(), none));
    if (same) fail(Code::Usage, "{} {} would overwrite an input of this run", flag, out);
  }
}

}  // namespace tandem
