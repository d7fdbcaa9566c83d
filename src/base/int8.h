// How kernels of formats fill an Int8Panel (base/kernel.h).  For kernel files only.
#pragma once
#include "base/kernel.h"
#include "base/simd.h"

namespace tandem::TANDEM_ISA {

// The part [from, n) of a panel, block by block, in plain C: `block(blocks, codes, scales, offsets)` gives
// the kElements codes of one block in order and the numbers of its groups.
template <int kElements, int kGroup, int kBytes, class Block>
TANDEM_INLINE void pack_blocks(const void* blocks, int64_t row_bytes, int rows, int64_t from, int64_t n,
                               const Int8Panel& panel, Block block) {
  for (int r = 0; r < rows; ++r) {
    const char* row = (const char*)blocks + r * row_bytes;
    for (int64_t i = from; i < n; i += kElements) {
      uint8_t codes[kElements];
      float scales[kElements / kGroup], offsets[kElements / kGroup] = {};
      block(row + i / kElements * kBytes, codes, scales, offsets);
      for (int k = 0; k < kElements; k += 4)
        memcpy(panel.codes + ((i + k) / 4 * kI8Rows + r) * 4, codes + k, 4);
      for (int g = 0; g < kElements / kGroup; ++g) {
        panel.scales[(i / kGroup + g) * kI8Rows + r] = scales[g];
        if (panel.offsets) panel.offsets[(i / kGroup + g) * kI8Rows + r] = offsets[g];
      }
    }
  }
}

// Byte j of 16: element j in the low nibble, element j + 16 in the high one.
TANDEM_INLINE void split_nibbles(const uint8_t* packed, uint8_t* codes) {
  for (int j = 0; j < 16; ++j) {
    codes[j] = packed[j] & 15;
    codes[j + 16] = packed[j] >> 4;
  }
}

// The same with a fifth bit: bit j of the four bytes `high` belongs to element j.
TANDEM_INLINE void split_fives(const uint8_t* high, const uint8_t* packed, uint8_t* codes) {
  uint32_t bits;
  memcpy(&bits, high, 4);
  split_nibbles(packed, codes);
  for (int k = 0; k < 32; ++k) codes[k] = (uint8_t)(codes[k] | (bits >> k & 1) << 4);
}

#if defined(__AVX512VBMI__)

// split_fives(), in one register.
TANDEM_INLINE __m256i fives_of(const uint8_t* high, const uint8_t* packed) {
  const __m128i nibbles = _mm_loadu_si128((const __m128i*)packed);
  const __m256i low =
      _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(nibbles, 4), nibbles), _mm256_set1_epi8(15));
  __mmask32 fifth;
  memcpy(&fifth, high, 4);
  return _mm256_mask_add_epi8(low, fifth, low, _mm256_set1_epi8(16));
}

// Where the rows of a panel lie; what is past the last row repeats it.
struct PanelRows {
  const uint8_t* at[kI8Rows];
  __m512i from_first;  // bytes from at[0], in 32 bits: rows are far below 128 MiB
};

TANDEM_INLINE PanelRows panel_rows(const void* blocks, int64_t row_bytes, int rows) {
  PanelRows p;
  for (int r = 0; r < kI8Rows; ++r) p.at[r] = (const uint8_t*)blocks + (r < rows ? r : rows - 1) * row_bytes;
  const IVec index = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const IVec clamped = index < rows ? index : IVec{} + (rows - 1);
  p.from_first = (__m512i)(clamped * (int32_t)row_bytes);
  return p;
}

// The four bytes that each row has at byte `at`.
TANDEM_INLINE __m512i dword_column(const PanelRows& rows, int64_t at) {
  return _mm512_i32gather_epi32(rows.from_first, rows.at[0] + at, 1);
}

