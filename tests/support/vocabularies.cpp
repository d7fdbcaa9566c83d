#include "tests/support/vocabularies.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"

namespace tandem::test {
namespace {

nlohmann::json read_data(const char* name) {
  return nlohmann::json::parse(
      read_file(std::string(TANDEM_SOURCE_DIR "/tests/data/") + name, size_t{1} << 20));
}

}  // namespace

VocabSource tale_vocab() {
  const nlohmann::json data = read_data("tale-tokenizer.json");
  VocabSource v;
  v.pre = "qwen2";
  v.tokens = data["tokens"].get<std::vector<std::string>>();
  v.merges = data["merges"].get<std::vector<std::string>>();
  v.types.assign(v.tokens.size(), static_cast<int32_t>(TokenType::Normal));
  for (size_t id = 1021; id < 1024; ++id) v.types.at(id) = static_cast<int32_t>(TokenType::Control);
  v.eos = v.pad = 1021;
  v.eot = 1023;
  v.add_bos = false;
  return v;
}

VocabSource qwen3_vocab() {
  const nlohmann::json data = read_data("qwen3-subset.json");
  const auto n = data["n_vocab"].get<size_t>();
  VocabSource v;
  v.pre = "qwen2";
  for (size_t i = 0; i < n; ++i) v.tokens.push_back(fmt::format("[PAD{}]", i));
  v.types.assign(n, static_cast<int32_t>(TokenType::Unused));
  for (const nlohmann::json& token : data["tokens"]) {
    const auto id = token[0].get<size_t>();
    v.tokens.at(id) = token[1].get<std::string>();
    v.types.at(id) = token[2].get<int32_t>();
  }
  v.merges = data["merges"].get<std::vector<std::string>>();
  v.eos = 151645;
  v.add_bos = false;
  return v;
}

std::vector<EncodedText> qwen3_cases() {
  std::vector<EncodedText> cases;
  const nlohmann::json data = read_data("qwen3-subset.json");
  for (const nlohmann::json& c : data["cases"]) {
    cases.push_back({c["text"].get<std::string>(), c["ids"].get<std::vector<int32_t>>()});
  }
  return cases;
}

VocabSource byte_vocab() {
  VocabSource v;
  v.pre = "qwen2";
  uint32_t next = 0x100;
  for (uint32_t b = 0; b < 256; ++b) {
    const bool printed = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    const uint32_t c = printed ? b : next++;
    if (c < 0x80) {
      v.tokens.emplace_back(1, static_cast<char>(c));
    } else {
      v.tokens.push_back({static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 0x3F))});
    }
    v.types.push_back(static_cast<int32_t>(TokenType::Normal));
  }
  return v;
}

int32_t add_token(VocabSource& vocab, const std::string& text, TokenType type) {
  vocab.tokens.push_back(text);
  vocab.types.push_back(static_cast<int32_t>(type));
  return static_cast<int32_t>(vocab.tokens.size()) - 1;
}

}  // namespace tandem::test
