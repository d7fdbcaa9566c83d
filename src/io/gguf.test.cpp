#include "io/gguf.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "io/gguf_writer.h"

namespace tandem {
namespace {

// The example of gguf.md 8, as hexadecimal.
constexpr std::string_view kExampleHex =
    "474755460300000002000000000000000300000000000000140000000000000067656e6572616c2e6172636869746563"
    "747572650800000005000000000000006c6c616d6111000000000000006c6c616d612e626c6f636b5f636f756e740400"
    "0000010000000300000000000000782e66090000000600000002000000000000000000803f000000c008000000000000"
    "00612e776569676874020000000200000000000000030000000000000000000000000000000000000008000000000000"
    "00622e776569676874010000002000000000000000080000002000000000000000000000000000000000000000000000"
    "00000000000000000000000000000000000000000000803f0000004000004040000080400000a0400000000000000000"
    "0034f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff000102030405060708090a0b0c0d0e0f0000000000000000000000000000"
    "00000000000000000000000000000000";

std::vector<std::byte> example() {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::vector<std::byte> bytes;
  for (size_t i = 0; i + 1 < kExampleHex.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(digit(kExampleHex[i]) * 16 + digit(kExampleHex[i + 1])));
  }
  return bytes;
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

TEST(Gguf, ExampleIsReadExactly) {
  const std::vector<std::byte> bytes = example();
  ASSERT_EQ(bytes.size(), 352u);
  const GgufFile file = GgufFile::parse(bytes, "example");
  EXPECT_EQ(file.path(), "example");
  EXPECT_EQ(file.version(), 3u);
  EXPECT_EQ(file.alignment(), 32u);
  EXPECT_EQ(file.data_start(), 0x100u);

  ASSERT_EQ(file.entries().size(), 3u);
  EXPECT_EQ(file.entries()[0].key, "general.architecture");
  EXPECT_EQ(file.entries()[1].key, "llama.block_count");
  EXPECT_EQ(file.entries()[2].key, "x.f");
  EXPECT_EQ(type_text(file.entries()[0].value), "str");
  EXPECT_EQ(to_text(file.entries()[0].value), "'llama'");
  EXPECT_EQ(type_text(file.entries()[1].value), "u32");
  EXPECT_EQ(to_text(file.entries()[1].value), "1");
  EXPECT_EQ(type_text(file.entries()[2].value), "f32[2]");
  EXPECT_EQ(to_text(file.entries()[2].value), "[1, -2]");
  EXPECT_EQ(to_text(file.entries()[2].value, 1), "[1, ...]");
  EXPECT_EQ(file.get_str("general.architecture"), "llama");
  EXPECT_EQ(file.get_u32("llama.block_count"), 1u);
  EXPECT_EQ(file.get_f32s("x.f"), (std::vector<float>{1, -2}));

  ASSERT_EQ(file.tensors().size(), 2u);
  const GgufTensor* a = file.find("a.weight");
  ASSERT_EQ(a, &file.tensors()[0]);
  EXPECT_EQ(a->type, DType::F32);
  EXPECT_EQ(a->n_dims, 2u);
  EXPECT_EQ(a->ne, (std::array<int64_t, 4>{2, 3, 1, 1}));
  EXPECT_EQ(a->offset, 0u);
  EXPECT_EQ(a->bytes, 24);
  const float want[6] = {0, 1, 2, 3, 4, 5};
  EXPECT_EQ(std::memcmp(a->data, want, sizeof(want)), 0);
  const GgufTensor* b = file.find("b.weight");
  ASSERT_EQ(b, &file.tensors()[1]);
  EXPECT_EQ(b->type, DType::Q8_0);
  EXPECT_EQ(b->n_dims, 1u);
  EXPECT_EQ(b->ne, (std::array<int64_t, 4>{32, 1, 1, 1}));
  EXPECT_EQ(b->offset, 32u);
  EXPECT_EQ(b->bytes, 34);
  EXPECT_EQ(b->data, bytes.data() + 0x120);
  EXPECT_EQ(file.find("c.weight"), nullptr);
  EXPECT_EQ(file.find(""), nullptr);
}

TEST(Gguf, WriterMakesTheExampleByteForByte) {
  const std::vector<std::byte> want = example();
  GgufWriter writer;
  writer.add_str("general.architecture", "llama");
  writer.add_u32("llama.block_count", 1);
  writer.add_f32s("x.f", std::vector<float>{1, -2});
  const std::vector<float> a = {0, 1, 2, 3, 4, 5};
  writer.add_tensor("a.weight", DType::F32, std::vector<int64_t>{2, 3, 1}, std::as_bytes(std::span(a)));
  writer.add_tensor("b.weight", DType::Q8_0, std::vector<int64_t>{32}, [&](const ByteSink& sink) {
    sink(std::span(want).subspan(0x120, 2));
    sink(std::span(want).subspan(0x122, 32));
  });
  EXPECT_EQ(writer.to_bytes(), want);
}

TEST(Gguf, WriteOpenAndCopyGiveTheSameBytes) {
  const std::string path =
      (std::filesystem::temp_directory_path() / fmt::format("tandem-gguf-{}.gguf", ::getpid())).string();
  GgufWriter writer;
  writer.add_str("general.architecture", "t");
  writer.add_u32("general.alignment", 64);
  writer.add_u16("u16", 65535);
  writer.add_i32("i32", -5);
  writer.add_u64("u64", std::numeric_limits<uint64_t>::max());
  writer.add_i64("i64", std::numeric_limits<int64_t>::min());
  writer.add_f32("f32", 0.5f);
  writer.add_bool("yes", true);
  writer.add_bool("no", false);
  writer.add_u32s("u32s", std::vector<uint32_t>{7, 4294967295u});
  writer.add_i32s("i32s", std::vector<int32_t>{-1, 2});
  writer.add_bools("bools", {true, false, true});
  writer.add_strings("strings", std::vector<std::string>{"", "two\nlines", "\xff", std::string("\0", 1)});
  writer.add_f32s("empty", {});
  const std::string x(100, 'x');
  writer.add_tensor("x", DType::I8, std::vector<int64_t>{100}, bytes_of(x));
  writer.add_tensor("y", DType::Q4_K, std::vector<int64_t>{256, 1, 2, 1},
                    [](const ByteSink& sink) { sink(std::vector<std::byte>(288)); });
  writer.write(path);

  GgufFile opened = GgufFile::open(path);
  const GgufFile file = std::move(opened);
  EXPECT_EQ(text_of(writer.to_bytes()), read_file(path, size_t{1} << 20));
  EXPECT_EQ(file.path(), path);
  EXPECT_EQ(file.alignment(), 64u);
  EXPECT_EQ(file.data_start() % 64, 0u);
  EXPECT_EQ(file.file_bytes() % 64, 0u);  // padded after the last tensor too
  EXPECT_EQ(file.get_u32("u16"), 65535u);
  EXPECT_EQ(file.get_i64("i32"), -5);
  EXPECT_EQ(file.get_u64("u64"), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(file.get_i64("i64"), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(file.get_f32("f32"), 0.5f);
  EXPECT_TRUE(file.get_bool("yes"));
  EXPECT_FALSE(file.get_bool("no"));
  EXPECT_EQ(file.get_u64s("u32s"), (std::vector<uint64_t>{7, 4294967295u}));
  EXPECT_EQ(file.get_i32s("i32s"), (std::vector<int32_t>{-1, 2}));
  EXPECT_EQ(file.get_bools("bools"), (std::vector<bool>{true, false, true}));
  EXPECT_EQ(file.get_strings("strings"),
            (std::vector<std::string_view>{"", "two\nlines", "\xff", std::string_view("\0", 1)}));
  EXPECT_EQ(to_text(*file.value("strings")), R"(['', 'two\nlines', '\xff', '\x00'])");
  EXPECT_TRUE(file.get_f32s("empty").empty());
  EXPECT_EQ(to_text(*file.value("bools")), "[true, false, true]");
  EXPECT_EQ(text_of({file.find("x")->data, 100}), x);
  EXPECT_EQ(file.find("y")->n_dims, 3u);
  EXPECT_EQ(file.find("y")->offset, 128u);
  EXPECT_EQ(file.find("y")->bytes, 288);

  GgufWriter copy;
  for (const GgufEntry& entry : file.entries()) copy.add_value(entry.key, entry.value);
  for (const GgufTensor& t : file.tensors()) {
    copy.add_tensor(t.name, t.type, t.ne, std::span(t.data, static_cast<size_t>(t.bytes)));
  }
  EXPECT_EQ(copy.to_bytes(), writer.to_bytes());
  std::filesystem::remove(path);
}

template <class F>
void expect_error(Code code, std::string_view part, F&& f) {
  try {
    f();
    ADD_FAILURE() << "nothing was thrown, wanted: " << part;
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    EXPECT_NE(std::string_view(e.what()).find(part), std::string_view::npos)
        << e.what() << "\n  wanted: " << part;
  }
}

TEST(Gguf, WriterRefusesWhatNoReaderTakes) {
  GgufWriter writer;
  writer.add_u32("k", 1);
  expect_error(Code::BadData, "key 'k' is written twice", [&] { writer.add_f32("k", 1); });
  expect_error(Code::BadData, "0 bytes", [&] { writer.add_f32("", 1); });
  expect_error(Code::BadData, "not printable ASCII", [&] { writer.add_f32("a\xc3\xa9", 1); });
  const std::vector<int64_t> ne = {4};
  const std::vector<std::byte> data(16);
  writer.add_tensor("t", DType::F32, ne, data);
  expect_error(Code::BadData, "'t' is written twice", [&] { writer.add_tensor("t", DType::F32, ne, data); });
  expect_error(Code::BadData, "64 bytes",
               [&] { writer.add_tensor(std::string(64, 'n'), DType::F32, ne, data); });
  expect_error(Code::Internal, "check failed",
               [&] { writer.add_tensor("u", DType::F32, ne, std::span(data).first(15)); });
  GgufWriter lying;
  lying.add_tensor("t", DType::F32, ne, [&](const ByteSink& sink) { sink(std::span(data).first(15)); });
  expect_error(Code::Internal, "check failed", [&] { lying.to_bytes(); });
}

TEST(Gguf, GettersNameFileKeyAndTypes) {
  GgufWriter writer;
  writer.add_i32("minus", -1);
  writer.add_u64("big", uint64_t{1} << 63);
  writer.add_f32("f", 1.5f);
  writer.add_str("s", "text");
  writer.add_i32s("is", std::vector<int32_t>{3, -3});
  writer.add_u32s("us", std::vector<uint32_t>{5, 3000000000u});
  writer.add_f32s("fs", std::vector<float>{1});
  const std::vector<std::byte> bytes = writer.to_bytes();
  const GgufFile file = GgufFile::parse(bytes, "m.gguf");

  const auto refuse = [](std::string_view part, auto&& f) { expect_error(Code::BadData, part, f); };
  refuse("m.gguf: key 'none' is missing", [&] { file.get_u32("none"); });
  refuse("m.gguf: key 'minus' is -1, wanted 0 or more", [&] { file.get_u32("minus"); });
  refuse("m.gguf: key 'big' is 9223372036854775808, wanted at most 2^32-1", [&] { file.get_u32("big"); });
  refuse("key 'big' is 9223372036854775808, wanted at most 2^63-1", [&] { file.get_i64("big"); });
  refuse("key 's' is str, wanted an integer", [&] { file.get_u64("s"); });
  refuse("key 'f' is f32, wanted an integer", [&] { file.get_i64("f"); });
  refuse("key 'big' is u64, wanted f32", [&] { file.get_f32("big"); });
  refuse("key 'f' is f32, wanted bool", [&] { file.get_bool("f"); });
  refuse("key 'is' is i32[2], wanted str", [&] { file.get_str("is"); });
  refuse("key 's' is str, wanted an array of str", [&] { file.get_strings("s"); });
  refuse("key 'is' is i32[2], wanted an array of str", [&] { file.get_strings("is"); });
  refuse("key 'is' is i32[2], wanted an array of f32", [&] { file.get_f32s("is"); });
  refuse("key 'fs' is f32[1], wanted an array of integers", [&] { file.get_i32s("fs"); });
  refuse("key 'fs' is f32[1], wanted an array of integers", [&] { file.get_u64s("fs"); });
  refuse("key 'fs' is f32[1], wanted an array of bool", [&] { file.get_bools("fs"); });
  refuse("element 1 of key 'is' is -3, wanted 0 or more", [&] { file.get_u64s("is"); });
  refuse("element 1 of key 'us' is 3000000000, wanted an i32", [&] { file.get_i32s("us"); });
  refuse("key 'us' has 2 values, wanted one for each of 3 layers", [&] { file.get_u64_per_layer("us", 3); });
  refuse("key 's' is str, wanted an integer", [&] { file.get_u32_or("s", 1); });

  EXPECT_EQ(file.get_u64_per_layer("us", 2), (std::vector<uint64_t>{5, 3000000000u}));
  EXPECT_EQ(file.get_u64_per_layer("big", 2), (std::vector<uint64_t>{uint64_t{1} << 63, uint64_t{1} << 63}));
  EXPECT_EQ(file.get_u32_or("none", 7), 7u);
  EXPECT_EQ(file.get_u64_or("big", 7), uint64_t{1} << 63);
  EXPECT_EQ(file.get_i64_or("minus", 7), -1);
  EXPECT_EQ(file.get_f32_or("none", 7), 7.0f);
  EXPECT_EQ(file.get_f32_or("f", 7), 1.5f);
  EXPECT_TRUE(file.get_bool_or("none", true));
  EXPECT_EQ(file.get_str_or("none", "d"), "d");
  EXPECT_EQ(file.get_str_or("s", "d"), "text");
}

// Builds files without asking whether they are right.
class Raw {
 public:
  template <class T>
  Raw& n(T value) {
    const auto bytes = std::as_bytes(std::span(&value, 1));
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  Raw& u32(uint32_t value) { return n(value); }
  Raw& u64(uint64_t value) { return n(value); }
  Raw& raw(std::string_view text) {
    const auto bytes = bytes_of(text);
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  Raw& str(std::string_view text) { return u64(text.size()).raw(text); }
  Raw& header(uint64_t n_tensors, uint64_t n_entries) {
    return raw("GGUF").u32(3).u64(n_tensors).u64(n_entries);
  }
  Raw& key(std::string_view name, uint32_t value) { return str(name).u32(4).u32(value); }
  Raw& tensor(std::string_view name, std::vector<uint64_t> dims, uint32_t type, uint64_t offset) {
    str(name).u32(static_cast<uint32_t>(dims.size()));
    for (const uint64_t d : dims) u64(d);
    return u32(type).u64(offset);
  }
  // Padding to `alignment`, then data.
  Raw& data(size_t n_bytes, size_t alignment = 32) {
    bytes_.resize((bytes_.size() + alignment - 1) / alignment * alignment + n_bytes);
    return *this;
  }
  GgufFile parse() const { return GgufFile::parse(bytes_, "bad.gguf"); }
  void refused(std::string_view part, Code code = Code::BadData) const {
    expect_error(code, part, [this] { parse(); });
    expect_error(code, "bad.gguf: ", [this] { parse(); });
  }

 private:
  std::vector<std::byte> bytes_;
};

constexpr uint64_t k2to63 = uint64_t{1} << 63;

// The rows are those of gguf.md 7.
TEST(GgufRefuses, Row1Header) {
  Raw().raw("").refused("0 bytes, fewer than a GGUF header's 24");
  Raw().raw("GGUF\3").refused("5 bytes");
  Raw().raw("GGML").u32(3).u64(0).u64(0).refused("starts with 'GGML'");
  for (const uint32_t version : {0u, 1u, 4u, 99u}) {
    Raw().raw("GGUF").u32(version).u64(0).u64(0).refused(
        fmt::format("GGUF version {}, wanted 2 or 3", version));
  }
  Raw().raw("GGUF").u32(0x03000000).u64(0).u64(0).refused("big-endian", Code::Unsupported);
  EXPECT_EQ(Raw().raw("GGUF").u32(2).u64(0).u64(0).parse().version(), 2u);
}

TEST(GgufRefuses, Row2Counts) {
  Raw().header(1, 0).raw("23 bytes of tensor info").refused("1 tensors announced, but only 23 bytes follow");
  Raw().header(k2to63, 0).data(64).refused("9223372036854775808 tensors announced");
  Raw().header(0, 1).raw("123456789012").refused("1 keys announced, but only 12 bytes follow");
  Raw().header(0, ~uint64_t{0}).data(64).refused("18446744073709551615 keys announced");
}

TEST(GgufRefuses, Row3StringLengths) {
  Raw().header(0, 1).str("k").u32(8).u64(100).raw("short").refused(
      "key 'k': the file ends too early: 100 bytes wanted");
  Raw()
      .header(0, 1)
      .str("k")
      .u32(8)
      .u64((uint64_t{1} << 30) + 1)
      .raw("short")
      .refused("1073741825 bytes, more than");
  Raw()
      .header(0, 1)
      .str("k")
      .u32(8)
      .u64(~uint64_t{0})
      .raw("short")
      .refused("18446744073709551615 bytes, more than");
  Raw().header(0, 1).u64(~uint64_t{0}).raw("a key").refused("the key has 18446744073709551615 bytes");
  Raw().header(0, 1).str("k").u32(9).u32(8).u64(1).u64(2).raw("x").refused("the file ends too early");
}

TEST(GgufRefuses, Row4ArrayCounts) {
  Raw().header(0, 1).str("k").u32(9).u32(4).u64(3).u64(0).refused("an array of 3 elements, but only 8 bytes");
  Raw().header(0, 1).str("k").u32(9).u32(8).u64(2).u64(0).refused("an array of 2 elements");
  Raw()
      .header(0, 1)
      .str("k")
      .u32(9)
      .u32(4)
      .u64(uint64_t{1} << 62)
      .u64(0)
      .refused("an array of 4611686018427387904");
  EXPECT_EQ(type_text(*Raw().header(0, 1).str("k").u32(9).u32(0).u64(0).parse().value("k")), "u8[0]");
}

TEST(GgufRefuses, Row5ValueTypes) {
  Raw().header(0, 1).str("k").u32(13).u64(0).refused("key 'k': value type 13 is not one of 0 to 12");
  Raw().header(0, 1).str("k").u32(9).u32(13).u64(0).refused("element type 13");
  Raw().header(0, 1).str("k").u32(9).u32(9).u64(0).refused("an array of arrays");
  Raw().header(0, 1).str("k").u32(7).raw("\2").refused("a bool has the value 2");
  Raw().header(0, 1).str("k").u32(9).u32(7).u64(2).raw("\1\xff").refused("a bool has the value 255");
}

TEST(GgufRefuses, Row6And7Keys) {
  Raw().header(0, 1).key("", 1).refused("key 0: the key is empty");
  Raw().header(0, 3).key("a.b", 1).key("a.c", 1).key("a.b", 1).refused("key 'a.b' appears twice");
  Raw().header(0, 1).key(std::string(65536, 'k'), 1).refused("the key has 65536 bytes, more than the 65535");
  EXPECT_TRUE(Raw().header(0, 1).key(std::string(65535, 'k'), 1).parse().has(std::string(65535, 'k')));
  Raw().header(0, 1).key("caf\xc3\xa9", 1).refused("not printable ASCII");
  Raw().header(0, 1).key(std::string_view("a\0b", 3), 1).refused("key 'a\\x00b': the key has a character");
}

TEST(GgufRefuses, Row8Alignment) {
  for (const uint32_t alignment : {0u, 1u, 4u, 24u, 1u << 21, 0xffffffffu}) {
    Raw()
        .header(0, 1)
        .key("general.alignment", alignment)
        .refused(fmt::format("is {}, wanted a power of two", alignment));
  }
  Raw()
      .header(0, 1)
      .str("general.alignment")
      .u32(10)
      .u64(32)
      .refused("'general.alignment': is u64, wanted u32");
  Raw().header(0, 1).str("general.alignment").u32(9).u32(4).u64(1).u32(32).refused("is u32[1], wanted u32");
  EXPECT_EQ(
      Raw().header(1, 1).key("general.alignment", 8).tensor("t", {2}, 0, 0).data(8, 8).parse().alignment(),
      8u);
}

TEST(GgufRefuses, Row9TensorNames) {
  Raw()
      .header(1, 0)
      .tensor(std::string(64, 'n'), {1}, 0, 0)
      .data(4)
      .refused("the name has 64 bytes, more than the 63");
  EXPECT_EQ(Raw().header(1, 0).tensor(std::string(63, 'n'), {1}, 0, 0).data(4).parse().tensors().size(), 1u);
  Raw()
      .header(1, 0)
      .tensor(std::string_view("n\0m", 3), {1}, 0, 0)
      .data(4)
      .refused("tensor 'n\\x00m': the name has a NUL");
  Raw().header(1, 0).tensor("", {1}, 0, 0).data(4).refused("tensor 0: the name is empty");
  Raw()
      .header(2, 0)
      .tensor("n", {1}, 0, 0)
      .tensor("n", {1}, 0, 32)
      .data(64)
      .refused("tensor 'n' appears twice");
}

TEST(GgufRefuses, Row10To13Dimensions) {
  Raw().header(1, 0).tensor("n", {1, 1, 1, 1, 1}, 0, 0).data(4).refused("tensor 'n': has 5 dimensions");
  Raw().header(1, 0).tensor("n", {4, k2to63}, 0, 0).data(4).refused("dimension 1 is 9223372036854775808");
  Raw()
      .header(1, 0)
      .tensor("n", {uint64_t{1} << 40, uint64_t{1} << 40}, 0, 0)
      .data(4)
      .refused("elements overflows");
  Raw()
      .header(1, 0)
      .tensor("n", {uint64_t{1} << 32, uint64_t{1} << 31}, 0, 0)
      .data(4)
      .refused("elements overflows");
  Raw().header(1, 0).tensor("n", {4, 0}, 0, 0).data(4).refused("has no elements");
  Raw()
      .header(1, 0)
      .tensor("n", {4, 0, uint64_t{1} << 40, uint64_t{1} << 40}, 0, 0)
      .data(4)
      .refused("has no elements");
  const GgufFile scalar = Raw().header(1, 0).tensor("n", {}, 0, 0).data(4).parse();
  EXPECT_EQ(scalar.tensors()[0].bytes, 4);
  EXPECT_EQ(scalar.tensors()[0].n_dims, 0u);
}

TEST(GgufRefuses, Row14TensorTypes) {
  for (const uint32_t id : {4u, 5u, 31u, 32u, 33u, 36u, 37u, 38u, 43u, 97u, 133u, 202u, 0xffffffffu}) {
    Raw()
        .header(1, 0)
        .tensor("n", {256}, id, 0)
        .data(2048)
        .refused(fmt::format("unsupported tensor type {}", id));
  }
  // Known without a codec: no reason to refuse the container.
  const GgufFile file = Raw().header(1, 0).tensor("n", {256}, 41, 0).data(36).parse();
  EXPECT_EQ(file.tensors()[0].type, DType::Q1_0);
  EXPECT_EQ(file.tensors()[0].bytes, 36);
}

TEST(GgufRefuses, Row15And16Sizes) {
  Raw()
      .header(1, 0)
      .tensor("n", {128}, 12, 0)
      .data(2048)
      .refused("rows of 128 elements are no multiple of the 256");
  Raw().header(1, 0).tensor("n", {uint64_t{1} << 62}, 0, 0).data(4).refused("bytes overflows");
  Raw().header(1, 0).tensor("n", {uint64_t{1} << 61}, 0, 0).data(4).refused("bytes overflows");
}

TEST(GgufRefuses, Row17To19Offsets) {
  Raw()
      .header(1, 0)
      .tensor("n", {1}, 0, 16)
      .data(64)
      .refused("tensor 'n': offset 16 is no multiple of the alignment 32");
  Raw().header(1, 0).tensor("n", {1}, 0, 0).refused("before the tensor data");
  Raw()
      .header(1, 0)
      .tensor("n", {8}, 0, 0)
      .data(31)
      .refused("its 32 bytes at offset 0 go beyond the 31 bytes of data");
  Raw().header(1, 0).tensor("n", {8}, 0, 64).data(64).refused("its 32 bytes at offset 64 go beyond");
  Raw().header(1, 0).tensor("n", {8}, 0, ~uint64_t{31}).data(64).refused("go beyond the 64 bytes");
  Raw().header(1, 0).tensor("n", {uint64_t{1} << 60}, 0, 32).data(64).refused("go beyond the 64 bytes");
  Raw()
      .header(2, 0)
      .tensor("a", {16}, 0, 0)
      .tensor("b", {8}, 0, 32)
      .data(96)
      .refused("before the end of the previous");
  Raw()
      .header(2, 0)
      .tensor("a", {8}, 0, 32)
      .tensor("b", {8}, 0, 0)
      .data(96)
      .refused("before the end of the previous");
  Raw()
      .header(2, 0)
      .tensor("a", {8}, 0, 0)
      .tensor("b", {8}, 0, 0)
      .data(96)
      .refused("before the end of the previous");
  // A gap, bytes after the end, and a missing pad after the last tensor are tolerated.
  EXPECT_EQ(
      Raw().header(2, 0).tensor("a", {8}, 0, 32).tensor("b", {1}, 0, 128).data(132).parse().tensors().size(),
      2u);
  EXPECT_EQ(Raw().header(1, 0).tensor("a", {8}, 0, 0).data(500).parse().tensors().size(), 1u);
}

TEST(GgufRefuses, Row20EveryTruncation) {
  const std::vector<std::byte> whole = example();
  constexpr size_t kEndOfLastTensor = 0x120 + 34;
  for (size_t n = 0; n < whole.size(); ++n) {
    const std::vector<std::byte> part(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(n));
    if (n >= kEndOfLastTensor) {
      EXPECT_EQ(GgufFile::parse(part, "part").tensors().size(), 2u) << n;
    } else {
      expect_error(Code::BadData, "part: ", [&] { GgufFile::parse(part, "part"); });
    }
  }
}

TEST(GgufRefuses, FilesThatAreNotThere) {
  expect_error(Code::Io, "/nowhere/x.gguf: cannot be opened: No such file",
               [] { GgufFile::open("/nowhere/x.gguf"); });
}

// Reads everything a file offers.
void read_all(const GgufFile& file) {
  size_t n = 0;
  for (const GgufEntry& entry : file.entries()) {
    n += to_text(entry.value).size() + type_text(entry.value).size();
    ASSERT_EQ(file.value(entry.key), &entry.value);
  }
  for (const GgufTensor& t : file.tensors()) {
    for (int64_t i = 0; i < t.bytes; ++i) n += static_cast<size_t>(t.data[i]);
    ASSERT_EQ(file.find(t.name), &t);
  }
  EXPECT_GT(n, 0u);
}

TEST(Gguf, EveryFlippedByteIsReadOrRefused) {
  const std::vector<std::byte> whole = example();
  size_t n_read = 0;
  size_t n_refused = 0;
  for (size_t i = 0; i < whole.size(); ++i) {
    for (unsigned flip = 1; flip < 256; ++flip) {
      std::vector<std::byte> bytes = whole;
      bytes[i] ^= static_cast<std::byte>(flip);
      try {
        read_all(GgufFile::parse(bytes, "flipped"));
        ++n_read;
      } catch (const Error& e) {
        ++n_refused;
        EXPECT_TRUE(e.code() == Code::BadData || e.code() == Code::Unsupported) << e.what();
      }
    }
  }
  EXPECT_GT(n_read, whole.size());
  EXPECT_GT(n_refused, whole.size());
}

TEST(Gguf, LargeVocabularyLoadsFast) {
  std::vector<std::string> tokens(150000);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = fmt::format("token {}", i);
  GgufWriter writer;
  writer.add_strings("tokenizer.ggml.tokens", tokens);
  const std::vector<std::byte> bytes = writer.to_bytes();
  const std::clock_t start = std::clock();
  const GgufFile file = GgufFile::parse(bytes, "vocabulary");
  const auto read = file.get_strings("tokenizer.ggml.tokens");
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  EXPECT_TRUE(std::equal(read.begin(), read.end(), tokens.begin(), tokens.end()));
  EXPECT_LT(seconds, 5.0);  // a few ms of processor time; the bound only catches something quadratic
  EXPECT_EQ(to_text(*file.value("tokenizer.ggml.tokens"), 2), "['token 0', 'token 1', ...]");
}

}  // namespace
}  // namespace tandem
