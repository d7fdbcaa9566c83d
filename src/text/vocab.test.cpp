#include "text/vocab.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "io/gguf_writer.h"
#include "tests/support/vocabularies.h"

namespace tandem {
namespace {

TEST(ReadVocab, EveryKey) {
  const VocabSource tale = test::tale_vocab();
  GgufWriter w;
  w.add_str("general.architecture", "qwen3moe");
  w.add_str("tokenizer.ggml.model", "gpt2");
  w.add_str("tokenizer.ggml.pre", "qwen2");
  w.add_strings("tokenizer.ggml.tokens", tale.tokens);
  w.add_strings("tokenizer.ggml.merges", tale.merges);
  w.add_i32s("tokenizer.ggml.token_type", tale.types);
  uint32_t next = 1;
  for (const char* key : {"bos", "eos", "eot", "eom", "unknown", "padding", "seperator", "mask", "fim_pre",
                          "fim_suf", "fim_mid", "fim_pad", "fim_rep", "fim_sep"}) {
    w.add_u32(fmt::format("tokenizer.ggml.{}_token_id", key), next++);
  }
  w.add_bool("tokenizer.ggml.add_bos_token", true);
  w.add_bool("tokenizer.ggml.add_eos_token", false);
  w.add_str("tokenizer.chat_template", "{{ x }}");
  const auto bytes = w.to_bytes();
  const VocabSource v = read_vocab(GgufFile::parse(bytes, "m.gguf"));
  EXPECT_EQ(v.name, "m.gguf");
  EXPECT_EQ(v.model, "gpt2");
  EXPECT_EQ(v.pre, "qwen2");
  EXPECT_EQ(v.tokens, tale.tokens);
  EXPECT_EQ(v.merges, tale.merges);
  EXPECT_EQ(v.types, tale.types);
  next = 1;
  for (const auto& id : {v.bos, v.eos, v.eot, v.eom, v.unk, v.pad, v.sep, v.mask, v.fim_pre, v.fim_suf,
                         v.fim_mid, v.fim_pad, v.fim_rep, v.fim_sep}) {
    EXPECT_EQ(id, next++);
  }
  EXPECT_EQ(v.add_bos, true);
  EXPECT_EQ(v.add_eos, false);
  EXPECT_EQ(v.chat_template, "{{ x }}");
  EXPECT_EQ(Tokenizer(v).encode("The wolf", false), (std::vector<int32_t>{319, 825, 396}));
}

TEST(ReadVocab, AbsentKeys) {
  GgufWriter w;
  w.add_str("tokenizer.ggml.model", "llama");
  w.add_strings("tokenizer.ggml.tokens", std::vector<std::string>{"a"});
  const auto bytes = w.to_bytes();
  const VocabSource v = read_vocab(GgufFile::parse(bytes, "m.gguf"));
  EXPECT_EQ(v.pre, "");
  EXPECT_TRUE(v.types.empty());
  EXPECT_EQ(v.bos, std::nullopt);
  EXPECT_EQ(v.add_bos, std::nullopt);
  EXPECT_EQ(v.chat_template, "");
  try {
    Tokenizer t(v);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::Unsupported);
  }
}

TEST(ReadVocab, ByteLevelNeedsMerges) {
  GgufWriter w;
  w.add_str("tokenizer.ggml.model", "gpt2");
  w.add_strings("tokenizer.ggml.tokens", std::vector<std::string>{"a"});
  const auto bytes = w.to_bytes();
  const GgufFile file = GgufFile::parse(bytes, "m.gguf");
  try {
    read_vocab(file);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::BadData);
    EXPECT_NE(std::string(e.what()).find("tokenizer.ggml.merges"), std::string::npos);
  }
}

}  // namespace
}  // namespace tandem
