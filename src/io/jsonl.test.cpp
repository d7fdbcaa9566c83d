#include "io/jsonl.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"

namespace tandem {
namespace {

using Rows = std::vector<std::pair<size_t, std::string>>;

Rows rows_of(std::string_view text) {
  Rows rows;
  parse_jsonl(text, "d.jsonl",
              [&](size_t line, const nlohmann::json& object) { rows.emplace_back(line, object.dump()); });
  return rows;
}

void refused(std::string_view text, std::string_view part) {
  try {
    rows_of(text);
    ADD_FAILURE() << "accepted; wanted: " << part;
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::BadData);
    EXPECT_NE(std::string_view(e.what()).find(part), std::string_view::npos)
        << e.what() << "\n  wanted: " << part;
  }
}

TEST(Jsonl, LineEndsMarksAndLastLines) {
  const Rows want = {{1, R"({"a":1})"}, {2, R"({"b":"\u0000"})"}};
  const std::string a = R"({"a":1})";
  const std::string b = R"({ "b" : "\u0000" })";
  for (const std::string& text : {a + "\n" + b, a + "\n" + b + "\n", a + "\r\n" + b + "\r\n",
                                  a + "\r\n" + b + "\r", a + "\n" + b + "\n\n", a + "\r\n" + b + "\r\n\r\n",
                                  a + "\n" + b + "\n \t", "\xef\xbb\xbf" + a + "\n" + b + "\n"}) {
    EXPECT_EQ(rows_of(text), want) << text;
  }
}

TEST(Jsonl, AnythingElseIsAnErrorWithItsLine) {
  refused("", "d.jsonl: the file has no rows");
  refused("\n", "d.jsonl: the file has no rows");
  refused("\xef\xbb\xbf", "d.jsonl: the file has no rows");
  refused("\n{}\n", "d.jsonl:1: blank line");
  refused("{}\n\n{}\n", "d.jsonl:2: blank line");
  refused("{}\n\n\n", "d.jsonl:2: blank line");
  refused("{}\n[1]\n", "d.jsonl:2: the line holds JSON of type array, wanted an object");
  refused("\"text\"\n", "d.jsonl:1: the line holds JSON of type string");
  refused("{}\n{\"a\":}\n", "d.jsonl:2: column 6: not valid JSON");
  refused("{}\n{}{}\n", "d.jsonl:2: column 3: not valid JSON");
  refused("{\n}\n", "d.jsonl:1: ");
  refused("{}\n{\"a\":1,\"a\":2}\n", "d.jsonl:2: key 'a' appears twice");
  refused("{}\n\xef\xbb\xbf{}\n", "d.jsonl:2: byte order mark inside the file");
  refused("{}\n{\"a\":\"\xff\"}\n", "d.jsonl:2: ");
  refused(std::string_view("{}\n{}\0\n", 7), "d.jsonl:2: column 3: not valid JSON: NUL byte");
}

TEST(Jsonl, LineLengthIsLimited) {
  const auto line = [](size_t n_bytes) { return "{\"a\":\"" + std::string(n_bytes - 8, 'x') + "\"}"; };
  EXPECT_EQ(rows_of("{}\n" + line(size_t{8} << 20) + "\r\n").size(), 2u);
  refused("{}\n" + line((size_t{8} << 20) + 1),
          "d.jsonl:2: the line has 8388609 bytes, more than the 8388608");
}

TEST(Jsonl, ReadsFilesAndPassesErrorsOn) {
  const std::string path =
      (std::filesystem::temp_directory_path() / fmt::format("tandem-jsonl-{}.jsonl", ::getpid())).string();
  write_file_atomic(path, std::string_view("{\"a\":1}\n{\"a\":2}\n"));
  std::vector<int> values;
  read_jsonl(path, [&](size_t, const nlohmann::json& object) { values.push_back(object["a"]); });
  EXPECT_EQ(values, (std::vector<int>{1, 2}));
  try {
    read_jsonl(path, [](size_t line, const nlohmann::json&) {
      if (line == 2) fail(Code::Cancelled, "stop at {}", line);
    });
    FAIL() << "not passed on";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::Cancelled);
  }
  write_file_atomic(path, std::string_view("{}\n3\n"));
  try {
    read_jsonl(path, [](size_t, const nlohmann::json&) {});
    FAIL() << "accepted";
  } catch (const Error& e) {
    EXPECT_TRUE(std::string_view(e.what()).starts_with(path + ":2: ")) << e.what();
  }
  std::filesystem::remove(path);
  try {
    read_jsonl(path, [](size_t, const nlohmann::json&) {});
    FAIL() << "accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::Io);
  }
}

}  // namespace
}  // namespace tandem
