// The building blocks of every product here: a panel of decoded weights, laid out so that lanes run over
// output columns and the contraction runs down the panel, and a register tile of up to 6 rows.  A panel is
// cut into groups of kTileCols columns, panel[group][step][kTileCols]: what a tile reads lies together and
// stays in the first cache.  For kernel files only.
//
// An output element is one chain of multiply-adds in the order of the contraction, whatever shares its tile:
// rows do not depend on their neighbours, on the split into units or on the threads.
#pragma once
#include <stdint.h>
#include <string.h>

#include "base/kernel.h"
#include "base/simd.h"

namespace tandem::TANDEM_ISA {
namespace {

constexpr int kTileRows = 6;
#if defined(__AVX512F__)
constexpr int kTileVecs = 4;  // 24 accumulators of 32 registers
#else
constexpr int kTileVecs = 2;  // 12 of 16
#endif
constexpr int kTileCols = kTileVecs * kLanes;
constexpr int kPanelCols = 64;      // weight rows of a forward panel
constexpr int kBackCols = 256;      // weight columns of a backward panel: one K-quant block
constexpr int kForwardDepth = 256;  // contraction of a forward panel, elements: one K-quant block
constexpr int kBackDepth = 128;     // contraction of a backward panel, weight rows
constexpr int kPackRows = kTileCols < 16 ? kTileCols : 16;  // weight rows decoded at a time, forward
constexpr int64_t kDecodeElements = 256;                    // what is decoded of a row at a time, at most
// Dwords from one decoded row to the next: a power of two would put all into few cache sets.
constexpr int64_t kTmpStride = kDecodeElements + 16;
constexpr int64_t kUnitMacs = 1 << 25;  // multiply-adds of a unit: 0.1 to 0.2 ms
constexpr int64_t kMinUnitTokens = 96;  // fewer, and decoding the panel would cost more than multiplying
constexpr int64_t kMaxUnitTokens = 1024;

// f32 operands.
struct F32Path {
  typedef float Elem;
  static constexpr int kPack = 1;           // contraction steps in one Elem
  static constexpr bool kConverts = false;  // rows are used where they lie
  static constexpr bool kInt8 = false;
  TANDEM_INLINE Vec madd(Vec a, Vec b, Vec acc) { return fma(a, b, acc); }
  TANDEM_INLINE Vec broadcast(const float* a) { return set1(*a); }
  TANDEM_INLINE float round(float x) { return x; }
};

#if defined(__AVX512BF16__)
// bf16 operands in pairs along the contraction, two products per lane and instruction.
struct Bf16Path {
  typedef uint32_t Elem;
  static constexpr int kPack = 2;
  static constexpr bool kConverts = true;
  static constexpr bool kInt8 = false;
  TANDEM_INLINE Vec madd(Vec a, Vec b, Vec acc) {
    return (Vec)_mm512_dpbf16_ps((__m512)acc, (__m512bh)a, (__m512bh)b);
  }
  TANDEM_INLINE Vec broadcast(const uint32_t* a) { return (Vec)_mm512_set1_epi32((int)*a); }
};
#else
// bf16 operands kept in f32: the same rounding, at the price of f32.
struct Bf16Path {
  typedef float Elem;
  static constexpr int kPack = 1;
  static constexpr bool kConverts = true;
  static constexpr bool kInt8 = false;
  TANDEM_INLINE Vec madd(Vec a, Vec b, Vec acc) { return fma(a, b, acc); }
  TANDEM_INLINE Vec broadcast(const float* a) { return set1(*a); }
  TANDEM_INLINE float round(float x) { return bf16_to_f32(f32_to_bf16(x)); }
};
#endif

// Elems of a row of n contraction steps.
template <class P>
int64_t elems(int64_t n) {
  return ceil_div(n, P::kPack);
}

// An activation row in the form the tile reads.
inline void convert_row(const float* x, float* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = bf16_to_f32(f32_to_bf16(x[i]));
}
#if defined(__AVX512BF16__)
inline void convert_row(const float* x, uint32_t* out, int64_t n) {
  uint16_t* o = reinterpret_cast<uint16_t*>(out);
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    const __m512i v = (__m512i)_mm512_cvtne2ps_pbh((__m512)load(x + i + 16), (__m512)load(x + i));
    _mm512_storeu_si512(o + i, v);
  }
  for (; i < n; i += 16) {
    const int left = n - i < 16 ? (int)(n - i) : 16;
    store_bf16_n(o + i, load_n(x + i, left), left);
  }
  if (n % 2) memset(o + n, 0, 2);
}
#endif

// C[m][0..cols) (+)= sum over `steps` of a[m][step] * panel[step][0..cols).  m rows, NV vectors of columns.
template <class P, int MR, int NV>
void tile(const typename P::Elem* const* a, int64_t a_offset, const typename P::Elem* panel, int64_t steps,
          float* const* c, int64_t c_offset, int cols, bool first) {
  Vec acc[MR][NV];
  const int tail = cols - (NV - 1) * kLanes;
#pragma GCC unroll 8
  for (int i = 0; i < MR; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < NV; ++j) {
      const float* from = c[i] + c_offset + j * kLanes;
      acc[i][j] = first ? zero() : j == NV - 1 ? load_n(from, tail) : load(from);
    }
  }
  const typename P::Elem* rows[MR];
#pragma GCC unroll 8
  for (int i = 0; i < MR; ++i) rows[i] = a[i] + a_offset;
  for (int64_t s = 0; s < steps; ++s) {
    Vec b[NV];
#pragma GCC unroll 8
    for (int j = 0; j < NV; ++j) b[j] = load(reinterpret_cast<const float*>(panel) + j * kLanes);
    panel += kTileCols;
#pragma GCC unroll 8
    for (int i = 0; i < MR; ++i) {
      const Vec x = P::broadcast(rows[i] + s);
#pragma GCC unroll 8
      for (int j = 0; j < NV; ++j) acc[i][j] = P::madd(x, b[j], acc[i][j]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < MR; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < NV; ++j) {
      float* to = c[i] + c_offset + j * kLanes;
      if (j == NV - 1) {
        store_n(to, acc[i][j], tail);
      } else {
        store(to, acc[i][j]);
      }
    }
  }
}

template <class P, int NV>
void tile_rows(int rows, const typename P::Elem* const* a, int64_t a_offset, const typename P::Elem* panel,
               int64_t steps, float* const* c, int64_t c_offset, int cols, bool first) {
  switch (rows) {
    case 1:
      return tile<P, 1, NV>(a, a_offset, panel, steps, c, c_offset, cols, first);
    case 2:
      return tile<P, 2, NV>(a, a_offset, panel, steps, c, c_offset, cols, first);
    case 3:
      return tile<P, 3, NV>(a, a_offset, panel, steps, c, c_offset, cols, first);
    case 4:
      return tile<P, 4, NV>(a, a_offset, panel, steps, c, c_offset, cols, first);
    case 5:
      return tile<P, 5, NV>(a, a_offset, panel, steps, c, c_offset, cols, first);
    default:
      return tile<P, 6, NV>(a, a_offset, panel, steps, c, c_offset, cols, first);
  }
}

// Weight blocks that will be decoded next, fetched into the second cache a few at a time between tiles, so
// that their way from memory is hidden behind the multiplications.
struct Ahead {
  const char* at;  // the next row's
  int64_t stride;
  int64_t rows;   // left to fetch
  int64_t bytes;  // of each

