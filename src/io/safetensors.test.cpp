#include "io/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/half.h"

namespace tandem {
namespace {

// The 72 bytes of lora-adapter.md 3.3.
constexpr unsigned char kExample[] = {0x38, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x7b, 0x22, 0x78, 0x22,
                                      0x3a, 0x7b, 0x22, 0x64, 0x74, 0x79, 0x70, 0x65, 0x22, 0x3a, 0x22, 0x46,
                                      0x33, 0x32, 0x22, 0x2c, 0x22, 0x73, 0x68, 0x61, 0x70, 0x65, 0x22, 0x3a,
                                      0x5b, 0x31, 0x2c, 0x32, 0x5d, 0x2c, 0x22, 0x64, 0x61, 0x74, 0x61, 0x5f,
                                      0x6f, 0x66, 0x66, 0x73, 0x65, 0x74, 0x73, 0x22, 0x3a, 0x5b, 0x30, 0x2c,
                                      0x38, 0x5d, 0x7d, 0x7d, 0x00, 0x00, 0x80, 0x3f, 0x00, 0x00, 0x00, 0xc0};

std::string with_length(uint64_t length, const std::string& rest) {
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + rest;
}

// A file of this header and so many bytes of data.
std::string file_of(const std::string& header, size_t n_data) {
  return with_length(header.size(), header + std::string(n_data, '\1'));
}

SafetensorsFile parse(const std::string& file) {
  return SafetensorsFile::parse(std::as_bytes(std::span(file.data(), file.size())), "t.safetensors");
}

void refused(const std::string& file, const std::string& part, Code code = Code::BadData) {
  try {
    parse(file);
    ADD_FAILURE() << "taken, but wanted: " << part;
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    EXPECT_TRUE(std::string(e.what()).starts_with("t.safetensors")) << e.what();
  }
}

TEST(Safetensors, TheExample) {
  const SafetensorsFile file = SafetensorsFile::parse(std::as_bytes(std::span(kExample)), "x");
  ASSERT_EQ(file.tensors().size(), 1u);
  const SafeTensor* t = file.find("x");
  ASSERT_TRUE(t);
  EXPECT_EQ(t->type, SafeType::F32);
  EXPECT_EQ(t->shape, (std::vector<int64_t>{1, 2}));
  float values[2];
  SafetensorsFile::read_f32(*t, values);
  EXPECT_EQ(values[0], 1.f);
  EXPECT_EQ(values[1], -2.f);
  EXPECT_EQ(file.find("y"), nullptr);
}

TEST(Safetensors, WhatIsWrittenIsReadBack) {
  const std::vector<float> f32{1.5f, -2.f, 3.f, 4.f, 5.f, 6.f};
  const std::vector<uint16_t> f16{f32_to_f16(0.5f), f32_to_f16(-7.f)}, bf16{f32_to_bf16(3.f)};
  SafetensorsWriter writer;
  writer.add_metadata("format", "pt");
  writer.add_tensor("b", SafeType::F32, {2, 3}, std::as_bytes(std::span(f32)));
  writer.add_tensor("a", SafeType::F16, {2}, std::as_bytes(std::span(f16)));
  writer.add_tensor("none", SafeType::F32, {0, 5}, {});
  writer.add_tensor("scalar", SafeType::BF16, {}, std::as_bytes(std::span(bf16)));
  EXPECT_THROW(writer.add_tensor("a", SafeType::F32, {0}, {}), Error);
  const std::vector<std::byte> bytes = writer.to_bytes();
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  EXPECT_EQ(header % 8, 0u);
  const SafetensorsFile file = SafetensorsFile::parse(bytes, "w");
  ASSERT_EQ(file.tensors().size(), 4u);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(file.find("b")->shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(file.find("b")->offset, 0u);
  EXPECT_EQ(file.find("none")->elements(), 0);
  EXPECT_TRUE(file.find("scalar")->shape.empty());
  std::vector<float> values(6);
  SafetensorsFile::read_f32(*file.find("b"), values.data());
  EXPECT_EQ(values, f32);
  SafetensorsFile::read_f32(*file.find("a"), values.data());
  EXPECT_EQ(values[1], -7.f);
  SafetensorsFile::read_f32(*file.find("scalar"), values.data());
  EXPECT_EQ(values[0], 3.f);
}

// The experts of a large model have more tensors than other JSON objects may have keys.
TEST(Safetensors, ManyTensors) {
  const std::vector<float> values(3000, 2.f);
  SafetensorsWriter writer;
  for (size_t i = 0; i < values.size(); ++i)
    writer.add_tensor(std::to_string(i), SafeType::F32, {1}, std::as_bytes(std::span(values).subspan(i, 1)));
  const std::vector<std::byte> bytes = writer.to_bytes();
  EXPECT_EQ(SafetensorsFile::parse(bytes, "w").tensors().size(), values.size());
}

TEST(Safetensors, EmptyAndPaddedFilesAreLegal) {
  EXPECT_TRUE(parse(file_of("{}", 0)).tensors().empty());
  EXPECT_TRUE(parse(file_of("{}      ", 0)).tensors().empty());
  EXPECT_EQ(parse(file_of(R"({"__metadata__":{"a":"b"}})", 0)).metadata().size(), 1u);
}

TEST(Safetensors, BadLengthsAndHeaders) {
  refused("", "too few");
  refused("1234567", "too few");
  refused(with_length(0, ""), "no JSON object");
  refused(with_length(3, "{}"), "the header claims 3 bytes, the file has 2");
  refused(with_length(100'000'001, "{}"), "at most 100000000");
  refused(with_length(UINT64_MAX, "{}"), "at most 100000000");
  refused(file_of(" {}", 0), "no JSON object");
  refused(file_of("[]", 0), "no JSON object");
  refused(file_of("{", 0), "not valid JSON");
  refused(file_of("{}x", 0), "not valid JSON");
  refused(file_of("{\"a\xff\":1}", 0), "not valid JSON");
  const std::string entry = R"({"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  refused(file_of("{\"a\":" + entry + ",\"a\":" + entry + "}", 1), "appears twice");
  refused(file_of(R"({"__metadata__":{"a":1}})", 0), "is no string");
  refused(file_of(R"({"__metadata__":[]})", 0), "is no object");
  std::string deep = "{\"a\":";
  for (int i = 0; i < 100; ++i) deep += "[";
  refused(file_of(deep, 0), "nested more than");
}

TEST(Safetensors, BadEntries) {
  const auto entry = [](const std::string& fields, size_t n_data = 8) {
    return file_of("{\"x\":" + fields + "}", n_data);
  };
  refused(entry("3"), "is no object");
  refused(entry(R"({"shape":[2],"data_offsets":[0,8]})"), "has no dtype");
  refused(entry(R"({"dtype":"F32","data_offsets":[0,8]})"), "has no shape");
  refused(entry(R"({"dtype":"F32","shape":[2]})"), "has no data_offsets");
  refused(entry(R"({"dtype":"F32","shape":[2],"offsets":[0,8]})"), "has no data_offsets");
  refused(entry(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8],"strides":[1]})"), "fields beyond");
  refused(entry(R"({"dtype":3,"shape":[2],"data_offsets":[0,8]})"), "dtype is no string");
  refused(entry(R"({"dtype":"F4","shape":[2],"data_offsets":[0,8]})"), "dtype 'F4' is not known",
          Code::Unsupported);
  refused(entry(R"({"dtype":"F32","shape":2,"data_offsets":[0,8]})"), "shape is no list");
  refused(entry(R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})"), "shape holds -2");
  refused(entry(R"({"dtype":"F32","shape":[2.0],"data_offsets":[0,8]})"), "shape holds 2.0");
  refused(entry(R"({"dtype":"F32","shape":["2"],"data_offsets":[0,8]})"), "whole number");
  refused(entry(R"({"dtype":"F32","shape":[1,1,1,1,1,1,1,1,2],"data_offsets":[0,8]})"), "9 dimensions");
  refused(entry(R"({"dtype":"F32","shape":[2],"data_offsets":[0]})"), "two numbers");
  refused(entry(R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})"), "run backwards");
  refused(entry(R"({"dtype":"F32","shape":[2],"data_offsets":[-8,0]})"), "data_offsets holds -8");
  refused(entry(R"({"dtype":"F32","shape":[2],"data_offsets":[0,18446744073709551615]})"), "beyond 63 bits");
  refused(entry(R"({"dtype":"F32","shape":[2],"data_offsets":[0,7]})"),
          "has 7 bytes, its shape and type need 8");
  refused(entry(R"({"dtype":"F32","shape":[4],"data_offsets":[0,16]})"),
          "ends at byte 16 of the data, there are 8");
  // Products that overflow, in elements and only in bytes.
  refused(entry(R"({"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]})"),
          "product overflows");
  refused(entry(R"({"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0]})"),
          "product overflows");
}

