#include "io/base_hash.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace tandem {
namespace {

// Two tensors, one of them longer than what is sampled at its ends.
struct TwoTensors {
  std::vector<std::byte> small = std::vector<std::byte>(64, std::byte{1});
  std::vector<std::byte> large = std::vector<std::byte>(3 * 4096, std::byte{2});
  std::vector<GgufTensor> tensors;

  TwoTensors() {
    tensors.push_back(
        {"a.weight", DType::F32, 1, {16, 1, 1, 1}, 0, static_cast<int64_t>(small.size()), small.data(), 0});
    tensors.push_back(
        {"b.weight", DType::F32, 2, {64, 48, 1, 1}, 64, static_cast<int64_t>(large.size()), large.data(), 0});
  }
  std::string hash() const { return base_hash(tensors); }
};

// The digest of no bytes is a constant of the algorithm.
TEST(BaseHash, NothingHasTheDigestOfNoInput) { EXPECT_EQ(base_hash({}), "99aa06d3014798d86001c324468d497f"); }

TEST(BaseHash, SameWhateverTheOrderAndThePlaceInTheFile) {
  TwoTensors t;
  const std::string want = t.hash();
  EXPECT_EQ(want.size(), 32u);
  std::reverse(t.tensors.begin(), t.tensors.end());
  t.tensors[0].offset = 4096;
  EXPECT_EQ(t.hash(), want);
}

TEST(BaseHash, NameTypeShapeAndBothEndsCount) {
  const std::string want = TwoTensors().hash();
  TwoTensors renamed, retyped, reshaped, first, last, small_last;
  renamed.tensors[0].name = "c.weight";
  retyped.tensors[0].type = DType::I32;
  reshaped.tensors[1].ne = {48, 64, 1, 1};
  first.large[0] = std::byte{3};
  last.large[3 * 4096 - 1] = std::byte{3};
  small_last.small[63] = std::byte{3};
  for (const TwoTensors* t : {&renamed, &retyped, &reshaped, &first, &last, &small_last})
    EXPECT_NE(t->hash(), want);
}

TEST(BaseHash, TheMiddleOfALongTensorIsNotRead) {
  TwoTensors t;
  const std::string want = t.hash();
  t.large[4096] = std::byte{3};
  t.large[2 * 4096 - 1] = std::byte{3};
  EXPECT_EQ(t.hash(), want);
  t.large[4095] = std::byte{3};
  EXPECT_NE(t.hash(), want);
}

}  // namespace
}  // namespace tandem
