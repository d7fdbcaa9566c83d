#include "text/pretokenizer.h"

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace tandem {
namespace {

using Pieces = std::vector<std::string>;

Pieces split(std::string_view family, std::string_view text) {
  const Pretokenizer p(family);
  std::vector<uint32_t> ends;
  p.split(text, ends);
  Pieces pieces;
  uint32_t begin = 0;
  for (const uint32_t end : ends) {
    EXPECT_GT(end, begin);
    pieces.emplace_back(text.substr(begin, end - begin));
    begin = end;
  }
  EXPECT_EQ(begin, text.size());
  return pieces;
}

// Source: tokenizer.md 8.
TEST(Pretokenizer, SplitsOfTheSpecification) {
  EXPECT_EQ(split("qwen2", "Cafe\u0301s"), (Pieces{"Cafe", "\u0301s"}));
  EXPECT_EQ(split("qwen35", "Cafe\u0301s"), (Pieces{"Cafe\u0301s"}));
  EXPECT_EQ(split("qwen2", "हिन्दी भाषा").size(), 7u);
  EXPECT_EQ(split("qwen35", "हिन्दी भाषा"), (Pieces{"हिन्दी", " भाषा"}));
  for (const char* family : {"qwen2", "qwen35"}) {
    EXPECT_EQ(split(family, "foo_bar²"), (Pieces{"foo", "_bar", "²"}));
  }
}

TEST(Pretokenizer, Alternatives) {
  for (const char* family : {"qwen2", "qwen35"}) {
    EXPECT_EQ(split(family, ""), Pieces{});
    EXPECT_EQ(split(family, "I'LL don't  stop"), (Pieces{"I", "'LL", " don", "'t", " ", " stop"}));
    EXPECT_EQ(split(family, "we'Ve 'x"), (Pieces{"we", "'Ve", " '", "x"}));
    EXPECT_EQ(split(family, "12½ 3"), (Pieces{"1", "2", "½", " ", "3"}));
    EXPECT_EQ(split(family, "a\r\n\r\nb  \n c\t\td"),
              (Pieces{"a", "\r\n\r\n", "b", "  \n", " c", "\t", "\td"}));
    EXPECT_EQ(split(family, "f(x);\n\n  y"), (Pieces{"f", "(x", ");\n\n", " ", " y"}));
    EXPECT_EQ(split(family, "x  "), (Pieces{"x", "  "}));
    EXPECT_EQ(split(family, "\n"), (Pieces{"\n"}));
  }
}

TEST(Pretokenizer, WhiteSpaceIsUnicodes) {
  // U+3000 and U+00A0 are white space, U+180E and U+200B are not.
  EXPECT_EQ(split("qwen2", "!\u3000\u00A0\u2003!"), (Pieces{"!", "\u3000\u00A0", "\u2003", "!"}));
  EXPECT_EQ(split("qwen2", "!\u180E\u200B!"), (Pieces{"!\u180E\u200B!"}));
  EXPECT_EQ(split("qwen2", "\u2028\u0085\u1680\u205F\u202F"), (Pieces{"\u2028\u0085\u1680\u205F\u202F"}));
}

TEST(Pretokenizer, Default) {
  EXPECT_EQ(split("default", "I'll pay $12345, ok?"),
            (Pieces{"I", "'", "ll", " pay", " ", "$", "123", "45", ",", " ok", "?"}));
  EXPECT_EQ(split("default", "a\nb  c"), (Pieces{"a", "\n", "b", " ", " c"}));
  EXPECT_EQ(split("default", " 1234567"), (Pieces{" ", "123", "456", "7"}));
  EXPECT_EQ(split("default", "x=<=>y ©2"), (Pieces{"x", "=<=>", "y", " ©", "2"}));
}

TEST(Pretokenizer, PropertiesOfTheFamilies) {
  EXPECT_TRUE(Pretokenizer("qwen2").wants_nfc());
  EXPECT_TRUE(Pretokenizer("qwen35").wants_nfc());
  EXPECT_FALSE(Pretokenizer("default").wants_nfc());
  EXPECT_FALSE(Pretokenizer("qwen2").default_add_bos());
}

TEST(Pretokenizer, RefusesOtherFamilies) {
  for (const char* family : {"llama-bpe", "", "Qwen2"}) {
    try {
      Pretokenizer p(family, "m.gguf");
      FAIL() << family;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::Unsupported);
      EXPECT_NE(std::string(e.what()).find("m.gguf: "), std::string::npos);
      EXPECT_NE(std::string(e.what()).find("supported: qwen2, qwen35, default"), std::string::npos);
    }
  }
}

// One class over a megabyte: linear time, and no limit of the matcher is met.
TEST(Pretokenizer, LongRuns) {
  for (const char* family : {"qwen2", "qwen35", "default"}) {
    for (const char* unit : {"a", " ", "\n", "!", "漢", "\u0301", "\t ", "  \n"}) {
      std::string text;
      while (text.size() < size_t{1} << 20) text += unit;
      EXPECT_EQ(split(family, text).size(), 1u) << family << " '" << unit << "'";
    }
  }
}

}  // namespace
}  // namespace tandem
