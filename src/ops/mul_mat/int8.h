// Products with int8 activations.  A row of activations is rounded once, in blocks of 32; weights become
// integers 16 rows at a time (FormatKernels::int8), in a panel that stays in the first cache, for one token
// and for many alike.  For kernel files only.
//
// The sum over a group of weights (16 or 32) is an exact integer.  A result is one chain over the groups in
// order, f32:  y = y + sum * (scale of the weights * scale of the activations), then, for formats with
// offsets,  y = y + offset * (scale of the activations * sum of the activations).  So rows do not depend on
// their neighbours, on the split into units or on the threads; levels with FMA give the same bits.
#pragma once
#include "base/int8.h"
#include "ops/mul_mat/gemm.h"

namespace tandem::TANDEM_ISA {
namespace {

constexpr int64_t kI8Block = 32;     // activations under one scale
constexpr int64_t kI8SumBlock = 16;  // activations whose sum is kept
#if defined(__AVX512VNNI__)
constexpr int kI8TileRows = 3;  // 12 sums of integers and 12 of floats, of 32 registers
#elif defined(__AVX2__)
constexpr int kI8TileRows = 2;
#else
constexpr int kI8TileRows = 1;
#endif
#if defined(__AVX2__)
constexpr int kI8TileVecs = kTileVecs;
#else
constexpr int kI8TileVecs = 4;
#endif
constexpr int kI8TileCols = kI8TileVecs * kLanes;
static_assert(kI8TileCols % kI8Rows == 0 && kPanelCols % kI8TileCols == 0);

// Numbers of an Int8Panel: one after the other, in a thread's scratch.
constexpr int64_t kI8Codes = kI8Rows * kI8Depth, kI8Scales = kI8Rows * kI8Depth / 16;
constexpr size_t kI8PanelBytes = (size_t)kI8Codes + 2 * (size_t)kI8Scales * 4;
static_assert(kPanelCols / kI8Rows * kI8PanelBytes <= kPanelBytes);

// Bytes of a row of n activations as integers.
inline int64_t int8_row_bytes(int64_t n) {
  return ceil_div(n + n / kI8Block * 4 + n / kI8SumBlock * 4, 64) * 64;
}

inline Int8Row int8_row(const void* at, int64_t n) {
  const char* p = static_cast<const char*>(at);
  return {reinterpret_cast<const int8_t*>(p), reinterpret_cast<const float*>(p + n),
          reinterpret_cast<const int32_t*>(p + n + n / kI8Block * 4)};
}

// Rounds n activations, a multiple of 32: to nearest, ties to even.  The scale of a block is its largest
// magnitude over 127.  A block whose magnitudes are all below 2^-120 is zero; one that is not finite has a
// scale that is not, so it shows in the result.
inline void round_row_i8(const float* x, void* out, int64_t n) {
  const Int8Row row = int8_row(out, n);
  int8_t* codes = const_cast<int8_t*>(row.codes);
  float* scales = const_cast<float*>(row.scales);
  int32_t* sums = const_cast<int32_t*>(row.sums);
  const Vec magic = set1(0x1.8p23f);  // its ulp is 1: adding it rounds to an integer
  for (int64_t b = 0; b < n; b += kI8Block) {
    IVec most{};  // as integers, magnitudes are ordered, infinity and NaN above all others
    for (int64_t k = 0; k < kI8Block; k += kLanes) {
      const IVec magnitude = (IVec)load(x + b + k) & 0x7fffffff;
      most = magnitude > most ? magnitude : most;
    }
    int32_t largest = 0;
    for (int lane = 0; lane < kLanes; ++lane) largest = most[lane] > largest ? most[lane] : largest;
    const float magnitude = float_of_bits((uint32_t)largest);
    const bool tiny = magnitude < 0x1p-120f;
    const Vec inverse = set1(tiny ? 0.f : 127.f / magnitude);
    scales[b / kI8Block] = tiny ? 0.f : magnitude / 127.f;
    int32_t integers[kI8Block];
    for (int64_t k = 0; k < kI8Block; k += kLanes) {
      const IVec rounded = (IVec)(load(x + b + k) * inverse + magic) - (IVec)magic;
      memcpy(integers + k, &rounded, sizeof rounded);
    }
    for (int64_t k = 0; k < kI8Block; ++k) codes[b + k] = (int8_t)integers[k];
    for (int64_t s = 0; s < kI8Block; s += kI8SumBlock) {
      int32_t sum = 0;
      for (int64_t k = 0; k < kI8SumBlock; ++k) sum += codes[b + s + k];
      sums[(b + s) / kI8SumBlock] = sum;
    }
  }
}

// Four activations, for all lanes.
struct I8Quad {
#if defined(__AVX512VNNI__)
  __m512i a;
#elif defined(__AVX2__)
  __m256i even, odd;
#elif defined(__SSE2__)
  __m128i even, odd;
#else
  int8_t a[4];
#endif
};

TANDEM_INLINE I8Quad i8_quad(const int8_t* codes) {
  int32_t bits;
  memcpy(&bits, codes, 4);
#if defined(__AVX512VNNI__)
  return {_mm512_set1_epi32(bits)};
#elif defined(__AVX2__)
  const __m256i a = _mm256_set1_epi32(bits);
  return {_mm256_srai_epi16(_mm256_slli_epi16(a, 8), 8), _mm256_srai_epi16(a, 8)};
#elif defined(__SSE2__)
  const __m128i a = _mm_set1_epi32(bits);
  return {_mm_srai_epi16(_mm_slli_epi16(a, 8), 8), _mm_srai_epi16(a, 8)};
#else
  (void)bits;
  return {{codes[0], codes[1], codes[2], codes[3]}};
#endif
}

// acc plus the products of four codes of each of kLanes weight rows with four activations.
TANDEM_INLINE IVec i8_madd(const uint8_t* codes, I8Quad x, IVec acc) {
#if defined(__AVX512VNNI__)
  return (IVec)_mm512_dpbusd_epi32((__m512i)acc, _mm512_loadu_si512(codes), x.a);
#elif defined(__AVX2__)
  // In 16 bits: products of bytes added in pairs need 17, and the instruction for them saturates.
  const __m256i w = _mm256_loadu_si256((const __m256i*)codes);
  const __m256i even = _mm256_and_si256(w, _mm256_set1_epi16(255)), odd = _mm256_srli_epi16(w, 8);
  return acc + (IVec)_mm256_madd_epi16(even, x.even) + (IVec)_mm256_madd_epi16(odd, x.odd);
#elif defined(__SSE2__)
  const __m128i w = _mm_loadu_si128((const __m128i*)codes);
  const __m128i even = _mm_and_si128(w, _mm_set1_epi16(255)), odd = _mm_srli_epi16(w, 8);
  return acc + (IVec)_mm_madd_epi16(even, x.even) + (IVec)_mm_madd_epi16(odd, x.odd);
#else
  for (int lane = 0; lane < kLanes; ++lane)
    for (int i = 0; i < 4; ++i) acc[lane] += codes[4 * lane + i] * x.a[i];
  return acc;
#endif
}

// What a tile works on: kI8TileCols weight rows in panels one after the other, elements [k0, k0 + depth).
struct I8Work {
  Int8Panel panel;  // the first
  int64_t k0, depth, row_elements;
  int32_t zero;
};

// C[m][0..cols) (+)= the product of MR activation rows with the panels.
template <int MR, int kGroup, bool kOffsets>
void i8_tile(const void* const* a, const I8Work& w, float* const* c, int64_t c_offset, int cols, bool first) {
  Int8Row rows[MR];
  Vec sum[MR][kI8TileVecs];
#pragma GCC unroll 4
  for (int i = 0; i < MR; ++i) {
    rows[i] = int8_row(a[i], w.row_elements);
#pragma GCC unroll 4
    for (int j = 0; j < kI8TileVecs; ++j) {
      const int left = cols - j * kLanes;
      sum[i][j] =
          first || left <= 0 ? zero() : load_n(c[i] + c_offset + j * kLanes, left < kLanes ? left : kLanes);
    }
  }
  // Of lanes [j * kLanes, ...): the panel they are in, and the lane of it they begin with.
  const auto panel_of = [](int j) { return (int64_t)j * kLanes / kI8Rows; };
  const auto lane_of = [](int j) { return (int64_t)j * kLanes % kI8Rows; };
  // Of each group: minus what its zeros come to, and the sum of the activations.  Broadcast from memory,
  // which costs nothing, unlike from a register.
  const int64_t groups = w.depth / kGroup;
  int32_t starts[MR][kI8Depth / kGroup];
  float weighted[MR][kI8Depth / kGroup];
  for (int i = 0; i < MR; ++i) {
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t k = w.k0 + g * kGroup;
      int32_t total = rows[i].sums[k / kI8SumBlock];
      if (kGroup > kI8SumBlock) total += rows[i].sums[k / kI8SumBlock + 1];
      starts[i][g] = -w.zero * total;
      if (kOffsets) weighted[i][g] = rows[i].scales[k / kI8Block] * (float)total;
    }
  }
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t k = w.k0 + g * kGroup;
    IVec acc[MR][kI8TileVecs];
#pragma GCC unroll 4
    for (int i = 0; i < MR; ++i) {
      const IVec start = IVec{} + starts[i][g];
#pragma GCC unroll 4
      for (int j = 0; j < kI8TileVecs; ++j) acc[i][j] = start;
    }
    const uint8_t* codes = w.panel.codes + g * kGroup * kI8Rows;
#pragma GCC unroll 8
    for (int s = 0; s < kGroup / 4; ++s) {
      I8Quad x[MR];
#pragma GCC unroll 4
      for (int i = 0; i < MR; ++i) x[i] = i8_quad(rows[i].codes + k + 4 * s);
#pragma GCC unroll 4
      for (int j = 0; j < kI8TileVecs; ++j) {
        const uint8_t* from = codes + panel_of(j) * (int64_t)kI8PanelBytes + 4 * s * kI8Rows + 4 * lane_of(j);
#pragma GCC unroll 4
        for (int i = 0; i < MR; ++i) acc[i][j] = i8_madd(from, x[i], acc[i][j]);
      }
    }
#pragma GCC unroll 4
    for (int j = 0; j < kI8TileVecs; ++j) {
      const int64_t at = panel_of(j) * ((int64_t)kI8PanelBytes / 4) + g * kI8Rows + lane_of(j);
      const Vec step = load(w.panel.scales + at);
#pragma GCC unroll 4
      for (int i = 0; i < MR; ++i)
        sum[i][j] = fma(to_float(acc[i][j]), step * set1(rows[i].scales[k / kI8Block]), sum[i][j]);
      if (kOffsets) {
        const Vec offset = load(w.panel.offsets + at);
#pragma GCC unroll 4
        for (int i = 0; i < MR; ++i) sum[i][j] = fma(offset, set1(weighted[i][g]), sum[i][j]);
      }
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < MR; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kI8TileVecs; ++j) {
      const int left = cols - j * kLanes;
      if (left > 0) store_n(c[i] + c_offset + j * kLanes, sum[i][j], left < kLanes ? left : kLanes);
    }
  }
}

