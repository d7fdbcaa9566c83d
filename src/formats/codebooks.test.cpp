#include "formats/codebooks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "formats/dtype.h"
#include "formats/format_checks.test.h"
#include "io/content_hash.h"

namespace tandem::test {
namespace {

struct Codebook {
  const char* name;  // of the published table
  std::span<const uint16_t> entries;
  int elements;  // of an entry
  int bits;      // of an element
  int codes;
  int (*element)(uint16_t entry, int j);
  std::vector<int> first, last;  // entries
  const char* hash;              // XXH3-128 of the published table, a byte an element
};

std::vector<Codebook> codebooks() {
  return {
      {"iq1s_grid",
       kIq1Grid,
       8,
       2,
       3,
       iq1_element,
       {-1, -1, -1, -1, -1, -1, -1, -1},
       {1, 1, 1, 1, 1, 1, 1, 1},
       "50dd87c6bcb6ce75273c860b28bbb277"},
      {"iq2xxs_grid",
       kIq2XxsGrid,
       8,
       2,
       3,
       iq2_element,
       {8, 8, 8, 8, 8, 8, 8, 8},
       {8, 25, 8, 8, 25, 43, 43, 43},
       "60ba8e78317e21cf3de7d625dc4b1f07"},
      {"iq2xs_grid",
       kIq2XsGrid,
       8,
       2,
       3,
       iq2_element,
       {8, 8, 8, 8, 8, 8, 8, 8},
       {43, 43, 43, 43, 43, 43, 43, 43},
       "cba556c4dd65a4a979a31619c2aa4027"},
      {"iq2s_grid",
       kIq2SGrid,
       8,
       2,
       3,
       iq2_element,
       {8, 8, 8, 8, 8, 8, 8, 8},
       {43, 43, 43, 43, 43, 43, 43, 43},
       "6c4d531c42a1b6b9c5212534caf3b5bf"},
      {"iq3xxs_grid",
       kIq3XxsGrid,
       4,
       4,
       8,
       iq3_xxs_element,
       {4, 4, 4, 4},
       {4, 28, 52, 62},
       "e7fa6a721caa81a4cb32234e3a15f5a7"},
      {"iq3s_grid",
       kIq3SGrid,
       4,
       4,
       8,
       iq3_s_element,
       {1, 1, 1, 1},
       {1, 1, 15, 15},
       "cab5b9ef11a971becd5ca92a3ff62aa6"},
  };
}

std::vector<int> elements_of(const Codebook& book, uint16_t entry) {
  std::vector<int> values;
  for (int j = 0; j < book.elements; ++j) values.push_back(book.element(entry, j));
  return values;
}

TEST(Codebooks, AreThePublishedTables) {
  for (const Codebook& book : codebooks()) {
    std::vector<int8_t> bytes;
    for (uint16_t entry : book.entries) {
      for (int value : elements_of(book, entry)) bytes.push_back(static_cast<int8_t>(value));
    }
    ContentHash hash;
    hash.add(std::as_bytes(std::span(bytes)));
    EXPECT_EQ(hash.hex(), book.hash) << book.name;
    EXPECT_EQ(elements_of(book, book.entries.front()), book.first) << book.name;
    EXPECT_EQ(elements_of(book, book.entries.back()), book.last) << book.name;
  }
}

// What the published tables have in common.
TEST(Codebooks, EntriesAscendAndHaveKnownCodes) {
  for (const Codebook& book : codebooks()) {
    EXPECT_TRUE(std::is_sorted(book.entries.begin(), book.entries.end())) << book.name;
    EXPECT_EQ(std::adjacent_find(book.entries.begin(), book.entries.end()), book.entries.end()) << book.name;
    for (uint16_t entry : book.entries) {
      for (int j = 0; j < book.elements; ++j) {
        const int code = entry >> book.bits * j & ((1 << book.bits) - 1);
        EXPECT_LT(code, book.codes) << book.name << " " << entry;
      }
    }
  }
}

TEST(Codebooks, TheNumberOfEvenSignsIsEven) {
  EXPECT_EQ(even_signs(0), 0u);
  EXPECT_EQ(even_signs(1), 0x81u);
  EXPECT_EQ(even_signs(3), 3u);
  EXPECT_EQ(even_signs(127), 255u);
  for (uint32_t seven = 0; seven < 128; ++seven) {
    EXPECT_EQ(even_signs(seven) & 127, seven);
    EXPECT_EQ(std::popcount(even_signs(seven)) % 2, 0) << seven;
  }
  EXPECT_EQ(with_sign(2.0f, 4, 2), -2.0f);
  EXPECT_EQ(with_sign(2.0f, 4, 1), 2.0f);
}

// Random bytes (SplitMix64 from the seed beside, its highest byte each time), d of moderate size, decoded by
// ggml's dequantize_row_* (commit d99724f): elements 0, 1, 127 and 255, and the XXH3-128 of all 256 floats.
TEST(Codebooks, BlocksDecodeAsInGgml) {
  struct Block {
    DType type;
    const char* hex;
    float some[4];
    const char* hash;
  };
  const Block kBlocks[] = {
      {DType::IQ1_S,  // 1901
       "b4ba43ab448ba8244a331875322810204382e05984222d3f7c00b7b1f30b6bf8d5467883ffc678c2a57fcfa23e40c132"
       "7874",
       {0x1.adp-4f, 0x1.adp-4f, -0x1.c476p+3f, 0x1.5feap+3f},
       "4f922e48f6a1b79ce6cd4d3e25b5c5ab"},
      {DType::IQ1_S,  // 1902
       "b4ba08c147fdcf0da28afbcaf5e77620128cefaf1c40d544d5363bb6427dc350d3c67b2bf7496de1e6da58dbd299e772"
       "65e1",
       {-0x1.2da4p+2f, 0x1.d538p+1f, 0x1.26fp+0f, 0x1.8822p+3f},
       "24153924b417272674e888268147f03a"},
      {DType::IQ1_M,  // 2901
       "c8289790345f99a72018c1a919746175138ac3848c1d4a276413bec4cb1c042b3ee09dc4780ab4fd06cfe9d3402ceacc"
       "2034a9ed7b8bd0bf",
       {0x1.38cp-4f, 0x1.5fd8p-1f, -0x1.bcb1p+2f, 0x1.2534p+0f},
       "90de30f433b87478e9ddfe12ce578b91"},
      {DType::IQ1_M,  // 2902
       "d077b8dbc80d1c75e0d537458064db1656669ddc708463effefd04a07d1207b6697bb386cdbf094528ced1f929b97e8d"
       "748d23f6479e3c33",
       {0x1.7808p+2f, 0x1.7808p+2f, 0x1.4e4p-1f, -0x1.425p+1f},
       "3972a92636b090aa670eb7e4d14c730d"},
      {DType::IQ2_XXS,  // 1601
       "7fbb389f78ede02e7207c03361aaf5b0008df4aebe9222c58190157c81eea891cc84fa7389d1ae74b3352b78c8dbc09e"
       "75a4b9804179d734a34282108ac9eb112753",
       {-0x1.dfcp-1f, -0x1.76cep+1f, 0x1.567a5p+6f, 0x1.01adap+5f},
       "02bb11d057c8927601cd6354ab8b763c"},
      {DType::IQ2_XXS,  // 1602
       "77b92aac9cb71e578e06f0987379d970cfbe9401bf7035860bea0ee14c1dd934d9eb0b9cdaa2653b7eed36734ca14751"
       "135547c03afe44ed3d6955a2c146bb89b325",
       {-0x1.5dcp-1f, 0x1.113ep+1f, 0x1.3cf6p+4f, -0x1.b53p+1f},
       "cd5e8d891d0b5ea786f32e213ebb892f"},
      {DType::IQ2_XS,  // 1701
       "f5bb8b846263f298e3d9385a902e3b2b4a409495d4f8ff5e8b870182764195b0be68bdbd211f84e979a4e10ba52200c3"
       "5a744759c91c37ef1cf5b046c369771cc76dbf27721ff602b815",
       {-0x1.816b3p+6f, 0x1.816b3p+6f, 0x1.7dfp+1f, -0x1.009d4p+4f},
       "6d9a5f486720b14b171aa2c4f080ac17"},
      {DType::IQ2_XS,  // 1702
       "b439bc5276c2dda5631dbbde9eed9c267905429c0c1bcb02b5757f783302299b7c99c973c8cf87f871daa2b43c2b1e93"
       "6d7985f06c5cacea11e0b9442ba514e179020e0f61aec25e53ec",
       {-0x1.4ac8p+4f, 0x1.4ac8p+4f, -0x1.76448p+5f, -0x1.4ac8p+4f},
       "2aaed0515b217bd12c823b5298b7fc94"},
      {DType::IQ2_S,  // 2201
       "52b9335213be363bcd3badba7f8edeec2cf6d20983df8c001d8052519f3c1ab0e686a6a31e491921c999046f3ba5de9a"
       "1427e241924963e47aa5b03e8e57f8f428cd6e7d94816bfbd5bc0c828ae427c93c5e",
       {-0x1.65756p+6f, 0x1.0a04p+4f, -0x1.e2274p+5f, 0x1.6dc58p+4f},
       "7bc5392f27aca21f6eb68fe84c1b5f89"},
      {DType::IQ2_S,  // 2202
       "41ba5227024306e75e24d359c01e2875919bb47a4ec879702b2473b795dc2f7d64d41fc422872f29bce9ac1fc39e9a68"
       "d404ff18c4c99c71e6ab39653c388b7d573d7667e4553cd8c7ffec3fafbd00c906f5",
       {0x1.38b2p+4f, 0x1.e8962p+5f, -0x1.1faep+4f, -0x1.0483a8p+7f},
       "ca635f28aa7376d974a18e3bfd5944d6"},
      {DType::IQ3_XXS,  // 1801
       "e23b2ade8ad851ab0ad82467819f97b9d9dd43f0400381549f8f9d4d98a951ff10a02f1b319117a317ec21a633a67769"
       "efae8c844dd750b5baa52b4e4170bddae69f195be125d85a3141031f8bb803974f3084453cd72b5a0f5084f34b34613a"
       "9462",
       {-0x1.31758p+6f, 0x1.13e6p+5f, -0x1.8242p+5f, 0x1.66abp+6f},
       "a4ab9f885460bf6f7a21a636adbb49a6"},
      {DType::IQ3_XXS,  // 1802
       "463984b187a6a9eae6ba5b740970947b97fb8c92882774a572716a53523e4a9db29dbe1efa8035524fbee472627dfc62"
       "b44a5d3b53ecf1483069068bf5b18fc97086d63700ccb1a85ad739656bf395eb61eabed748cab7ad4f16dbfe19686c7e"
       "2bd8",
       {0x1.cd6dp+6f, -0x1.07acp+4f, 0x1.0ba08p+7f, 0x1.63f5p+6f},
       "1c6e919218b74e278a7556220f51972a"},
      {DType::IQ3_S,  // 2101
       "ee3b2f84e436572ff712ae34ecb1929f5b84eafe20fb9747a34fd585427807ca6644757b44e5c3aefb6683b4279bbb5e"
       "714e898bc7851458233a7f5b999625ceaa02853e2d422db2386d7dadf2bc465c618cd8fc7fe9683a159f8ab08c67ff85"
       "1a5bdd51e406e89810299b8e6678",
       {-0x1.6cc4p+4f, 0x1.285f4p+8f, -0x1.0d9cp+4f, 0x1.dbc8p+3f},
       "3bcc9e8804f759745cd90b2fc258498e"},
      {DType::IQ3_S,  // 2102
       "b4395060208f44ec1f7d8869ad515f7b4fdf7aedf02c3940af5e96b120b60f90f914fb7bd36c7fb8f60dc1ebb1516281"
       "8d43d8f69bf466df7eca26e532c99091895a50f7064eb9d73bb24cad85678763167e85f49c40578ce7bc12aaaa40dade"
       "524e343798f3720e4c688bb9495f",
       {0x1.cb1ap+6f, 0x1.2723p+7f, -0x1.0658p+4f, 0x1.b724p+5f},
       "405de0cf91ba6d43f105a6340df185ef"},
  };
  for (const Block& block : kBlocks) {
    const std::vector<uint8_t> bytes = bytes_of_hex(block.hex);
    ASSERT_EQ(bytes.size(), static_cast<size_t>(type_info(block.type).block_bytes)) << name_of(block.type);
    const std::vector<float> y = decode(block.type, bytes);
    EXPECT_EQ(y[0], block.some[0]) << name_of(block.type);
    EXPECT_EQ(y[1], block.some[1]) << name_of(block.type);
    EXPECT_EQ(y[127], block.some[2]) << name_of(block.type);
    EXPECT_EQ(y[255], block.some[3]) << name_of(block.type);
    ContentHash hash;
    hash.add(std::as_bytes(std::span(y)));
    EXPECT_EQ(hash.hex(), block.hash) << name_of(block.type);
    expect_kernels_equal_reference(block.type, bytes);
  }
}

}  // namespace
}  // namespace tandem::test
