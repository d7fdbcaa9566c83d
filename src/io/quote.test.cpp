#include "io/quote.h"

#include <gtest/gtest.h>

#include <string>

namespace tandem {
namespace {

TEST(Quote, ShowsTextAndEscapesTheRest) {
  EXPECT_EQ(quote(""), "''");
  EXPECT_EQ(quote("blk.0.attn_q.weight"), "'blk.0.attn_q.weight'");
  EXPECT_EQ(quote("caf\xc3\xa9 \xe6\x97\xa5 \xf0\x9f\x98\x80"),
            "'caf\xc3\xa9 \xe6\x97\xa5 \xf0\x9f\x98\x80'");
  EXPECT_EQ(quote("a\n\t\\'\x1b\x7f"), R"('a\n\t\\\'\x1b\x7f')");
  EXPECT_EQ(quote(std::string_view("\0x", 2)), R"('\x00x')");
}

TEST(Quote, EscapesInvalidUtf8AndControls) {
  EXPECT_EQ(quote("\xff\xc3"), R"('\xff\xc3')");
  EXPECT_EQ(quote("\xc0\x80"), R"('\xc0\x80')");                  // overlong
  EXPECT_EQ(quote("\xe0\x80\x80"), R"('\xe0\x80\x80')");          // overlong
  EXPECT_EQ(quote("\xed\xa0\x80"), R"('\xed\xa0\x80')");          // a surrogate
  EXPECT_EQ(quote("\xf4\x90\x80\x80"), R"('\xf4\x90\x80\x80')");  // beyond U+10FFFF
  EXPECT_EQ(quote("\xc2\x85"), R"('\xc2\x85')");                  // U+0085, a control
  EXPECT_EQ(quote("\xc2\xa0"), "'\xc2\xa0'");
}

TEST(Quote, CutsLongTextBetweenCharacters) {
  EXPECT_EQ(quote("abcdef", 3), "'abc'... (6 bytes)");
  EXPECT_EQ(quote("abcdef", 6), "'abcdef'");
  EXPECT_EQ(quote("ab\xc3\xa9"
                  "f",
                  3),
            "'ab\xc3\xa9'... (5 bytes)");
}

TEST(Quote, PrintableHasNoQuotesAndNoLimit) {
  EXPECT_EQ(printable("it's \x01"), R"(it's \x01)");
  EXPECT_EQ(printable(std::string(500, 'a')), std::string(500, 'a'));
}

}  // namespace
}  // namespace tandem