template <int kGroup, bool kOffsets>
void i8_tile_rows(int rows, const void* const* a, const I8Work& w, float* const* c, int64_t c_offset,
                  int cols, bool first) {
  switch (rows) {
    case 1:
      return i8_tile<1, kGroup, kOffsets>(a, w, c, c_offset, cols, first);
#if defined(__AVX512VNNI__)
    case 3:
      return i8_tile<3, kGroup, kOffsets>(a, w, c, c_offset, cols, first);
#endif
#if defined(__AVX2__)
    default:
      return i8_tile<2, kGroup, kOffsets>(a, w, c, c_offset, cols, first);
#endif
  }
}

inline void i8_tile_of(const Int8Format& format, int rows, const void* const* a, const I8Work& w,
                       float* const* c, int64_t c_offset, int cols, bool first) {
  if (format.group == 16 && format.has_offsets)
    return i8_tile_rows<16, true>(rows, a, w, c, c_offset, cols, first);
  if (format.group == 16) return i8_tile_rows<16, false>(rows, a, w, c, c_offset, cols, first);
  if (format.has_offsets) return i8_tile_rows<32, true>(rows, a, w, c, c_offset, cols, first);
  i8_tile_rows<32, false>(rows, a, w, c, c_offset, cols, first);
}

// Activations in integers, for the helpers of gemm.h.
struct Int8Path {
  static constexpr bool kInt8 = true;
  static int64_t row_bytes(int64_t n) { return int8_row_bytes(n); }
};