  void fetch(int64_t n) {
#if defined(__GNUC__)
    for (; n > 0 && rows > 0; --n, --rows, at += stride) {
      for (int64_t b = 0; b < bytes; b += 64) __builtin_prefetch(at + b, 0, 2);
    }
#endif
  }
};

// The product of m rows with a panel of `cols` columns: rows in evenly split blocks of at most kTileRows.
template <class P>
void multiply(int64_t m, const typename P::Elem* const* a, int64_t a_offset, const typename P::Elem* panel,
              int64_t steps, float* const* c, int64_t c_offset, int cols, bool first, Ahead ahead) {
  const int64_t blocks = ceil_div(m, kTileRows);
  const int64_t calls = blocks * ceil_div(cols, kTileCols), each = ceil_div(ahead.rows, calls);
  for (int g = 0; g < cols; g += kTileCols, panel += steps * kTileCols) {
    const int n = cols - g < kTileCols ? cols - g : kTileCols;
    const int vecs = (int)ceil_div(n, kLanes);
    int64_t i = 0;
    for (int64_t b = 0; b < blocks; ++b) {
      ahead.fetch(each);
      const int rows = (int)ceil_div(m - i, blocks - b);
      switch (vecs) {
        case 1:
          tile_rows<P, 1>(rows, a + i, a_offset, panel, steps, c + i, c_offset + g, n, first);
          break;
        case 2:
          tile_rows<P, 2>(rows, a + i, a_offset, panel, steps, c + i, c_offset + g, n, first);
          break;
#if defined(__AVX512F__)
        case 3:
          tile_rows<P, 3>(rows, a + i, a_offset, panel, steps, c + i, c_offset + g, n, first);
          break;
        default:
          tile_rows<P, 4>(rows, a + i, a_offset, panel, steps, c + i, c_offset + g, n, first);
          break;
#else
        default:
          break;
#endif
      }
      i += rows;
    }
  }
}

#if defined(__AVX512F__)
// Transposes 16 x 16 dwords: rows of `in` (stride in dwords) become columns of `out`.
inline void transpose_block(const uint32_t* in, int64_t in_stride, uint32_t* out, int64_t out_stride) {
  __m512i r[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) r[i] = _mm512_loadu_si512(in + i * in_stride);
  transpose16(r);
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) _mm512_storeu_si512(out + i * out_stride, r[i]);
}
#endif

