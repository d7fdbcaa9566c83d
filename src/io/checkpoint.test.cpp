#include "io/checkpoint.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <string_view>

#include "base/error.h"
#include "io/content_hash.h"
#include "tests/support/tiny_models.h"

namespace tandem {
namespace {

// Of a literal, or of what outlives the use.
std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class CheckpointContainer : public testing::Test {
 protected:
  void refused(const std::string& contents, Code code, const std::string& part) const {
    std::ofstream(path_, std::ios::binary)
        .write(contents.data(), static_cast<std::streamsize>(contents.size()));
    try {
      CheckpointFile::open(path_);
      ADD_FAILURE() << "accepted, wanted: " << part;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), code) << e.what();
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what() << "\n  wanted: " << part;
    }
  }
  // A file with this head after its length field and a hash that is right, so that only the head is wrong.
  static std::string sealed(uint32_t version, uint32_t n_sections, const std::string& rest) {
    std::string file = "TANDEMCK";
    file.append(reinterpret_cast<const char*>(&version), 4);
    file.append(reinterpret_cast<const char*>(&n_sections), 4);
    const uint64_t n_bytes = file.size() + 8 + rest.size() + ContentHash::kBytes;
    file.append(reinterpret_cast<const char*>(&n_bytes), 8);
    file += rest;
    ContentHash hash;
    hash.add(bytes_of(file));
    return file + text_of(hash.digest());
  }
  static std::string entry(const std::string& name, uint64_t n_bytes) {
    const auto n_name = static_cast<uint32_t>(name.size());
    std::string text(reinterpret_cast<const char*>(&n_name), 4);
    text += name;
    text.append(reinterpret_cast<const char*>(&n_bytes), 8);
    return text;
  }

  // Entries, zeros as far as contents begin, contents.
  static std::string body(std::string entries, const std::string& contents) {
    entries.resize((24 + entries.size() + 63) / 64 * 64 - 24);
    return entries + contents;
  }

  TempDir dir_;
  std::string path_ = dir_.file("c");
};

TEST_F(CheckpointContainer, SectionsComeBack) {
  const std::string large(700000, 'x');
  const std::vector<CheckpointSection> sections = {
      {"state", bytes_of("{}")}, {"nothing", {}}, {"values", bytes_of(large)}};
  write_checkpoint_file(path_, sections);
  const CheckpointFile file = CheckpointFile::open(path_);
  ASSERT_EQ(file.sections().size(), 3u);
  EXPECT_EQ(text_of(file.section("state")), "{}");
  EXPECT_TRUE(file.section("nothing").empty());
  EXPECT_EQ(text_of(file.section("values")), large);
  for (const CheckpointSection& s : file.sections())
    EXPECT_EQ(reinterpret_cast<uintptr_t>(s.bytes.data()) % 64, 0u) << s.name;
  EXPECT_EQ(MappedFile::open(path_).bytes().size(), checkpoint_file_bytes(sections));
  EXPECT_THROW(file.section("moments"), Error);
}

TEST_F(CheckpointContainer, EveryFlippedBitAndEveryCutIsNoticed) {
  const std::vector<CheckpointSection> sections = {{"a", bytes_of("first")}, {"b", bytes_of("second one")}};
  write_checkpoint_file(path_, sections);
  const std::string good = read_file(path_, 1000);
  for (size_t i = 0; i < good.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << bit));
      refused(bad, Code::BadData, "damaged");
    }
  }
  for (size_t n = 0; n < good.size(); ++n) refused(good.substr(0, n), Code::BadData, "damaged");
  refused(good + "x", Code::BadData, "bytes and has");
  refused(std::string(4096, '\0'), Code::BadData, "no checkpoint");
}

TEST_F(CheckpointContainer, AFileThatIsSealedIsNotBelievedEither) {
  write_file_atomic(path_, sealed(1, 1, body(entry("a", 3), "xyz")));
  EXPECT_EQ(text_of(CheckpointFile::open(path_).section("a")), "xyz");

  refused(sealed(2, 1, body(entry("a", 3), "xyz")), Code::Unsupported, "layout 2");
  refused(sealed(1, 1, body(entry("a", 4), "xyz")), Code::BadData, "a needs 4 bytes, 3 are left");
  refused(sealed(1, 1, body(entry("a", 19), "xyz")), Code::BadData,
          "a needs 19 bytes");  // as far as into the hash
  refused(sealed(1, 1, body(entry("a", UINT64_MAX), "xyz")), Code::BadData, "bytes, 3 are left");
  refused(sealed(1, 2, body(entry("a", UINT64_MAX) + entry("b", 4), "xyz")), Code::BadData,
          "bytes, 3 are left");
  refused(sealed(1, 1, body(entry("a", 2), "xyz")), Code::BadData, "1 bytes belong to no section");
  refused(sealed(1, 2, body(entry("a", 1) + entry("a", 2), "xyz")), Code::BadData, "there twice");
  refused(sealed(1, 1, body(entry("", 3), "xyz")), Code::BadData, "called ''");
  refused(sealed(1, 1, body(entry("A\n", 3), "xyz")), Code::BadData, "called 'A\\n'");
  refused(sealed(1, 1, body(entry(std::string(65, 'a'), 3), "xyz")), Code::BadData, "a section is called");
  refused(sealed(1, 1, entry("a", 3) + "\x01" + body(entry("a", 3), "xyz").substr(entry("a", 3).size() + 1)),
          Code::BadData, "something between the sections");
  refused(sealed(1, 65, ""), Code::BadData, "65 sections");
  refused(sealed(1, 1, ""), Code::BadData, "a name's length needs 4 bytes, 0 are left");
  refused(sealed(1, 1, std::string(4, '\xff')), Code::BadData, "a name needs 4294967295 bytes");
}

TEST_F(CheckpointContainer, PlacesThatHoldNoFileAreRefused) {
  for (const std::string& path : {dir_.file("none"), dir_.path()}) {
    try {
      CheckpointFile::open(path);
      ADD_FAILURE() << path;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::Io) << e.what();
    }
  }
}

}  // namespace
}  // namespace tandem