// The unit of a forward product of one row, 16 weight rows at a time as they come from memory.
inline void dot_unit(const NodeView& w, const char* expert, int64_t n0, const ThreadScratch& s) {
  const Int8Row x = int8_row(s.a[0], w.ne[0]);
  const int64_t end = w.ne[1] - n0 < kPanelCols ? w.ne[1] : n0 + kPanelCols;
  for (int64_t n = n0; n < end; n += kI8Rows) {
    const int rows = (int)(end - n < kI8Rows ? end - n : kI8Rows);
    w.format->int8.dot(expert + n * w.nb[1], w.nb[1], rows, w.ne[0], x, n + kI8Rows < end, s.c[0] + n);
  }
}

// The unit of a forward product: m rows against weight rows [n0, n0 + kPanelCols) of one expert.
inline void forward_unit(Int8Path, const NodeView& w, const char* expert, int64_t n0, int64_t m,
                         const ThreadScratch& s) {
  const Int8Format& format = w.format->int8;
  if (m == 1 && format.dot) return dot_unit(w, expert, n0, s);
  const int64_t cols = w.ne[1] - n0 < kPanelCols ? w.ne[1] - n0 : kPanelCols;
  const auto panel = [&](int64_t c) {
    char* at = s.panel + c / kI8Rows * (int64_t)kI8PanelBytes;
    float* scales = reinterpret_cast<float*>(at + kI8Codes);
    return Int8Panel{reinterpret_cast<uint8_t*>(at), scales, scales + kI8Scales};
  };
  const int64_t blocks = ceil_div(m, kI8TileRows);
  for (int64_t k0 = 0; k0 < w.ne[0]; k0 += kI8Depth) {
    const int64_t depth = w.ne[0] - k0 < kI8Depth ? w.ne[0] - k0 : kI8Depth;
    const int64_t at = k0 / w.block_elements * w.block_bytes;
    Ahead ahead = forward_ahead(w, expert, n0, k0);
    const int64_t calls = ceil_div(cols, kI8Rows) + blocks * ceil_div(cols, kI8TileCols);
    const int64_t each = ceil_div(ahead.rows, calls);
    for (int64_t c = 0; c < cols; c += kI8Rows) {
      ahead.fetch(each);
      format.pack(expert + (n0 + c) * w.nb[1] + at, w.nb[1], (int)(cols - c < kI8Rows ? cols - c : kI8Rows),
                  depth, panel(c));
    }
    for (int64_t c = 0; c < cols; c += kI8TileCols) {
      const I8Work work = {panel(c), k0, depth, w.ne[0], format.zero};
      const int n = (int)(cols - c < kI8TileCols ? cols - c : kI8TileCols);
      int64_t i = 0;
      for (int64_t b = 0; b < blocks; ++b) {
        ahead.fetch(each);
        const int rows = (int)ceil_div(m - i, blocks - b);
        i8_tile_of(format, rows, s.a + i, work, s.c + i, n0 + c, n, k0 == 0);
        i += rows;
      }
    }
  }
}

