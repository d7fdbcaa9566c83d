// Split models: right ones equal the whole file, wrong ones are refused by the name of a shard.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "tests/support/split_gguf.h"
#include "tests/support/tiny_models.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

// Five tensors of different sizes, aligned to 64.
std::vector<std::byte> whole_file() {
  GgufWriter out;
  out.add_str("general.architecture", "t");
  out.add_u32("general.alignment", 64);
  out.add_u32("t.block_count", 7);
  static const std::vector<std::byte> numbers = [] {
    std::vector<std::byte> n(4096);
    for (size_t i = 0; i < n.size(); ++i) n[i] = static_cast<std::byte>(i * 7 % 251);
    return n;
  }();
  for (int64_t i = 0; i < 5; ++i) {
    const std::vector<int64_t> ne = {8, i + 1};
    out.add_tensor(
        fmt::format("tensor.{}", i), DType::F32, ne,
        std::span(numbers).subspan(static_cast<size_t>(i) * 100, static_cast<size_t>(32 * (i + 1))));
  }
  return out.to_bytes();
}

class GgufSplit : public testing::Test {
 protected:
  GgufSplit() : bytes_(whole_file()), whole_(GgufFile::parse(bytes_, "whole.gguf")) {}

  std::vector<ShardPlan> three() const { return plan_split(whole_, "m", {0, 3, 2}); }
  std::string write(const std::vector<ShardPlan>& shards) const {
    return write_split(whole_, dir_.path(), shards);
  }
  void expect_whole(const GgufFile& file) const {
    ASSERT_EQ(file.tensors().size(), whole_.tensors().size());
    for (size_t i = 0; i < file.tensors().size(); ++i) {
      const GgufTensor &got = file.tensors()[i], &want = whole_.tensors()[i];
      EXPECT_EQ(got.name, want.name);
      EXPECT_EQ(got.type, want.type);
      EXPECT_EQ(got.ne, want.ne);
      ASSERT_EQ(got.bytes, want.bytes);
      EXPECT_EQ(std::memcmp(got.data, want.data, static_cast<size_t>(want.bytes)), 0) << got.name;
      EXPECT_EQ(file.find(want.name), &got);
    }
    EXPECT_EQ(file.get_u32("t.block_count"), 7u);
  }
  // Opening `path`, and reading the same shards in memory unless it is about names, is refused.
  static void refused(const std::string& path, Code code, const std::vector<std::string>& parts) {
    try {
      GgufFile::open(path);
      ADD_FAILURE() << path << " was taken, wanted: " << parts.front();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), code) << e.what();
      for (const std::string& part : parts)
        EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what() << "\n  wanted: " << part;
    }
  }
  void refused(const std::vector<ShardPlan>& shards, Code code, const std::vector<std::string>& parts) const {
    refused(write(shards), code, parts);
    std::vector<std::vector<std::byte>> bytes;
    std::vector<GgufBytes> in_memory;
    for (const ShardPlan& s : shards) bytes.push_back(shard_bytes(whole_, s));
    for (size_t i = 0; i < shards.size(); ++i) in_memory.push_back({bytes[i], dir_.file(shards[i].name)});
    try {
      GgufFile::parse(in_memory);
      ADD_FAILURE() << "taken from memory, wanted: " << parts.front();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), code) << e.what();
      EXPECT_NE(std::string(e.what()).find(parts.front()), std::string::npos) << e.what();
    }
  }

  TempDir dir_;
  std::vector<std::byte> bytes_;
  GgufFile whole_;
};

TEST_F(GgufSplit, ShardsAreOneModel) {
  for (const std::vector<size_t>& sizes :
       std::vector<std::vector<size_t>>{{0, 3, 2}, {5, 0}, {1, 1, 1, 1, 1}}) {
    SCOPED_TRACE(sizes.size());
    const std::vector<ShardPlan> plan = plan_split(whole_, fmt::format("m{}", sizes.size()), sizes);
    const std::string path = write(plan);
    GgufFile opened = GgufFile::open(path);
    const GgufFile file = std::move(opened);
    expect_whole(file);
    file.check_size();
    EXPECT_EQ(file.path(), path);
    EXPECT_EQ(file.alignment(), 64u);
    ASSERT_EQ(file.shards().size(), sizes.size());
    uint64_t total = 0;
    for (size_t i = 0; i < sizes.size(); ++i) {
      const GgufShard& shard = file.shards()[i];
      EXPECT_EQ(shard.path, dir_.file(plan[i].name));
      EXPECT_EQ(shard.file_bytes, fs::file_size(shard.path));
      EXPECT_EQ(shard.n_tensors, sizes[i]);
      EXPECT_EQ(shard.n_entries, i == 0 ? 6u : 3u);
      EXPECT_EQ(shard.alignment, i == 0 ? 64u : 32u);  // each file's own header counts
      EXPECT_EQ(shard.version, 3u);
      total += shard.file_bytes;
    }
    EXPECT_EQ(file.file_bytes(), total);
    for (const GgufTensor& t : file.tensors()) {
      const std::vector<const GgufTensor*>& there = plan[t.shard].tensors;
      EXPECT_TRUE(std::any_of(there.begin(), there.end(), [&](const auto* p) { return p->name == t.name; }));
      EXPECT_EQ(file.path_of(t), dir_.file(plan[t.shard].name));
    }
  }
}