TEST(Safetensors, TheTensorsCoverTheData) {
  const auto two = [](const std::string& a, const std::string& b) {
    return R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + a +
           R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + b + "}}";
  };
  EXPECT_EQ(parse(file_of(two("[4,8]", "[0,4]"), 8)).tensors().size(), 2u);
  refused(file_of(two("[0,4]", "[2,6]"), 6), "they overlap");
  refused(file_of(two("[0,4]", "[0,4]"), 4), "they overlap");
  refused(file_of(two("[0,4]", "[5,9]"), 9), "there is a gap");
  refused(file_of(two("[1,5]", "[5,9]"), 9), "there is a gap");
  refused(file_of(two("[0,4]", "[4,8]"), 9), "end at byte 8 of the data, there are 9");
}

// Any header length: the numbers need not be aligned.
TEST(Safetensors, NumbersMayStandAnywhere) {
  for (size_t n_blanks = 0; n_blanks < 8; ++n_blanks) {
    const float want[2] = {1.25f, -8.f};
    std::string file =
        file_of(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})" + std::string(n_blanks, ' '), 8);
    std::memcpy(file.data() + file.size() - 8, want, 8);
    const SafetensorsFile parsed = parse(file);
    float got[2];
    SafetensorsFile::read_f32(parsed.tensors()[0], got);
    EXPECT_EQ(got[0], want[0]);
    EXPECT_EQ(got[1], want[1]);
  }
}

}  // namespace
}  // namespace tandem