// kPackRows rows of `n` dwords, `stride` apart, into columns of a panel.
inline void transpose_rows(const uint32_t* rows, int64_t stride, int64_t n, uint32_t* panel) {
  int64_t k = 0;
#if defined(__AVX512F__)
  for (; k + 16 <= n; k += 16) transpose_block(rows + k, stride, panel + k * kTileCols, kTileCols);
#endif
  for (; k < n; ++k)
    for (int r = 0; r < kPackRows; ++r) panel[k * kTileCols + r] = rows[r * stride + k];
}

// A weight row's `n` elements as the panel wants them: f32, or bf16 where those are multiplied as such.
inline void decode(F32Path, const FormatKernels* format, const char* blocks, float* out, int64_t n) {
  format->to_f32(blocks, out, n);
}
#if defined(__AVX512BF16__)
inline void decode(Bf16Path, const FormatKernels* format, const char* blocks, uint32_t* out, int64_t n) {
  uint16_t* o = reinterpret_cast<uint16_t*>(out);
  if (format->to_bf16) {
    format->to_bf16(blocks, o, n);
    if (n % 2) memset(o + n, 0, 2);
  } else {
    float values[kDecodeElements];
    format->to_f32(blocks, values, n);
    convert_row(values, out, n);
  }
}
#else
inline void decode(Bf16Path, const FormatKernels* format, const char* blocks, float* out, int64_t n) {
  format->to_f32(blocks, out, n);
  convert_row(out, out, n);
}
#endif

