// A PEFT adapter of any bytes: a configuration, a NUL, and a safetensors file.  It is either taken, and then
// every number is finite and every pair fits its weight, or refused with an Error.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/log.h"
#include "models/peft.h"
#include "models/synth.h"

namespace {

using tandem::AdapterPair;
using tandem::AdapterSet;
using tandem::Model;

void require(bool condition) {
  if (!condition) std::abort();
}

// Small enough that a few bytes make a whole adapter: q {4} -> {4}, experts 4 -> 2 -> 4.
Model tiny_model() {
  tandem::set_verbosity(0);
  tandem::SynthSettings s;
  s.n_layer = 1;
  s.n_embd = 4;
  s.n_head = 2;
  s.n_head_kv = 1;
  s.d_head = 2;
  s.n_expert = 2;
  s.n_expert_used = 1;
  s.n_ff_exp = 2;
  s.type = tandem::DType::F32;
  std::string directory = (std::filesystem::temp_directory_path() / "tandem-fuzz-XXXXXX").string();
  require(mkdtemp(directory.data()) != nullptr);
  const std::string path = directory + "/m.gguf";
  tandem::ThreadPool pool(1);
  tandem::write_synthetic(tandem::find_arch("qwen3moe"), s, pool, path);
  Model model = Model::open(path);
  std::filesystem::remove_all(directory);  // it stays mapped
  return model;
}

void check(const AdapterSet& set) {
  for (const AdapterPair& p : set.pairs()) {
    require(p.rank >= 1 && std::isfinite(p.scale) && p.scale > 0);
    require(p.a_shape == tandem::Shape(p.weight->ne[0], p.rank, p.weight->ne[2]));
    require(p.b_shape == tandem::Shape(p.rank, p.weight->ne[1], p.weight->ne[2]));
  }
  const std::span<float> values = set.values();
  require(std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); }));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Model model = tiny_model();
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const size_t border = std::min(all.find('\0'), size);
  const auto tensors = std::as_bytes(std::span(data, size)).subspan(std::min(border + 1, size));
  try {
    check(tandem::parse_peft(all.substr(0, border), tandem::SafetensorsFile::parse(tensors, "fuzz/tensors"),
                             model, 1.f, "fuzz"));
  } catch (const tandem::Error& e) {
    require(e.code() != tandem::Code::Internal);
  }
  return 0;
}