TEST_F(GgufSplit, InMemoryToo) {
  std::vector<std::vector<std::byte>> bytes;
  std::vector<GgufBytes> shards;
  for (const ShardPlan& s : three()) bytes.push_back(shard_bytes(whole_, s));
  for (const auto& b : bytes) shards.push_back({b, fmt::format("part {}", shards.size())});
  const GgufFile file = GgufFile::parse(shards);
  expect_whole(file);
  EXPECT_EQ(file.path_of(file.tensors()[4]), "part 2");
}

TEST_F(GgufSplit, CountOfOneIsNoSplit) {
  std::vector<ShardPlan> one = plan_split(whole_, "single", {5});
  one[0].name = "any name.gguf";
  expect_whole(GgufFile::open(write(one)));
  one[0].count = 0;
  expect_whole(GgufFile::open(write(one)));
  // A name alone makes no split model.
  one[0].no = one[0].count = std::nullopt;
  one[0].name = "m-00002-of-00007.gguf";
  expect_whole(GgufFile::open(write(one)));
}

TEST_F(GgufSplit, OthersThanTheFirstAreRefusedByItsName) {
  write(three());
  refused(dir_.file("m-00002-of-00003.gguf"), Code::Usage,
          {"m-00002-of-00003.gguf: this is shard 2 of 3",
           "give the first one, " + dir_.file("m-00001-of-00003")});
}

TEST_F(GgufSplit, NamesMustFitTheKeys) {
  std::vector<ShardPlan> shards = three();
  shards[0].name = "m.gguf";
  refused(write(shards), Code::BadData, {"m.gguf: shard 1 of 3", "-00001-of-00003.gguf"});
  for (const char* name : {"m-0001-of-0003.gguf", "m-00001-of-00003", "m-00001_of-00003.gguf",
                           "00001-of-00003.gguf", "m-0000x-of-00003.gguf", "m-00001-of-00003.bin"}) {
    shards[0].name = name;
    refused(write(shards), Code::BadData, {"must have a name that ends in -00001-of-00003.gguf"});
  }
  shards[0].name = "m-00001-of-00004.gguf";
  refused(write(shards), Code::BadData, {"by its name this is shard 1 of 4, by its keys 1 of 3"});
  shards[0].name = "n-00003-of-00003.gguf";
  refused(write(shards), Code::BadData, {"by its name this is shard 3 of 3, by its keys 1 of 3"});
}

TEST_F(GgufSplit, MissingShardsAreNamed) {
  const std::string path = write(three());
  fs::remove(dir_.file("m-00002-of-00003.gguf"));
  refused(path, Code::Io,
          {"m-00002-of-00003.gguf: cannot be opened", "shard 2 of 3", "m-00001-of-00003.gguf"});
  fs::create_directory(dir_.file("m-00002-of-00003.gguf"));
  refused(path, Code::Io, {"m-00002-of-00003.gguf: ", "not a regular file"});
}

TEST_F(GgufSplit, SurplusShardsAreRefused) {
  const std::string path = write(three());
  for (const char* name : {"m-00004-of-00003.gguf", "m-00000-of-00003.gguf"}) {
    fs::copy_file(path, dir_.file(name));
    refused(path, Code::BadData, {name, "remove the file"});
    fs::remove(dir_.file(name));
  }
  // Another split of the same name beside it is none of its business.
  fs::copy_file(path, dir_.file("m-00004-of-00004.gguf"));
  expect_whole(GgufFile::open(path));
}