// Forward panel: weight rows [row, row + cols) at elements [k0, k0 + depth), lanes over rows.  `expert`
// points at the first row; tmp holds kPackRows * kTmpStride dwords.
template <class P>
void pack_forward(const NodeView& w, const char* expert, int64_t row, int cols, int64_t k0, int64_t depth,
                  void* tmp, typename P::Elem* panel) {
  typename P::Elem* rows = static_cast<typename P::Elem*>(tmp);
  const int64_t at = k0 / w.block_elements * w.block_bytes, steps = elems<P>(depth);
  for (int c = 0; c < cols; c += kPackRows) {
    // Lanes past the last column keep what was there; their sums are not stored.
    for (int r = 0; r < kPackRows && c + r < cols; ++r) {
      decode(P{}, w.format, expert + (row + c + r) * w.nb[1] + at, rows + r * kTmpStride, depth);
    }
    transpose_rows(static_cast<const uint32_t*>(tmp), kTmpStride, steps,
                   reinterpret_cast<uint32_t*>(panel + c / kTileCols * kTileCols * steps + c % kTileCols));
  }
}

// Columns of the group that begins at column c of `cols`.
inline int64_t group_cols(int64_t c, int64_t cols) { return cols - c < kTileCols ? cols - c : kTileCols; }

// Backward panel: weight rows [row, row + depth) at elements [k0, k0 + cols), lanes over elements.  Lanes
// past the last column keep what was there.
template <class P>
void pack_back_plain(const NodeView& w, const char* expert, int64_t row, int64_t depth, int64_t k0,
                     int64_t cols, float* tmp, float* panel) {
  const int64_t at = k0 / w.block_elements * w.block_bytes;
  for (int64_t r = 0; r < depth; ++r) {
    decode(P{}, w.format, expert + (row + r) * w.nb[1] + at, tmp, cols);
    for (int64_t c = 0; c < cols; c += kTileCols) {
      float* out = panel + c * depth + r * kTileCols;
      for (int64_t j = 0; j < group_cols(c, cols); j += kLanes) store(out + j, load(tmp + c + j));
    }
  }
}

inline void pack_back(F32Path, const NodeView& w, const char* expert, int64_t row, int64_t depth, int64_t k0,
                      int64_t cols, void* tmp, float* panel) {
  pack_back_plain<F32Path>(w, expert, row, depth, k0, cols, static_cast<float*>(tmp), panel);
}

#if defined(__AVX512BF16__)
// Pairs are of two rows, so nothing is transposed.
inline void pack_back(Bf16Path, const NodeView& w, const char* expert, int64_t row, int64_t depth, int64_t k0,
                      int64_t cols, void* tmp, uint32_t* panel) {
  const int64_t at = k0 / w.block_elements * w.block_bytes, steps = elems<Bf16Path>(depth);
  uint16_t *even = static_cast<uint16_t*>(tmp), *odd = even + 2 * kTmpStride;
  // Elements 0 .. 15 of the even and the odd row in turn, and 16 .. 31.
  alignas(64) uint16_t low[32], high[32];
  for (int i = 0; i < 16; ++i) {
    low[2 * i] = (uint16_t)i;
    low[2 * i + 1] = (uint16_t)(32 + i);
    high[2 * i] = (uint16_t)(16 + i);
    high[2 * i + 1] = (uint16_t)(48 + i);
  }
  const __m512i of_low = _mm512_load_si512(low), of_high = _mm512_load_si512(high);
  for (int64_t s = 0; s < steps; ++s) {
    const char* blocks = expert + (row + 2 * s) * w.nb[1] + at;
    decode(Bf16Path{}, w.format, blocks, reinterpret_cast<uint32_t*>(even), cols);
    if (2 * s + 1 < depth) {
      decode(Bf16Path{}, w.format, blocks + w.nb[1], reinterpret_cast<uint32_t*>(odd), cols);
    } else {
      memset(odd, 0, (size_t)cols * 2);
    }
    for (int64_t c = 0; c < cols; c += 32) {
      uint32_t* out = panel + c / kTileCols * kTileCols * steps + s * kTileCols + c % kTileCols;
      const __m512i e = _mm512_loadu_si512(even + c), o = _mm512_loadu_si512(odd + c);
      _mm512_storeu_si512(out, _mm512_permutex2var_epi16(e, of_low, o));
      _mm512_storeu_si512(out + 16, _mm512_permutex2var_epi16(e, of_high, o));
    }
  }
}
#else
inline void pack_back(Bf16Path, const NodeView& w, const char* expert, int64_t row, int64_t depth, int64_t k0,
                      int64_t cols, void* tmp, float* panel) {
  pack_back_plain<Bf16Path>(w, expert, row, depth, k0, cols, static_cast<float*>(tmp), panel);
}
#endif

