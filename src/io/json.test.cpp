#include "io/json.h"

#include <gtest/gtest.h>

#include <ctime>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"

namespace tandem {
namespace {

using nlohmann::json;

void refused(std::string_view text, std::string_view part) {
  try {
    parse_json(text, "body");
    ADD_FAILURE() << "accepted; wanted: " << part;
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::BadData);
    EXPECT_NE(std::string_view(e.what()).find(part), std::string_view::npos)
        << e.what() << "\n  wanted: " << part;
    EXPECT_TRUE(std::string_view(e.what()).starts_with("body: ")) << e.what();
  }
}

std::string repeated(std::string_view text, int n) {
  std::string all;
  for (int i = 0; i < n; ++i) all += text;
  return all;
}

TEST(Json, BuildsTheDocument) {
  const json got = parse_json(
      R"( {"a": [1, -2, 2.5, true, false, null, [], {}], "b": {"c": {"d": "x\u00e9\n"}, "e": [[3]]},
                                  "big": 18446744073709551615, "small": -9223372036854775808} )",
      "body");
  json want;
  want["a"] = json::array({1, -2, 2.5, true, false, nullptr, json::array(), json::object()});
  want["b"]["c"]["d"] = "x\xc3\xa9\n";
  want["b"]["e"] = json::array({json::array({3})});
  want["big"] = std::numeric_limits<uint64_t>::max();
  want["small"] = std::numeric_limits<int64_t>::min();
  EXPECT_EQ(got, want);
  EXPECT_TRUE(got["big"].is_number_unsigned());
  EXPECT_TRUE(got["small"].is_number_integer());
  EXPECT_EQ(parse_json("3", "body"), json(3));
  EXPECT_EQ(parse_json("\"s\"", "body"), json("s"));
}

TEST(Json, DepthIsLimited) {
  EXPECT_TRUE(parse_json(repeated("[", 64) + repeated("]", 64), "body").is_array());
  refused(repeated("[", 65) + repeated("]", 65), "nested more than 64 deep");
  refused(repeated("{\"a\":", 65) + "1" + repeated("}", 65), "nested more than 64 deep");
  refused(repeated("[", 1000000), "nested more than 64 deep");
}

TEST(Json, KeysAreLimitedAndUnique) {
  const auto object = [](int n_keys) {
    std::string text = "{";
    for (int i = 0; i < n_keys; ++i) text += fmt::format("{}\"k{}\":{}", i > 0 ? "," : "", i, i);
    return text + "}";
  };
  EXPECT_EQ(parse_json(object(1024), "body").size(), 1024u);
  refused(object(1025), "more than 1024 keys");
  refused(R"({"a":1,"b":2,"a":1})", "key 'a' appears twice in one object");
  refused(R"({"x":[{"a":{},"a":1}]})", "key 'a' appears twice in one object");
  EXPECT_EQ(parse_json(R"({"a":{"a":1},"b":{"a":2}})", "body")["b"]["a"], 2);
}

TEST(Json, MalformedTextIsRefusedWithItsPlace) {
  refused("", "not valid JSON");
  refused("{\"a\":1", "column 7: not valid JSON");
  refused("{\"a\" 1}", "column 6: not valid JSON");
  refused("{\n \"a\": tru\n}", "line 2, column 10");
  refused("[1,]", "not valid JSON");
  refused("[1] x", "not valid JSON");
  refused("{}{}", "not valid JSON");
  refused("nan", "not valid JSON");
  refused("// c\n1", "not valid JSON");
  refused("'a'", "not valid JSON");
  refused("1e999", "number overflow");
  refused("01", "not valid JSON");
  refused("\"a\nb\"", "not valid JSON");
  refused(std::string_view("{}\0 rubbish", 11), "column 3: not valid JSON: NUL byte");
}

TEST(Json, InvalidUtf8IsRefusedInAValidMessage) {
  refused("\"\xff\"", "not valid JSON");
  refused("\"\xc0\x80\"", "not valid JSON");
  refused("\"\xed\xa0\x80\"", "not valid JSON");
  refused("\"\\ud800\"", "not valid JSON");
  refused("\xc3\xa9", "not valid JSON");
  try {
    parse_json("[\"\xff\xfe\"]", "body");
    FAIL() << "accepted";
  } catch (const Error& e) {
    EXPECT_NO_THROW(json(e.what()).dump());  // throws for invalid UTF-8
    EXPECT_EQ(std::string_view(e.what()).find("json.exception"), std::string_view::npos) << e.what();
  }
}

TEST(Json, LongInputTakesLinearTime) {
  std::string text = "[";
  for (int i = 0; i < 100000; ++i) text += "{\"role\":\"user\",\"content\":\"x\"},";
  text += "0]";
  const std::clock_t start = std::clock();
  EXPECT_EQ(parse_json(text, "body").size(), 100001u);
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  EXPECT_LT(seconds, 5.0);  // about 0.1 s of processor time; the bound only catches something quadratic
}

}  // namespace
}  // namespace tandem
