#include "text/rows.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "base/error.h"
#include "base/file.h"

namespace tandem {
namespace {

RowFile parse(const std::string& text) { return parse_rows(text, "f.jsonl"); }

void expect_refused(const std::string& text, const std::string& part, Code code = Code::BadData) {
  try {
    parse(text);
    ADD_FAILURE() << "accepted: " << text;
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
}

std::string message_row(const std::string& message) {
  return R"({"messages":[{"role":"user","content":"q"},)" + message + "]}\n";
}

TEST(Rows, Messages) {
  const RowFile f = parse(
      R"({"messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"name":"n"},)"
      R"({"role":"assistant","content":"c","weight":0},{"role":"assistant","content":"","train":true,"weight":1}]})"
      "\n"
      R"({"messages":[{"role":"developer","content":"d","weight":null}],"prompt":"p","completion":3,"tools":[],"chat_template_kwargs":{}})"
      "\n");
  EXPECT_EQ(f.kind, RowKind::Messages);
  EXPECT_EQ(f.name, "f.jsonl");
  EXPECT_TRUE(f.warnings.empty());
  ASSERT_EQ(f.rows.size(), 2u);
  const auto& m = f.rows[0].messages;
  ASSERT_EQ(m.size(), 4u);
  EXPECT_EQ(f.rows[0].line, 1);
  EXPECT_EQ(f.rows[0].n_prompt_messages, 0u);
  EXPECT_EQ(m[0].role, "system");
  EXPECT_EQ(m[1].content, "ab");
  EXPECT_EQ(m[1].train, std::nullopt);
  EXPECT_EQ(m[2].train, false);
  EXPECT_EQ(m[3].train, true);
  EXPECT_EQ(m[3].content, "");
  EXPECT_EQ(f.rows[1].line, 2);
  EXPECT_EQ(f.rows[1].messages[0].role, "developer");
}

TEST(Rows, PromptAndCompletion) {
  const RowFile f =
      parse(R"({"prompt":"p","completion":"c"})"
            "\n"
            R"({"prompt":[{"role":"user","content":"a"},{"role":"assistant","content":"b","train":false}],)"
            R"("completion":[{"role":"assistant","content":"c"}]})");
  EXPECT_EQ(f.kind, RowKind::PromptCompletion);
  EXPECT_EQ(f.rows[0].prompt, "p");
  EXPECT_EQ(f.rows[0].completion, "c");
  EXPECT_TRUE(f.rows[0].messages.empty());
  EXPECT_EQ(f.rows[1].messages.size(), 3u);
  EXPECT_EQ(f.rows[1].n_prompt_messages, 2u);
}

TEST(Rows, Text) {
  const RowFile f = parse("\xEF\xBB\xBF{\"text\":\"a\\nb\"}\r\n{\"text\":\"\",\"messages\":null}\r\n\r\n");
  EXPECT_EQ(f.kind, RowKind::Text);
  ASSERT_EQ(f.rows.size(), 2u);
  EXPECT_EQ(f.rows[0].text, "a\nb");
  EXPECT_EQ(f.rows[1].text, "");
}

TEST(Rows, ReadsAFile) {
  const std::string path = ::testing::TempDir() + "tandem_rows.jsonl";
  write_file_atomic(path, std::string_view("{\"text\":\"x\"}\n{\"text\":1}\n"));
  try {
    read_rows(path);
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()), path + ":2: text is of type number, wanted a string");
  }
  write_file_atomic(path, std::string_view("{\"text\":\"x\"}\n"));
  EXPECT_EQ(read_rows(path).rows[0].text, "x");
  std::remove(path.c_str());
}

TEST(Rows, OneKindPerFile) {
  expect_refused("{\"text\":\"a\"}\n{\"text\":\"b\"}\n{\"prompt\":\"p\",\"completion\":\"c\"}\n",
                 "f.jsonl:3: this is a prompt/completion row, line 1 is a text row");
  expect_refused("{\"text\":\"a\"}\n{\"text\":\"b\",\"messages\":[]}\n", "f.jsonl:2: this is a messages row");
  expect_refused("{\"foo\":\"a\"}\n", "f.jsonl:1: the row has none of the keys");
  expect_refused("{\"text\":null}\n", "none of the keys");
}