// Scratch of one thread.
struct ThreadScratch {
  const void** a;  // row pointers of a unit's operands
  float** c;       // and of its results
  char* tmp;       // kTmpBytes of decoded rows
  char* panel;
};
constexpr size_t kPanelBytes = (size_t)kBackDepth * kBackCols * 4;
constexpr size_t kTmpBytes = (size_t)kPackRows * kTmpStride * 4;
constexpr size_t kThreadScratchBytes = kPanelBytes + kTmpBytes + 2 * (size_t)kMaxUnitTokens * sizeof(void*);
static_assert((size_t)kForwardDepth * kPanelCols * 4 <= kPanelBytes, "the forward panel fits too");

inline ThreadScratch thread_scratch(const KernelArgs& args, int thread) {
  char* p = args.thread_scratch + (size_t)thread * args.thread_scratch_stride;
  ThreadScratch s;
  s.panel = p;
  s.tmp = p + kPanelBytes;
  p += kPanelBytes + kTmpBytes;
  s.a = reinterpret_cast<const void**>(p);
  s.c = reinterpret_cast<float**>(p + kMaxUnitTokens * sizeof(void*));
  return s;
}

// Weight rows [row, row + rows) at elements [k, k + n), as far as the matrix goes.
inline Ahead weights_ahead(const NodeView& w, const char* expert, int64_t row, int64_t rows, int64_t k,
                           int64_t n) {
  if (k >= w.ne[0] || row >= w.ne[1]) return {nullptr, 0, 0, 0};
  const int64_t elements = w.ne[0] - k < n ? w.ne[0] - k : n;
  return {expert + row * w.nb[1] + k / w.block_elements * w.block_bytes, w.nb[1],
          w.ne[1] - row < rows ? w.ne[1] - row : rows, elements / w.block_elements * w.block_bytes};
}

// What follows the forward panel at row n0 and element k0: the next blocks of its rows, or the first ones of
// the rows after them.
inline Ahead forward_ahead(const NodeView& w, const char* expert, int64_t n0, int64_t k0) {
  const bool last = k0 + kForwardDepth >= w.ne[0];
  return weights_ahead(w, expert, last ? n0 + kPanelCols : n0, kPanelCols, last ? 0 : k0 + kForwardDepth,
                       kForwardDepth);
}

// What follows the backward panel at row r0 and element k0: the next rows, or the first ones of the next
// columns.
inline Ahead back_ahead(const NodeView& w, const char* expert, int64_t r0, int64_t k0) {
  const bool last = r0 + kBackDepth >= w.ne[1];
  return weights_ahead(w, expert, last ? 0 : r0 + kBackDepth, kBackDepth, last ? k0 + kBackCols : k0,
                       kBackCols);
}

// The unit of a forward product: m rows against weight rows [n0, n0 + kPanelCols) of one expert.
template <class P>
void forward_unit(P, const NodeView& w, const char* expert, int64_t n0, int64_t m, const ThreadScratch& s) {
  const typename P::Elem* const* a = reinterpret_cast<const typename P::Elem* const*>(s.a);
  typename P::Elem* panel = reinterpret_cast<typename P::Elem*>(s.panel);
  const int cols = (int)(w.ne[1] - n0 < kPanelCols ? w.ne[1] - n0 : kPanelCols);
  for (int64_t k0 = 0; k0 < w.ne[0]; k0 += kForwardDepth) {
    const int64_t depth = w.ne[0] - k0 < kForwardDepth ? w.ne[0] - k0 : kForwardDepth;
    pack_forward<P>(w, expert, n0, cols, k0, depth, s.tmp, panel);
    multiply<P>(m, a, k0 / P::kPack, panel, elems<P>(depth), s.c, n0, cols, k0 == 0,
                forward_ahead(w, expert, n0, k0));
  }
}

