#include "text/chat.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/support/vocabularies.h"

namespace tandem {
namespace {

using Ids = std::vector<int32_t>;

std::string joined(const std::vector<ChatPart>& parts) {
  std::string text;
  for (const auto& p : parts) text += p.text;
  return text;
}

TEST(Chat, RendersChatMl) {
  const Tokenizer t(test::qwen3_vocab());
  const std::vector<Message> messages = {{"system", "Be brief.", {}}, {"user", "hi", {}}};
  EXPECT_EQ(
      joined(render_chat(t, messages, true)),
      "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(joined(render_chat(t, messages, false)),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n");
  EXPECT_EQ(joined(render_chat(t, {}, true)), "<|im_start|>assistant\n");
  EXPECT_TRUE(render_chat(t, {}, false).empty());
}

// Source: tokenizer.md 9, the rendering of [U] with its ids.
TEST(Chat, EncodesAPrompt) {
  const Tokenizer t(test::qwen3_vocab());
  const std::vector<Message> messages = {{"user", "hi", {}}};
  EXPECT_EQ(encode_chat(t, messages, true), (Ids{151644, 872, 198, 6023, 151645, 198, 151644, 77091, 198}));
}

TEST(Chat, BeginsWithBosWhereTheVocabularyWantsOne) {
  VocabSource v = test::tale_vocab();
  v.bos = 1021;
  v.add_bos = true;
  const Tokenizer t(v);
  const std::vector<Message> messages = {{"user", "hi", {}}};
  EXPECT_EQ(encode_chat(t, messages, false), (Ids{1021, 1022, 498, 275, 10, 104, 105, 1023, 10}));
}

TEST(Chat, MarksWhatIsTrained) {
  const Tokenizer t(test::tale_vocab());
  const std::vector<Message> messages = {
      {"user", "a", {}}, {"assistant", "b", true}, {"assistant", "c", false}, {"assistant", "d", {}}};
  const auto parts = render_chat(t, messages, true);
  ASSERT_EQ(parts.size(), 17u);
  for (size_t i = 0; i < parts.size(); ++i) {
    EXPECT_EQ(parts[i].message, i == 16 ? -1 : static_cast<int32_t>(i / 4));
    EXPECT_EQ(parts[i].from_template, i % 4 != 1) << i;
    EXPECT_EQ(parts[i].trained, i == 5 || i == 6) << i;
  }
  EXPECT_EQ(parts[5].text, "b");
  EXPECT_EQ(parts[6].text, "<|im_end|>");
  EXPECT_EQ(parts[7].text, "\n");
}

TEST(Chat, SpecialTextInContentIsPlain) {
  const Tokenizer t(test::tale_vocab());
  const std::vector<Message> messages = {{"user", "x<|im_end|>", {}}};
  const Ids ids = encode_chat(t, messages, false);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 1023), 1);
  EXPECT_EQ(t.decode(ids, true), "<|im_start|>user\nx<|im_end|><|im_end|>\n");
}

TEST(Chat, NormalizesContent) {
  const Tokenizer t(test::tale_vocab());
  const std::vector<Message> messages = {{"user", "e\u0301\xFF", {}}};
  EXPECT_EQ(render_chat(t, messages, false)[1].text, "\u00E9\uFFFD");
}

TEST(Chat, Refusals) {
  VocabSource v = test::tale_vocab();
  v.types[1023] = static_cast<int32_t>(TokenType::Normal);
  const Tokenizer without(v);
  try {
    render_chat(without, {}, true);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::Unsupported);
    EXPECT_NE(std::string(e.what()).find("no ChatML markers"), std::string::npos);
    EXPECT_NE(std::string(e.what()).find("use --prompt-style raw or text rows"), std::string::npos);
  }
  const Tokenizer t(test::tale_vocab());
  const std::vector<Message> messages = {{"robot", "x", {}}};
  try {
    render_chat(t, messages, false);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::Usage);
    EXPECT_NE(std::string(e.what()).find("'robot'"), std::string::npos);
  }
  EXPECT_TRUE(is_chat_role("developer"));
  EXPECT_FALSE(is_chat_role("tool"));
}

}  // namespace
}  // namespace tandem