TEST(Rows, WarnsOncePerKey) {
  const RowFile f = parse(
      "{\"text\":\"a\",\"id\":1}\n{\"text\":\"b\",\"id\":2,\"source\":\"s\"}\n{\"text\":\"b\",\"source\":"
      "\"s\"}\n");
  EXPECT_EQ(f.warnings,
            (std::vector<std::string>{"f.jsonl:1: key 'id' is not used in text rows (reported once)",
                                      "f.jsonl:2: key 'source' is not used in text rows (reported once)"}));
  const RowFile m = parse(
      "{\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"id\":1}],\"id\":1,\"text\":\"t\",\"chat_"
      "template_kwargs\":{"
      "\"x\":1}}\n");
  EXPECT_EQ(m.warnings, (std::vector<std::string>{
                            "f.jsonl:1: chat_template_kwargs has no effect on ChatML (reported once)",
                            "f.jsonl:1: key 'id' of a message is not used (reported once)",
                            "f.jsonl:1: key 'id' is not used in messages rows (reported once)",
                            "f.jsonl:1: key 'text' is not used in messages rows (reported once)"}));
  std::string many;
  for (int i = 0; i < 500; ++i) many += fmt::format("{{\"text\":\"a\",\"k{}\":1}}\n", i);
  EXPECT_EQ(parse(many).warnings.size(), 50u);
}

TEST(Rows, WrongMessages) {
  expect_refused(R"({"messages":{}})", "f.jsonl:1: messages is of type object, wanted a list");
  expect_refused(R"({"messages":[]})", "messages is an empty list");
  expect_refused(R"({"messages":[3]})", "messages[0] is of type number, wanted an object");
  expect_refused(message_row(R"({"content":"a"})"), "messages[1] has no role");
  expect_refused(message_row(R"({"role":1,"content":"a"})"), "messages[1].role is of type number");
  expect_refused(message_row(R"({"role":"human","content":"a"})"),
                 "messages[1].role is 'human', wanted system");
  expect_refused(message_row(R"({"role":"assistant"})"), "messages[1] has no content");
  expect_refused(message_row(R"({"role":"assistant","content":null})"), "messages[1] has no content");
  expect_refused(message_row(R"({"role":"assistant","content":5})"),
                 "messages[1].content is of type number, wanted a");
  expect_refused(message_row(R"({"role":"assistant","content":["a"]})"),
                 "messages[1].content[0] is of type string");
  expect_refused(message_row(R"({"role":"assistant","content":[{"text":"a"}]})"),
                 "messages[1].content[0] has no type");
  expect_refused(message_row(R"({"role":"assistant","content":[{"type":"text"}]})"),
                 "content[0] has no text");
  expect_refused(message_row(R"({"role":"assistant","content":[{"type":"text","text":1}]})"),
                 "content[0].text is of type");
  expect_refused(message_row(R"({"role":"assistant","content":"a","name":1})"),
                 "messages[1].name is of type number");
  expect_refused(R"({"prompt":"a"})", "the row has a prompt but no completion");
  expect_refused(R"({"completion":"a"})", "the row has a completion but no prompt");
  expect_refused(R"({"prompt":"a","completion":[]})",
                 "prompt is of type string and completion of type array");
  expect_refused(R"({"prompt":1,"completion":2})", "prompt is of type number");
  expect_refused(R"({"prompt":[],"completion":[]})", "prompt is an empty list");
}

TEST(Rows, Weights) {
  expect_refused(message_row(R"({"role":"user","content":"a","weight":1})"),
                 "messages[1] is of the role user and has");
  expect_refused(message_row(R"({"role":"system","content":"a","train":false})"),
                 "only assistant messages are trained");
  expect_refused(message_row(R"({"role":"assistant","content":"a","weight":2})"),
                 "messages[1].weight is 2, wanted 0 or 1");
  expect_refused(message_row(R"({"role":"assistant","content":"a","weight":0.5})"),
                 "messages[1].weight is 0.5");
  expect_refused(message_row(R"({"role":"assistant","content":"a","weight":true})"),
                 "messages[1].weight is of type boolean");
  expect_refused(message_row(R"({"role":"assistant","content":"a","train":1})"),
                 "messages[1].train is of type number");
  expect_refused(message_row(R"({"role":"assistant","content":"a","weight":0,"train":true})"),
                 "messages[1] has weight 0 and train true, which contradict each other");
  expect_refused(
      R"({"prompt":[{"role":"assistant","content":"a","weight":1}],"completion":[{"role":"assistant","content":"a"}]})",
      "a message of the prompt asks to be trained");
}

TEST(Rows, UnsupportedThings) {
  expect_refused(R"({"messages":[{"role":"user","content":"a"}],"tools":[{"type":"function"}]})",
                 "f.jsonl:1: tools are", Code::Unsupported);
  expect_refused(R"({"messages":[{"role":"user","content":"a"}],"tools":"x"})", "tools is of type string");
  expect_refused(R"({"messages":[{"role":"user","content":"a"}],"chat_template_kwargs":[]})",
                 "wanted an object");
  expect_refused(message_row(R"({"role":"tool","content":"a"})"), "f.jsonl:1: messages[1]: tool calls",
                 Code::Unsupported);
  expect_refused(message_row(R"({"role":"assistant","content":null,"tool_calls":[{}]})"),
                 "messages[1]: tool calls", Code::Unsupported);
  expect_refused(message_row(R"({"role":"user","content":[{"type":"image_url"}]})"),
                 "has the type 'image_url'", Code::Unsupported);
}

}  // namespace
}  // namespace tandem