// 64 bytes of each row, transposed: columns[i] has bytes 4i .. 4i + 3 of every row.
template <class Bytes>
TANDEM_INLINE void columns_of(const PanelRows& rows, int64_t at, __m512i columns[16], Bytes bytes) {
#pragma GCC unroll 16
  for (int r = 0; r < kI8Rows; ++r) columns[r] = bytes(rows.at[r] + at);
  transpose16(columns);
}

// The same of 64 bytes that lie together.
TANDEM_INLINE void columns_of(const PanelRows& rows, int64_t at, __m512i columns[16]) {
  columns_of(rows, at, columns, [](const uint8_t* p) { return _mm512_loadu_si512(p); });
}

// The same of four pieces of 16 bytes, `step` bytes apart.
TANDEM_INLINE __m512i four_pieces(const uint8_t* p, int step) {
  const auto piece = [&](int i) { return _mm_loadu_si128((const __m128i*)(p + i * step)); };
  __m512i v = _mm512_castsi128_si512(piece(0));
  v = _mm512_inserti32x4(v, piece(1), 1);
  v = _mm512_inserti32x4(v, piece(2), 2);
  return _mm512_inserti32x4(v, piece(3), 3);
}

// The same of 16 bytes: columns[i] has bytes 4i .. 4i + 3 of every row.
TANDEM_INLINE void columns_of_16(const PanelRows& rows, int64_t at, __m512i columns[4]) {
  __m512i h[4];
  for (int q = 0; q < 4; ++q) {
    const auto piece = [&](int i) { return _mm_loadu_si128((const __m128i*)(rows.at[q + 4 * i] + at)); };
    h[q] = _mm512_castsi128_si512(piece(0));
    h[q] = _mm512_inserti32x4(h[q], piece(1), 1);
    h[q] = _mm512_inserti32x4(h[q], piece(2), 2);
    h[q] = _mm512_inserti32x4(h[q], piece(3), 3);
  }
  const __m512i a0 = _mm512_unpacklo_epi32(h[0], h[1]), a1 = _mm512_unpackhi_epi32(h[0], h[1]);
  const __m512i b0 = _mm512_unpacklo_epi32(h[2], h[3]), b1 = _mm512_unpackhi_epi32(h[2], h[3]);
  columns[0] = _mm512_unpacklo_epi64(a0, b0);
  columns[1] = _mm512_unpackhi_epi64(a0, b0);
  columns[2] = _mm512_unpacklo_epi64(a1, b1);
  columns[3] = _mm512_unpackhi_epi64(a1, b1);
}

TANDEM_INLINE void columns_of_32(const PanelRows& rows, int64_t at, __m512i columns[8]) {
  columns_of_16(rows, at, columns);
  columns_of_16(rows, at + 16, columns + 4);
}

// The binary16 numbers in the low halves of 16 lanes.
TANDEM_INLINE Vec halves_to_float(__m512i lanes) {
  return (Vec)_mm512_cvtph_ps(_mm512_cvtepi32_epi16(lanes));
}

// The binary16 numbers that begin `count` blocks of each row, the first at byte `at`, as floats.
TANDEM_INLINE void half_columns(const PanelRows& rows, int64_t at, int64_t step, int64_t count, float* out) {
  for (int64_t j = 0; j < count; ++j)
    store(out + j * kI8Rows, halves_to_float(dword_column(rows, at + j * step)));
}
// The same of two numbers, one behind the other.
TANDEM_INLINE void half_columns(const PanelRows& rows, int64_t at, int64_t step, int64_t count, float* first,
                                float* second) {
  for (int64_t j = 0; j < count; ++j) {
    const __m512i both = dword_column(rows, at + j * step);
    store(first + j * kI8Rows, halves_to_float(both));
    store(second + j * kI8Rows, halves_to_float(_mm512_srli_epi32(both, 16)));
  }
}

