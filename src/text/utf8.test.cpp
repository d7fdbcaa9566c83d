#include "text/utf8.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <cstdlib>
#include <random>

namespace tandem {
namespace {

constexpr char kBad[] = "\xEF\xBF\xBD";

std::string encoded(int32_t point) {
  utf8proc_uint8_t bytes[4];
  const auto n = utf8proc_encode_char(point, bytes);
  return {reinterpret_cast<const char*>(bytes), static_cast<size_t>(n)};
}

std::string library_nfc(const std::string& text) {
  utf8proc_uint8_t* out = nullptr;
  const auto n = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                              static_cast<utf8proc_ssize_t>(text.size()), &out,
                              static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  EXPECT_GE(n, 0);
  std::string result(reinterpret_cast<const char*>(out), static_cast<size_t>(n));
  std::free(out);
  return result;
}

TEST(Utf8, SequenceLengths) {
  EXPECT_EQ(utf8_sequence("a"), 1);
  EXPECT_EQ(utf8_sequence(std::string_view("\0", 1)), 1);
  EXPECT_EQ(utf8_sequence("\xC2\x80"), 2);
  EXPECT_EQ(utf8_sequence("\xE0\xA0\x80"), 3);
  EXPECT_EQ(utf8_sequence("\xED\x9F\xBFx"), 3);
  EXPECT_EQ(utf8_sequence("\xF0\x90\x80\x80"), 4);
  EXPECT_EQ(utf8_sequence("\xF4\x8F\xBF\xBF"), 4);
  // may still become one
  EXPECT_EQ(utf8_sequence("\xC2"), -1);
  EXPECT_EQ(utf8_sequence("\xE0\xA0"), -1);
  EXPECT_EQ(utf8_sequence("\xF0\x90\x80"), -1);
  // stray, overlong, surrogate, beyond the last code point, interrupted
  for (const char* bad :
       {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF",
        "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "\xE1\x80x", "\xF0\x8F", "\xED\xA0"}) {
    EXPECT_EQ(utf8_sequence(bad), 0) << bad;
  }
}

TEST(Utf8, RepairReplacesEachBadByte) {
  EXPECT_EQ(repair_utf8("a\xC3\xA9\xFFz"), std::string("a\xC3\xA9") + kBad + "z");
  EXPECT_EQ(repair_utf8("\xE2\x82"), std::string(kBad) + kBad);
  EXPECT_EQ(repair_utf8("\xED\xA0\x80"), std::string(kBad) + kBad + kBad);
  EXPECT_FALSE(is_utf8("\xE2\x82"));
  EXPECT_TRUE(is_utf8("a\xE2\x82\xAC"));
  EXPECT_TRUE(is_utf8(""));
}

TEST(Utf8, NfcOfKnownTexts) {
  EXPECT_EQ(nfc("plain"), "plain");
  EXPECT_EQ(nfc("e\u0301"), "\u00E9");
  EXPECT_EQ(nfc("\u212B"), "\u00C5");
  EXPECT_EQ(nfc("\u1100\u1161\u11A8"), "\uAC01");
  EXPECT_EQ(nfc("\u0344"), "\u0308\u0301");          // composition exclusion
  EXPECT_EQ(nfc("q\u0307\u0323"), "q\u0323\u0307");  // ordered, not composed
  EXPECT_EQ(nfc("\u1E0B\u0323"), "\u1E0D\u0307");    // taken apart and put together anew
  EXPECT_EQ(nfc(std::string("\0e\u0301", 4)), std::string("\0\u00E9", 3));
}

TEST(Utf8, NfcEqualsTheLibraryOnRandomText) {
  std::mt19937 rng(3);
  const auto in = [&](int32_t low, int32_t high) {
    return low + static_cast<int32_t>(rng() % (high - low + 1));
  };
  size_t changed = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (int i = 0; i < 12; ++i) {
      int32_t c = 0;
      switch (rng() % 6) {
        case 0:
          c = in('a', 'z');
          break;
        case 1:
          c = in(0x300, 0x36F);
          break;
        case 2:
          c = in(0xC0, 0x17F);
          break;
        case 3:
          c = in(0x900, 0xDFF);
          break;
        case 4:
          c = in(0x1100, 0x11FF);
          break;
        default:
          c = in(0x80, 0x1FFFF);
          break;
      }
      if (c >= 0xD800 && c <= 0xDFFF) c = 0x41;
      text += encoded(c);
    }
    const std::string got = nfc(text);
    ASSERT_EQ(got, library_nfc(text));
    changed += got != text ? 1 : 0;
  }
  EXPECT_GT(changed, 500u);  // the texts do exercise it
}

TEST(Utf8, NfcOfOneLongRunOfMarks) {
  std::string marks;
  for (int i = 0; i < 200000; ++i)
    marks += "\u0301\u0316";  // classes 230 and 220: every pair is out of order
  const std::string got = nfc("e" + marks);
  // All of class 220 first; the first of class 230 then composes with the e.
  EXPECT_EQ(got.size(), 2 + 2 * 200000 + 2 * 199999u);
  EXPECT_EQ(got.substr(0, 4), "\u00E9\u0316");
  EXPECT_EQ(got.substr(got.size() - 2), "\u0301");
}

TEST(Utf8Stream, EveryCutGivesTheSameText) {
  const std::string bytes = "a\xC3\xA9\xF0\x9F\x9A\x80 \xE6\xBC\xA2\xFF\xE2\x82z";
  Utf8Stream whole;
  const std::string want = whole.push(bytes) + whole.finish();
  EXPECT_EQ(want, std::string("a\u00E9\U0001F680 \u6F22") + kBad + kBad + kBad + "z");
  for (size_t i = 0; i <= bytes.size(); ++i) {
    for (size_t j = i; j <= bytes.size(); ++j) {
      Utf8Stream s;
      std::string got;
      for (const auto& piece : {bytes.substr(0, i), bytes.substr(i, j - i), bytes.substr(j)}) {
        const std::string out = s.push(piece);
        EXPECT_TRUE(is_utf8(out));
        got += out;
      }
      EXPECT_EQ(got + s.finish(), want);
    }
  }
}

TEST(Utf8Stream, WaitsAndReplacesAnUnfinishedTail) {
  Utf8Stream s;
  EXPECT_EQ(s.push("\xF0\x9F"), "");
  EXPECT_EQ(s.push("\x9A"), "");
  EXPECT_EQ(s.push("\x80!"), "\U0001F680!");
  EXPECT_EQ(s.finish(), "");
  EXPECT_EQ(s.push("x\xF0\x9F\x9A"), "x");
  EXPECT_EQ(s.finish(), kBad);
  EXPECT_EQ(s.push("y"), "y");  // usable again
}

}  // namespace
}  // namespace tandem
