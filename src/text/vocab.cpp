#include "text/vocab.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace tandem {
namespace {

std::vector<std::string> strings(const GgufFile& file, std::string_view key) {
  const std::vector<std::string_view> views = file.get_strings(key);
  return {views.begin(), views.end()};
}

std::optional<uint32_t> id(const GgufFile& file, std::string_view name) {
  const std::string key = fmt::format("tokenizer.ggml.{}_token_id", name);
  if (!file.has(key)) return std::nullopt;
  return file.get_u32(key);
}

std::optional<bool> flag(const GgufFile& file, std::string_view key) {
  if (!file.has(key)) return std::nullopt;
  return file.get_bool(key);
}

}  // namespace

VocabSource read_vocab(const GgufFile& file) {
  VocabSource v;
  v.name = file.path();
  v.model = file.get_str("tokenizer.ggml.model");
  v.pre = file.get_str_or("tokenizer.ggml.pre", "");
  v.tokens = strings(file, "tokenizer.ggml.tokens");
  if (file.has("tokenizer.ggml.token_type")) v.types = file.get_i32s("tokenizer.ggml.token_type");
  if (v.model == "gpt2" || file.has("tokenizer.ggml.merges"))
    v.merges = strings(file, "tokenizer.ggml.merges");
  v.bos = id(file, "bos");
  v.eos = id(file, "eos");
  v.eot = id(file, "eot");
  v.eom = id(file, "eom");
  v.unk = id(file, "unknown");
  v.pad = id(file, "padding");
  v.sep = id(file, "seperator");  // so spelled in the format
  v.mask = id(file, "mask");
  v.fim_pre = id(file, "fim_pre");
  v.fim_suf = id(file, "fim_suf");
  v.fim_mid = id(file, "fim_mid");
  v.fim_pad = id(file, "fim_pad");
  v.fim_rep = id(file, "fim_rep");
  v.fim_sep = id(file, "fim_sep");
  v.add_bos = flag(file, "tokenizer.ggml.add_bos_token");
  v.add_eos = flag(file, "tokenizer.ggml.add_eos_token");
  v.chat_template = file.get_str_or("tokenizer.chat_template", "");
  return v;
}

}  // namespace tandem