// Scales and offsets of the eight sub-blocks that every row has at byte `at`, of blocks that begin as those
// of Q4_K and Q5_K do: d, dmin, twelve bytes of six-bit numbers.
TANDEM_INLINE void k_scale_columns(const PanelRows& rows, int64_t at, float* scales, float* offsets) {
  __m512i w[4];  // d and dmin, then the twelve packed bytes
  columns_of_16(rows, at, w);
  const Vec d = halves_to_float(w[0]), dmin = halves_to_float(_mm512_srli_epi32(w[0], 16));
  const auto six = [](__m512i v) { return _mm512_and_si512(v, _mm512_set1_epi32(0x3f3f3f3f)); };
  const auto four = [](__m512i v) { return _mm512_and_si512(v, _mm512_set1_epi32(0x0f0f0f0f)); };
  const auto two = [](__m512i v) {
    return _mm512_and_si512(_mm512_srli_epi32(v, 2), _mm512_set1_epi32(0x30303030));
  };
  const IVec words[4] = {(IVec)six(w[1]), (IVec)_mm512_or_si512(four(w[3]), two(w[1])), (IVec)six(w[2]),
                         (IVec)_mm512_or_si512(four(_mm512_srli_epi32(w[3], 4)), two(w[2]))};
#pragma GCC unroll 8
  for (int j = 0; j < 8; ++j) {
    store(scales + j * kI8Rows, d * to_float((words[j / 4] >> 8 * (j % 4)) & 63));
    store(offsets + j * kI8Rows, zero() - dmin * to_float((words[2 + j / 4] >> 8 * (j % 4)) & 63));
  }
}

TANDEM_INLINE __m512i low_nibbles(__m512i packed) { return _mm512_and_si512(packed, _mm512_set1_epi8(15)); }
TANDEM_INLINE __m512i high_nibbles(__m512i packed) {
  return _mm512_and_si512(_mm512_srli_epi16(packed, 4), _mm512_set1_epi8(15));
}
// Sixteen times the high nibbles: a shift less, taken from the sums in its place.
TANDEM_INLINE __m512i high_nibbles_x16(__m512i packed) {
  return _mm512_and_si512(packed, _mm512_set1_epi8((char)0xf0));
}

// Four elements of each row, from element k on.
TANDEM_INLINE void store_codes(const Int8Panel& panel, int64_t k, __m512i codes) {
  _mm512_storeu_si512(panel.codes + k * kI8Rows, codes);
}

// 64 elements of each row, from element k on; `bytes(row + at)` gives those of a row in order.
template <class Bytes>
TANDEM_INLINE void pack_64(const PanelRows& rows, int64_t at, const Int8Panel& panel, int64_t k,
                           Bytes bytes) {
  __m512i columns[16];
  columns_of(rows, at, columns, bytes);
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) store_codes(panel, k + 4 * i, columns[i]);
}

// Blocks of 32 elements as nibbles (byte j: elements j and j + 16), four blocks at a time: their codes,
// through `code`; returns how many elements were packed.  The nibbles of a block begin kAt bytes into it.
template <int kBytes, int kAt, class Code>
TANDEM_INLINE int64_t pack_nibble_blocks(const PanelRows& rows, int64_t n, const Int8Panel& panel,
                                         Code code) {
  int64_t k = 0;
  for (; k + 128 <= n; k += 128) {
    __m512i columns[16];
    columns_of(rows, k / 32 * kBytes + kAt, columns, [](const uint8_t* p) { return four_pieces(p, kBytes); });
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      const int64_t element = k + 32 * (i / 4) + 4 * (i % 4);
      store_codes(panel, element, code(low_nibbles(columns[i])));
      store_codes(panel, element + 16, code(high_nibbles(columns[i])));
    }
  }
  return k;
}

// A table of sixteen codes, for look_up_bytes().
TANDEM_INLINE __m512i byte_table(const int8_t values[16], int zero) {
  const __m128i codes = _mm_add_epi8(_mm_loadu_si128((const __m128i*)values), _mm_set1_epi8((char)zero));
  return _mm512_broadcast_i32x4(codes);
}
TANDEM_INLINE __m512i look_up_bytes(__m512i table, __m512i codes) {
  return _mm512_shuffle_epi8(table, codes);
}