TEST_F(GgufSplit, SetsInMemoryMustBeComplete) {
  const std::vector<ShardPlan> shards = three();
  std::vector<std::vector<std::byte>> bytes;
  std::vector<GgufBytes> in_memory;
  for (const ShardPlan& s : shards) bytes.push_back(shard_bytes(whole_, s));
  for (const auto& b : bytes) in_memory.push_back({b, "part"});
  const auto message = [](std::span<const GgufBytes> set) -> std::string {
    try {
      GgufFile::parse(set);
    } catch (const Error& e) {
      return e.what();
    }
    return "taken";
  };
  EXPECT_EQ(message(in_memory), "taken");
  EXPECT_EQ(message(std::span(in_memory).first(2)), "part: the model has 3 shards, 2 are given");
  in_memory.push_back(in_memory[2]);
  EXPECT_EQ(message(in_memory), "part: the model has 3 shards, 4 are given");
  EXPECT_EQ(message(std::span(in_memory).subspan(1)),
            "part: this is shard 2 of 3 of a split model; give the first one");
}

TEST_F(GgufSplit, KeysThatDisagreeAreRefused) {
  const auto with = [&](auto change) {
    std::vector<ShardPlan> shards = three();
    change(shards);
    return shards;
  };
  const std::string second = dir_.file("m-00002-of-00003.gguf");
  refused(with([](auto& s) { s[1].no = 2; }), Code::BadData, {second + ": split.no is 2, wanted 1"});
  refused(with([](auto& s) { s[1].count = 4; }), Code::BadData, {second + ": split.count is 4"});
  refused(with([](auto& s) { s[1].n_tensors = 4; }), Code::BadData, {second + ": split.tensors.count is 4"});
  refused(with([](auto& s) { s[1].n_tensors = -1; }), Code::BadData,
          {second + ": key 'split.tensors.count' is -1"});
  refused(with([](auto& s) { s[1].no = std::nullopt; }), Code::BadData,
          {second + ": key 'split.no' is missing"});
  refused(with([](auto& s) { s[1].count = std::nullopt; }), Code::BadData,
          {second + ": key 'split.count' is missing"});
  refused(with([](auto& s) { s[1].n_tensors = std::nullopt; }), Code::BadData,
          {second + ": key 'split.tensors.count' is missing"});
  refused(with([](auto& s) { s[0].n_tensors = std::nullopt; }), Code::BadData,
          {dir_.file("m-00001-of-00003.gguf") + ": key 'split.tensors.count' is missing"});
  refused(with([](auto& s) {
            for (auto& shard : s) shard.n_tensors = 6;
          }),
          Code::BadData, {"split.tensors.count is 6, but the 3 shards hold 5 tensors"});
  refused(with([](auto& s) {
            s[1].more = [](GgufWriter& out) { out.add_str("general.architecture", "other"); };
          }),
          Code::BadData, {second + ": key 'general.architecture' is 'other', in the first shard"});
  refused(with([](auto& s) { s[1].more = [](GgufWriter& out) { out.add_u32("general.alignment", 32); }; }),
          Code::BadData, {second + ": key 'general.alignment' is 32, in the first shard"});
  refused(with([](auto& s) { s[1].more = [](GgufWriter& out) { out.add_u32("t.head_count", 32); }; }),
          Code::BadData, {second + ": key 't.head_count' is not in the first shard"});
  // Repeating the model's keys changes nothing.
  expect_whole(GgufFile::open(write(with([](auto& s) { s[2].with_keys = true; }))));
}

TEST_F(GgufSplit, TensorsInTwoShardsAreRefused) {
  std::vector<ShardPlan> shards = three();
  shards[2].tensors[1] = shards[1].tensors[0];
  refused(shards, Code::BadData,
          {dir_.file("m-00003-of-00003.gguf") + ": tensor 'tensor.0' is in " +
           dir_.file("m-00002-of-00003.gguf")});
}

TEST_F(GgufSplit, BrokenShardsAreNamed) {
  const std::string path = write(three());
  const std::string last = dir_.file("m-00003-of-00003.gguf");
  const uint64_t whole = fs::file_size(last);
  for (const uint64_t n : {uint64_t{0}, uint64_t{30}, uint64_t{150}, whole - 33}) {
    fs::resize_file(last, n);
    refused(path, Code::BadData, {last + ": "});
  }
}

TEST_F(GgufSplit, AShardThatShrinksInUseIsNoticed) {
  const std::string path = write(three());
  const GgufFile file = GgufFile::open(path);
  file.check_size();
  for (const char* name : {"m-00003-of-00003.gguf", "m-00001-of-00003.gguf"}) {
    fs::resize_file(dir_.file(name), 16);
    try {
      file.check_size();
      ADD_FAILURE() << name;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::Io);
      EXPECT_NE(std::string(e.what()).find(name), std::string::npos) << e.what();
    }
  }
}

}  // namespace
}  // namespace tandem