// How a product is computed at last: a format without integers is multiplied in bf16 where int8 is asked for.
enum class Arithmetic { F32, BF16, Int8 };
inline Arithmetic arithmetic_of(const NodeView& w, Precision precision) {
  if (precision == Precision::F32) return Arithmetic::F32;
  return precision == Precision::Int8 && w.format->int8.pack ? Arithmetic::Int8 : Arithmetic::BF16;
}

// Bytes of the copy of the activations that the arithmetic needs.
inline size_t converted_bytes_for(Arithmetic arithmetic, const NodeView& x) {
  if (arithmetic == Arithmetic::Int8) return (size_t)(int8_row_bytes(x.ne[0]) * rows_of(x));
  return arithmetic == Arithmetic::BF16 ? converted_bytes<Bf16Path>(x) : 0;
}

// Rows [unit * kConvertRows, ...) of x into that copy.
inline void convert_unit_to(Arithmetic arithmetic, const NodeView& x, char* out, int64_t unit) {
  if (arithmetic == Arithmetic::BF16) return convert_unit<Bf16Path>(x, out, unit);
  const int64_t rows = rows_of(x), end = (unit + 1) * kConvertRows;
  for (int64_t r = unit * kConvertRows; r < (end < rows ? end : rows); ++r) {
    round_row_i8(reinterpret_cast<const float*>(row_of(x, r)), out + r * int8_row_bytes(x.ne[0]), x.ne[0]);
  }
}

}  // namespace
}  // namespace tandem::TANDEM_ISA
