#include "base/isa.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tandem {
namespace {

constexpr IsaLevel kAll[] = {IsaLevel::base, IsaLevel::avx2, IsaLevel::avx512, IsaLevel::avx512_bf16};

TEST(Isa, NamesRoundTrip) {
  ASSERT_EQ(std::size(kAll), size_t{kIsaLevels});
  for (IsaLevel level : kAll) EXPECT_EQ(isa_of_name(isa_name(level)), level);
  EXPECT_STREQ(isa_name(IsaLevel::avx512_bf16), "avx512_bf16");
  for (std::string_view name : {"", "AVX2", "avx", "avx512bf16", "neon"})
    EXPECT_EQ(isa_of_name(name), std::nullopt);
}

TEST(Isa, BaseIsAlwaysThere) {
  ASSERT_FALSE(compiled_isa_levels().empty());
  EXPECT_EQ(compiled_isa_levels().front(), IsaLevel::base);
  EXPECT_TRUE(isa_supported(IsaLevel::base));
}

TEST(Isa, LevelsAreNested) {
  EXPECT_TRUE(std::is_sorted(compiled_isa_levels().begin(), compiled_isa_levels().end()));
  for (IsaLevel level : kAll) {
    EXPECT_EQ(isa_supported(level), level <= best_isa()) << isa_name(level);
    const bool compiled = std::count(compiled_isa_levels().begin(), compiled_isa_levels().end(), level) == 1;
    if (isa_supported(level)) {
      EXPECT_TRUE(compiled) << isa_name(level);
    }
  }
}

}  // namespace
}  // namespace tandem
