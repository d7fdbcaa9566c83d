#include "formats/dtype.h"

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "base/isa.h"
#include "formats/format_kernels.h"

namespace tandem {
namespace {

TEST(DType, RowsAreThoseOfTheSpecification) {  // quantization.md 1
  struct Row {
    int id;
    const char* name;
    int elements;
    int bytes;
  };
  constexpr Row kRows[] = {
      {0, "F32", 1, 4},         {1, "F16", 1, 2},         {2, "Q4_0", 32, 18},      {3, "Q4_1", 32, 20},
      {6, "Q5_0", 32, 22},      {7, "Q5_1", 32, 24},      {8, "Q8_0", 32, 34},      {9, "Q8_1", 32, 36},
      {10, "Q2_K", 256, 84},    {11, "Q3_K", 256, 110},   {12, "Q4_K", 256, 144},   {13, "Q5_K", 256, 176},
      {14, "Q6_K", 256, 210},   {15, "Q8_K", 256, 292},   {16, "IQ2_XXS", 256, 66}, {17, "IQ2_XS", 256, 74},
      {18, "IQ3_XXS", 256, 98}, {19, "IQ1_S", 256, 50},   {20, "IQ4_NL", 32, 18},   {21, "IQ3_S", 256, 110},
      {22, "IQ2_S", 256, 82},   {23, "IQ4_XS", 256, 136}, {24, "I8", 1, 1},         {25, "I16", 1, 2},
      {26, "I32", 1, 4},        {27, "I64", 1, 8},        {28, "F64", 1, 8},        {29, "IQ1_M", 256, 56},
      {30, "BF16", 1, 2},       {34, "TQ1_0", 256, 54},   {35, "TQ2_0", 256, 66},   {39, "MXFP4", 32, 17},
      {40, "NVFP4", 64, 36},    {41, "Q1_0", 128, 18},    {42, "Q2_0", 64, 18},
  };
  ASSERT_EQ(all_types().size(), std::size(kRows));
  for (size_t i = 0; i < std::size(kRows); ++i) {
    const Row& want = kRows[i];
    const TypeInfo& got = all_types()[i];
    EXPECT_EQ(static_cast<int>(got.type), want.id);
    EXPECT_STREQ(got.name, want.name);
    EXPECT_EQ(got.block_elements, want.elements) << want.name;
    EXPECT_EQ(got.block_bytes, want.bytes) << want.name;
    EXPECT_EQ(&type_info(got.type), &got) << want.name;
    EXPECT_EQ(dtype_of_gguf_id(static_cast<uint32_t>(want.id)), got.type) << want.name;
    EXPECT_EQ(dtype_of_name(want.name), got.type);
  }
}

TEST(DType, RetiredAndForeignIdsGiveNothing) {
  for (uint32_t id :
       {4u, 5u, 31u, 32u, 33u, 36u, 37u, 38u, 43u, 97u, 133u, 202u, 399u, 0x80000000u, 0xffffffffu}) {
    EXPECT_EQ(dtype_of_gguf_id(id), std::nullopt) << id;
  }
  int known = 0;
  for (uint32_t id = 0; id < 1000; ++id) known += dtype_of_gguf_id(id).has_value();
  EXPECT_EQ(known, 35);
}

TEST(DType, NamesInAnyCase) {
  EXPECT_EQ(dtype_of_name("q4_k"), DType::Q4_K);
  EXPECT_EQ(dtype_of_name("Bf16"), DType::BF16);
  EXPECT_EQ(dtype_of_name("iq2_xxs"), DType::IQ2_XXS);
  for (std::string_view name : {"", "Q4", "Q4_K_M", "q4-k", "F33", "Q4_K "}) {
    EXPECT_EQ(dtype_of_name(name), std::nullopt) << name;
  }
}

TEST(DType, UnknownValueIsRefused) {
  for (int id : {4, 36, 43, -1}) EXPECT_THROW(type_info(static_cast<DType>(id)), Error) << id;
}

TEST(DType, SmallQuestions) {
  EXPECT_STREQ(name_of(DType::Q6_K), "Q6_K");
  EXPECT_EQ(row_bytes(DType::Q6_K, 512), 420);
  EXPECT_EQ(row_bytes(DType::F16, 3), 6);
  EXPECT_TRUE(is_quantized(DType::Q8_0));
  EXPECT_FALSE(is_quantized(DType::BF16));
  EXPECT_FALSE(is_quantized(DType::I64));
}

TEST(DType, DecodableTypesHaveCodecsAndKernelsTheOthersNeither) {
  std::string names;
  for (const TypeInfo& info : all_types()) {
    if (decodable(info.type)) names += std::string(info.name) + " ";
    if (decodable(info.type)) {
      EXPECT_NE(info.codec->decode, nullptr) << info.name;
    }
    for (IsaLevel level : compiled_isa_levels()) {
      const FormatKernels* kernels = format_kernels(info.type, level);
      EXPECT_EQ(kernels != nullptr, decodable(info.type)) << info.name << " " << isa_name(level);
      if (kernels) {
        EXPECT_NE(kernels->to_f32, nullptr) << info.name << " " << isa_name(level);
      }
    }
  }
  EXPECT_EQ(
      names,
      "F32 F16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K Q8_K IQ2_XXS IQ2_XS IQ3_XXS IQ1_S IQ4_NL "
      "IQ3_S IQ2_S IQ4_XS IQ1_M BF16 TQ1_0 TQ2_0 MXFP4 NVFP4 ");
}

}  // namespace
}  // namespace tandem