// The unit of a backward product: m rows against weight columns [k0, k0 + kBackCols) of one expert.
template <class P>
void back_unit(const NodeView& w, const char* expert, int64_t k0, int64_t m, const ThreadScratch& s) {
  const typename P::Elem* const* a = reinterpret_cast<const typename P::Elem* const*>(s.a);
  typename P::Elem* panel = reinterpret_cast<typename P::Elem*>(s.panel);
  const int64_t cols = w.ne[0] - k0 < kBackCols ? w.ne[0] - k0 : kBackCols;
  for (int64_t r0 = 0; r0 < w.ne[1]; r0 += kBackDepth) {
    const int64_t depth = w.ne[1] - r0 < kBackDepth ? w.ne[1] - r0 : kBackDepth;
    pack_back(P{}, w, expert, r0, depth, k0, cols, s.tmp, panel);
    multiply<P>(m, a, r0 / P::kPack, panel, elems<P>(depth), s.c, k0, (int)cols, r0 == 0,
                back_ahead(w, expert, r0, k0));
  }
}

// Tokens of a unit whose panel takes `macs_per_token`, about: even_blocks() makes it up to half as many more.
inline int64_t unit_tokens(int64_t macs_per_token) {
  constexpr int64_t kMost = kMaxUnitTokens * 2 / 3;
  const int64_t n = kUnitMacs / (macs_per_token + 1);
  return n < kMinUnitTokens ? kMinUnitTokens : n > kMost ? kMost : n;
}

// Blocks of about `each` that n things are cut into, evenly: a small rest would cost a decoded panel of its
// own.  At most 1 + n / each.
inline int64_t even_blocks(int64_t n, int64_t each) {
  const int64_t blocks = (n + each / 2) / each;
  return blocks > 0 ? blocks : 1;
}

// Row r of a tensor, rows counted over ne1, ne2, ne3.
inline char* row_of(const NodeView& t, int64_t r) {
  const int64_t i1 = r % t.ne[1], i2 = r / t.ne[1] % t.ne[2], i3 = r / (t.ne[1] * t.ne[2]);
  return static_cast<char*>(t.data) + i1 * t.nb[1] + i2 * t.nb[2] + i3 * t.nb[3];
}

inline int64_t rows_of(const NodeView& t) { return t.ne[1] * t.ne[2] * t.ne[3]; }

constexpr int64_t kConvertRows = 32;  // activation rows of a conversion unit

// Converts rows [unit * kConvertRows, ...) of x into `out`, elems(x.ne[0]) apart.
template <class P>
void convert_unit(const NodeView& x, void* out, int64_t unit) {
  if constexpr (P::kConverts) {
    const int64_t stride = elems<P>(x.ne[0]), rows = rows_of(x);
    const int64_t end = (unit + 1) * kConvertRows < rows ? (unit + 1) * kConvertRows : rows;
    for (int64_t r = unit * kConvertRows; r < end; ++r) {
      convert_row(reinterpret_cast<const float*>(row_of(x, r)),
                  static_cast<typename P::Elem*>(out) + r * stride, x.ne[0]);
    }
  }
}

// Row r of x as the tile reads it: where it lies, or in the converted copy.
template <class P>
const void* operand_row(const NodeView& x, const void* converted, int64_t r) {
  if constexpr (P::kInt8) {
    return static_cast<const char*>(converted) + r * P::row_bytes(x.ne[0]);
  } else if constexpr (P::kConverts) {
    return static_cast<const typename P::Elem*>(converted) + r * elems<P>(x.ne[0]);
  } else {
    return row_of(x, r);
  }
}