// --- products with one row of activations: Int8Format::dot ---
// Integers are exact, so their order is free; groups follow each other as in the tile.

// y plus what a group of 32 adds: its sums, of codes as they are, in the lanes of 16 rows.
TANDEM_INLINE Vec add_group(Vec y, __m512i sums, int zero, Vec scales, const Int8Row& x, int64_t group) {
  const int32_t total = x.sums[2 * group] + x.sums[2 * group + 1];
  const IVec exact = (IVec)sums - zero * total;
  return fma(to_float(exact), scales * set1(x.scales[group]), y);
}
// The same of offsets.
TANDEM_INLINE Vec add_offsets(Vec y, Vec offsets, const Int8Row& x, int64_t group) {
  const int32_t total = x.sums[2 * group] + x.sums[2 * group + 1];
  return fma(offsets, set1(x.scales[group] * (float)total), y);
}

// Within each quarter of 16 bytes: r[4q + i] becomes dword i of every quarter of rows 4q .. 4q + 3.
TANDEM_INLINE void transpose_quarters(__m512i r[16]) {
#pragma GCC unroll 4
  for (int q = 0; q < 16; q += 4) {
    const __m512i a0 = _mm512_unpacklo_epi32(r[q], r[q + 1]), a1 = _mm512_unpackhi_epi32(r[q], r[q + 1]);
    const __m512i b0 = _mm512_unpacklo_epi32(r[q + 2], r[q + 3]),
                  b1 = _mm512_unpackhi_epi32(r[q + 2], r[q + 3]);
    r[q] = _mm512_unpacklo_epi64(a0, b0);
    r[q + 1] = _mm512_unpackhi_epi64(a0, b0);
    r[q + 2] = _mm512_unpacklo_epi64(a1, b1);
    r[q + 3] = _mm512_unpackhi_epi64(a1, b1);
  }
}

// Sums by quarter, of four rows each, as sums[quarter] of 16 rows.
TANDEM_INLINE void gather_quarters(__m512i sums[4]) {
  const __m512i t0 = _mm512_shuffle_i32x4(sums[0], sums[1], 0x44),
                t1 = _mm512_shuffle_i32x4(sums[0], sums[1], 0xee);
  const __m512i t2 = _mm512_shuffle_i32x4(sums[2], sums[3], 0x44),
                t3 = _mm512_shuffle_i32x4(sums[2], sums[3], 0xee);
  sums[0] = _mm512_shuffle_i32x4(t0, t2, 0x88);
  sums[1] = _mm512_shuffle_i32x4(t0, t2, 0xdd);
  sums[2] = _mm512_shuffle_i32x4(t1, t3, 0x88);
  sums[3] = _mm512_shuffle_i32x4(t1, t3, 0xdd);
}

// Adds the products of four rows' dwords (columns[4q + i] as transpose_quarters leaves them, taken through
// `code`) with the activations x, whose dword i of each quarter belongs to column i.
template <class Code>
TANDEM_INLINE void add_dots(const __m512i columns[16], __m512i x, __m512i sums[4], Code code) {
  const __m512i of[4] = {_mm512_shuffle_epi32(x, _MM_PERM_AAAA), _mm512_shuffle_epi32(x, _MM_PERM_BBBB),
                         _mm512_shuffle_epi32(x, _MM_PERM_CCCC), _mm512_shuffle_epi32(x, _MM_PERM_DDDD)};
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
#pragma GCC unroll 4
    for (int q = 0; q < 4; ++q) sums[q] = _mm512_dpbusd_epi32(sums[q], code(columns[4 * q + i]), of[i]);
  }
}

TANDEM_INLINE __m512i two_pieces(const int8_t* low, const int8_t* high) {
  return _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256((const __m256i*)low)),
                            _mm256_loadu_si256((const __m256i*)high), 1);
}

