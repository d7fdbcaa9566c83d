#include "base/memory.h"

#include <gtest/gtest.h>

#include <utility>

#include "base/error.h"

namespace tandem {
namespace {

TEST(Memory, SizesReadAndPrint) {
  EXPECT_EQ(parse_bytes("1048576", "x"), size_t{1} << 20);
  EXPECT_EQ(parse_bytes("512M", "x"), size_t{512} << 20);
  EXPECT_EQ(parse_bytes("2g", "x"), size_t{2} << 30);
  EXPECT_EQ(parse_bytes("1.5GiB", "x"), size_t{3} << 29);
  EXPECT_EQ(parse_bytes("64KB", "x"), size_t{64} << 10);
  EXPECT_EQ(format_bytes(512), "0.5 KiB");
  EXPECT_EQ(format_bytes(size_t{3} << 29), "1.50 GiB");
}

TEST(Memory, NonsenseSizesAreRefused) {
  for (const char* text : {"", "M", "12X", "-1G", "0", "nan", "inf", "1e30", "5 apples", "1GG"}) {
    try {
      parse_bytes(text, "--memory-budget");
      ADD_FAILURE() << text;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::Usage) << text;
      EXPECT_NE(std::string(e.what()).find("--memory-budget"), std::string::npos);
    }
  }
}

TEST(Memory, BuffersAreZeroAndMove) {
  Buffer a(1 << 16, "a test");
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a.data()) % 64, 0u);
  for (std::byte b : a.span()) ASSERT_EQ(b, std::byte{0});
  a.f32()[7] = 1.f;
  Buffer b = std::move(a);
  EXPECT_EQ(b.f32()[7], 1.f);
  EXPECT_EQ(b.bytes(), size_t{1} << 16);
}

TEST(Memory, TouchedBuffersAreAnonymousMemory) {
  const size_t before = anonymous_memory_bytes();
  Buffer a(32 << 20, "a test");
  for (size_t i = 0; i < a.bytes(); i += 4096) a.data()[i] = std::byte{1};
  const size_t grown = anonymous_memory_bytes() - before;
#if defined(__SANITIZE_THREAD__)
  constexpr size_t kMost = size_t{160} << 20;  // its shadow is up to four times the memory
#else
  constexpr size_t kMost = size_t{40} << 20;  // the address sanitizer adds an eighth for its shadow
#endif
  EXPECT_GE(grown, size_t{31} << 20);
  EXPECT_LE(grown, kMost);
  EXPECT_GT(available_memory_bytes(), size_t{1} << 20);
}

TEST(Memory, ARefusedAllocationIsOutOfMemoryAndNamed) {
  fail_buffer_allocation_for_test(1);
  Buffer first(4096, "the first");
  try {
    Buffer second(4096, "the second");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::OutOfMemory);
    EXPECT_NE(std::string(e.what()).find("the second"), std::string::npos);
  }
  fail_buffer_allocation_for_test(-1);
  EXPECT_THROW(Buffer(size_t{1} << 60, "too much"), Error);
}

}  // namespace
}  // namespace tandem