// Bytes of the converted copy of x.
template <class P>
size_t converted_bytes(const NodeView& x) {
  return P::kConverts ? (size_t)(elems<P>(x.ne[0]) * rows_of(x)) * sizeof(typename P::Elem) : 0;
}

// Outer products summed over steps: dst[m, n] = sum of a_step[m] b_step[n].  Lanes run over m, in panels of
// kPanelCols; the b rows are turned so that they run along the steps.  A unit is one panel and up to kOutRows
// rows n, over all steps.
constexpr int64_t kOutRows = 96;
constexpr int64_t kOutDepth = 256;
constexpr int64_t kTurnedStride =
    kOutDepth + 16;  // floats; a power of two would put all rows into few cache sets
constexpr size_t kOutPanelBytes = (size_t)kOutDepth * kPanelCols * 4;
constexpr size_t kTurnedBytes = (size_t)kOutRows * kTurnedStride * 4;

inline ScratchBytes out_scratch() {
  return {0, kOutPanelBytes + kTurnedBytes + 2 * (size_t)kOutRows * sizeof(void*)};
}

// Units of one {M, N} result.
inline int64_t out_units(int64_t m, int64_t n) { return ceil_div(m, kPanelCols) * ceil_div(n, kOutRows); }

// Unit `u` of the result at `dst` ({M, N}, rows `dst_stride` floats apart).  a_row(step) and b_row(step) give
// the rows.
template <class ARow, class BRow>
void out_unit(float* dst, int64_t m_total, int64_t n_total, int64_t dst_stride, int64_t u, int64_t steps,
              ARow a_row, BRow b_row, char* scratch) {
  float* panel = reinterpret_cast<float*>(scratch);
  float* turned = reinterpret_cast<float*>(scratch + kOutPanelBytes);
  char* lists = scratch + kOutPanelBytes + kTurnedBytes;
  const float** rows = reinterpret_cast<const float**>(lists);
  float** results = reinterpret_cast<float**>(lists + kOutRows * sizeof(void*));
  const int64_t panels = ceil_div(m_total, kPanelCols), m0 = u % panels * kPanelCols,
                n0 = u / panels * kOutRows;
  const int cols = (int)(m_total - m0 < kPanelCols ? m_total - m0 : kPanelCols);
  const int64_t n = n_total - n0 < kOutRows ? n_total - n0 : kOutRows;
  for (int64_t i = 0; i < n; ++i) {
    rows[i] = turned + i * kTurnedStride;
    results[i] = dst + (n0 + i) * dst_stride;
    if (steps == 0) memset(results[i] + m0, 0, (size_t)cols * 4);
  }
  for (int64_t s0 = 0; s0 < steps; s0 += kOutDepth) {
    const int64_t depth = steps - s0 < kOutDepth ? steps - s0 : kOutDepth;
    for (int64_t s = 0; s < depth; ++s) {
      const float* from = a_row(s0 + s) + m0;
      for (int64_t c = 0; c < cols; c += kTileCols) {
        const int64_t wide = group_cols(c, cols);
        float* out = panel + c * depth + s * kTileCols;
        for (int64_t j = 0; j < wide; j += kLanes) {
          store(out + j, load_n(from + c + j, wide - j < kLanes ? (int)(wide - j) : kLanes));
        }
      }
      const float* x = b_row(s0 + s) + n0;
      for (int64_t i = 0; i < n; ++i) turned[i * kTurnedStride + s] = x[i];
    }
    multiply<F32Path>(n, rows, 0, panel, depth, results, m0, cols, s0 == 0, {nullptr, 0, 0, 0});
  }
}

}  // namespace
}  // namespace tandem::TANDEM_ISA