// The part `part` of `parts` of what lies behind rows of `bytes` bytes in all, into a cache.
TANDEM_INLINE void fetch_behind(const void* rows, int64_t bytes, int64_t part, int64_t parts) {
  const char* from = (const char*)rows + bytes + bytes * part / parts;
  for (int64_t b = 0; b < ceil_div(bytes, parts); b += 64) __builtin_prefetch(from + b, 0, 2);
}

// Products with panels of whole groups of 32, elements [k0, k0 + n) of the activations: what is left over.
TANDEM_INLINE Vec dot_panel(const Int8Panel& panel, int64_t k0, int64_t n, int zero, const Int8Row& x,
                            Vec y) {
  for (int64_t g = 0; g < n / 32; ++g) {
    __m512i sums = _mm512_setzero_si512();
    for (int s = 0; s < 8; ++s) {
      int32_t quad;
      memcpy(&quad, x.codes + k0 + 32 * g + 4 * s, 4);
      sums = _mm512_dpbusd_epi32(sums, _mm512_loadu_si512(panel.codes + (8 * g + s) * 4 * kI8Rows),
                                 _mm512_set1_epi32(quad));
    }
    const int64_t group = k0 / 32 + g;
    y = add_group(y, sums, zero, load(panel.scales + g * kI8Rows), x, group);
    if (panel.offsets) y = add_offsets(y, load(panel.offsets + g * kI8Rows), x, group);
  }
  return y;
}

// Blocks of 32 elements as nibbles (byte j: elements j and j + 16), kBytes apart, the nibbles kAt bytes into
// each.  scales(at, k, n_blocks, scales, offsets) gives the numbers of up to eight blocks from element k on;
// pack() is Int8Format's.
template <int kBytes, int kAt, int kZero, bool kOffsets, class Code, class Scales, class Pack>
TANDEM_INLINE void dot_nibble_blocks(const void* blocks, int64_t row_bytes, int rows, int64_t n,
                                     const Int8Row& x, bool more, float* out, Code code, Scales scales,
                                     Pack pack) {
  const PanelRows at = panel_rows(blocks, row_bytes, rows);
  Vec y = zero();
  int64_t k = 0;
  for (; k + 128 <= n; k += 128) {
    if (more) fetch_behind(blocks, rows * row_bytes, k / 128, n / 128);
    float scale[4 * kI8Rows], offset[4 * kI8Rows];
    scales(at, k, 4, scale, offset);
    __m512i columns[16], sums[4] = {};
#pragma GCC unroll 16
    for (int r = 0; r < kI8Rows; ++r) columns[r] = four_pieces(at.at[r] + k / 32 * kBytes + kAt, kBytes);
    transpose_quarters(columns);
    const uint8_t* codes = (const uint8_t*)x.codes + k;
    add_dots(columns, four_pieces(codes, 32), sums, [&](__m512i v) { return code(low_nibbles(v)); });
    add_dots(columns, four_pieces(codes + 16, 32), sums, [&](__m512i v) { return code(high_nibbles(v)); });
    gather_quarters(sums);
#pragma GCC unroll 4
    for (int b = 0; b < 4; ++b) {
      y = add_group(y, sums[b], kZero, load(scale + b * kI8Rows), x, k / 32 + b);
      if (kOffsets) y = add_offsets(y, load(offset + b * kI8Rows), x, k / 32 + b);
    }
  }
  if (k < n) {
    alignas(64) uint8_t codes[96 * kI8Rows];
    float scale[3 * kI8Rows], offset[3 * kI8Rows];
    const Int8Panel panel = {codes, scale, kOffsets ? offset : nullptr};
    pack((const char*)blocks + k / 32 * kBytes, row_bytes, rows, n - k, panel);
    y = dot_panel(panel, k, n - k, kZero, x, y);
  }
  store_n(out, y, rows);
}

#endif

}  // namespace tandem::TANDEM_ISA
