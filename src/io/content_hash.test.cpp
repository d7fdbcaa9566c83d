#include "io/content_hash.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// The digest of no bytes is a constant of the algorithm.
TEST(ContentHash, NothingHasTheDigestOfNoInput) {
  EXPECT_EQ(ContentHash().hex(), "99aa06d3014798d86001c324468d497f");
}

TEST(ContentHash, DependsOnTheBytesAndNotOnThePieces) {
  ContentHash whole, pieces;
  whole.add(bytes_of("a longer text"));
  pieces.add(bytes_of("a lon"));
  pieces.add({});
  pieces.add(bytes_of("ger text"));
  EXPECT_EQ(whole.hex(), pieces.hex());
  EXPECT_EQ(whole.digest(), pieces.digest());
  EXPECT_NE(whole.hex(), ContentHash().hex());
  EXPECT_EQ(static_cast<unsigned>(whole.digest()[0]), std::stoul(whole.hex().substr(0, 2), nullptr, 16));
}

TEST(ContentHash, TextsKeepTheirBorders) {
  ContentHash a, b;
  a.add_text("ab");
  a.add_text("c");
  b.add_text("a");
  b.add_text("bc");
  EXPECT_NE(a.hex(), b.hex());
}

TEST(ContentHash, NumbersAreLittleEndian) {
  ContentHash number, bytes;
  number.add_u64(0x0102);
  bytes.add(bytes_of(std::string_view("\x02\x01\0\0\0\0\0\0", 8)));
  EXPECT_EQ(number.hex(), bytes.hex());
}

}  // namespace
}  // namespace tandem
