// Products of small matrices in scratch.  A row is whole vectors, zero behind its columns, and begins an odd
// number of cache lines behind the one before, so that a column of rows does not fall into few sets of the
// cache. Every element of a product is one chain of fma in ascending order of the summed index: it depends
// neither on the rows and columns beside it nor on how they are cut into blocks.
#pragma once
#include "base/kernel.h"
#include "base/simd.h"

namespace tandem::TANDEM_ISA {
namespace {

#if defined(__AVX512F__) && defined(__AVX512DQ__)
constexpr int kBlockRows = 4, kBlockVecs = 4;  // 16 sums, 4 columns and a row's number in 32 registers
#elif defined(__AVX2__) && defined(__FMA__)
constexpr int kBlockRows = 6, kBlockVecs = 2;  // 12 sums of 16 registers
#else
constexpr int kBlockRows = 4, kBlockVecs = 2;
#endif

constexpr int kTriangle = 16;  // rows in which a triangular matrix is treated as a rectangle

inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

// Floats from one row of n columns to the next.
inline int64_t stride_of(int64_t n) { return (ceil_div(n, 16) | 1) * 16; }
// Columns with those that fill the last vector.
inline int64_t whole(int64_t n) { return ceil_div(n, kLanes) * kLanes; }

// Of a product with c: c = ab, c = c + ab, c = c - ab, c = factor c + ab.
enum class Into { Set, Add, Sub, Scaled };

// A matrix, or with row_step and step exchanged its transpose: element (i, k) is p[i * row_step + k * step].
struct Left {
  const float* p;
  int64_t row_step, step;
};
inline Left plain(const float* p, int64_t stride) { return {p, stride, 1}; }
inline Left turned(const float* p, int64_t stride) { return {p, 1, stride}; }

template <int R, int NV, Into kInto>
TANDEM_INLINE void multiply_block(Left a, int64_t depth, const float* b, int64_t b_stride, float* c,
                                  int64_t c_stride, float factor) {
  Vec sum[R][NV];
#pragma GCC unroll 8
  for (int i = 0; i < R; ++i)
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) {
      if (kInto == Into::Set) {
        sum[i][v] = zero();
      } else {
        sum[i][v] = load(c + i * c_stride + v * kLanes);
        if (kInto == Into::Scaled) sum[i][v] = mul(set1(factor), sum[i][v]);
      }
    }
  const float* x = a.p;
  for (int64_t k = 0; k < depth; ++k, b += b_stride, x += a.step) {
    Vec bv[NV];
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) bv[v] = load(b + v * kLanes);
#pragma GCC unroll 8
    for (int i = 0; i < R; ++i) {
      const float number = x[i * a.row_step];
      const Vec xi = set1(kInto == Into::Sub ? -number : number);
#pragma GCC unroll 8
      for (int v = 0; v < NV; ++v) sum[i][v] = fma(xi, bv[v], sum[i][v]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < R; ++i)
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) store(c + i * c_stride + v * kLanes, sum[i][v]);
}

template <int NV, Into kInto>
TANDEM_INLINE void multiply_panel(Left a, int64_t rows, int64_t depth, const float* b, int64_t b_stride,
                                  float* c, int64_t c_stride, float factor) {
  int64_t i = 0;
  const auto next = [&](int n) {
    i += n;
    a.p += n * a.row_step;
    c += n * c_stride;
  };
  while (i + kBlockRows <= rows) {
    multiply_block<kBlockRows, NV, kInto>(a, depth, b, b_stride, c, c_stride, factor);
    next(kBlockRows);
  }
  if (kBlockRows > 4 && i + 4 <= rows) {
    multiply_block<4, NV, kInto>(a, depth, b, b_stride, c, c_stride, factor);
    next(4);
  }
  if (i + 2 <= rows) {
    multiply_block<2, NV, kInto>(a, depth, b, b_stride, c, c_stride, factor);
    next(2);
  }
  if (i < rows) multiply_block<1, NV, kInto>(a, depth, b, b_stride, c, c_stride, factor);
}

// c {columns, rows} from a {depth, rows} and b {columns, depth}; whole vectors of columns are computed.
template <Into kInto>
void multiply(Left a, int64_t rows, int64_t depth, const float* b, int64_t b_stride, int64_t columns,
              float* c, int64_t c_stride, float factor = 1.f) {
  const int64_t n = whole(columns);
  int64_t j = 0;
  for (; j + kBlockVecs * kLanes <= n; j += kBlockVecs * kLanes)
    multiply_panel<kBlockVecs, kInto>(a, rows, depth, b + j, b_stride, c + j, c_stride, factor);
  for (; j < n; j += kLanes)
    multiply_panel<1, kInto>(a, rows, depth, b + j, b_stride, c + j, c_stride, factor);
}

// c (+)= a b for a lower triangular a {n, n}, with zeros above the diagonal.
template <Into kInto>
void multiply_lower(const float* a, int64_t a_stride, int64_t n, const float* b, int64_t b_stride,
                    int64_t columns, float* c, int64_t c_stride) {
  for (int64_t i = 0; i < n; i += kTriangle) {
    const int64_t rows = smaller(kTriangle, n - i);
    multiply<kInto>(plain(a + i * a_stride, a_stride), rows, i + rows, b, b_stride, columns, c + i * c_stride,
                    c_stride);
  }
}

// c += a^T b for an a {n, depth} whose first n rows are lower triangular, with zeros above the diagonal.
template <Into kInto>
void multiply_lower_turned(const float* a, int64_t a_stride, int64_t n, int64_t depth, const float* b,
                           int64_t b_stride, int64_t columns, float* c, int64_t c_stride) {
  for (int64_t i = 0; i < n; i += kTriangle) {
    multiply<kInto>(turned(a + i * a_stride + i, a_stride), smaller(kTriangle, n - i), depth - i,
                    b + i * b_stride, b_stride, columns, c + i * c_stride, c_stride);
  }
}

// The elements on and below the diagonal of a b, for a {depth, n} and b {n, depth}.  Those above it are
// anything.
inline void multiply_to_lower(const float* a, int64_t a_stride, int64_t n, int64_t depth, const float* b,
                              int64_t b_stride, float* c, int64_t c_stride) {
  for (int64_t i = 0; i < n; i += kTriangle) {
    const int64_t rows = smaller(kTriangle, n - i);
    multiply<Into::Set>(plain(a + i * a_stride, a_stride), rows, depth, b, b_stride, i + rows,
                        c + i * c_stride, c_stride);
  }
}

typedef float Quad __attribute__((vector_size(16)));

// y {rows, columns} = x {columns, rows} transposed.
inline void transpose(const float* x, int64_t x_stride, int64_t rows, int64_t columns, float* y,
                      int64_t y_stride) {
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    const float* from = x + r * x_stride;
    int64_t e = 0;
    for (; e + 4 <= columns; e += 4) {
      Quad p[4];
      for (int i = 0; i < 4; ++i) memcpy(&p[i], from + i * x_stride + e, 16);
      const Quad a = __builtin_shufflevector(p[0], p[1], 0, 4, 1, 5),
                 b = __builtin_shufflevector(p[0], p[1], 2, 6, 3, 7);
      const Quad c = __builtin_shufflevector(p[2], p[3], 0, 4, 1, 5),
                 d = __builtin_shufflevector(p[2], p[3], 2, 6, 3, 7);
      const Quad out[4] = {
          __builtin_shufflevector(a, c, 0, 1, 4, 5), __builtin_shufflevector(a, c, 2, 3, 6, 7),
          __builtin_shufflevector(b, d, 0, 1, 4, 5), __builtin_shufflevector(b, d, 2, 3, 6, 7)};
      for (int i = 0; i < 4; ++i) memcpy(y + (e + i) * y_stride + r, &out[i], 16);
    }
    for (; e < columns; ++e)
      for (int i = 0; i < 4; ++i) y[e * y_stride + r + i] = from[i * x_stride + e];
  }
  for (; r < rows; ++r)
    for (int64_t e = 0; e < columns; ++e) y[e * y_stride + r] = x[r * x_stride + e];
}

// Zeros behind the first n columns of each row.
inline void pad(float* x, int64_t stride, int64_t rows, int64_t n) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t e = n; e < whole(n); ++e) x[r * stride + e] = 0;
}

inline void fill_zero(float* x, int64_t stride, int64_t rows) {
  for (int64_t e = 0; e < rows * stride; e += kLanes) store(x + e, zero());
}

// y = factor x for a row of n numbers that lie anywhere; y is a row of scratch.
inline void load_row(const float* x, int64_t n, float factor, float* y) {
  const Vec f = set1(factor);
  int64_t e = 0;
  for (; e + kLanes <= n; e += kLanes) store(y + e, mul(f, load(x + e)));
  if (e < n) store(y + e, mul(f, load_n(x + e, (int)(n - e))));
}

// The same to where only n numbers have room, from a row of scratch.
inline void store_row(const float* x, int64_t n, float factor, float* y) {
  const Vec f = set1(factor);
  int64_t e = 0;
  for (; e + kLanes <= n; e += kLanes) store(y + e, mul(f, load(x + e)));
  if (e < n) store_n(y + e, mul(f, load(x + e)), (int)(n - e));
}

// y = factor x, rows of scratch; y may be x.
inline void scale_row(const float* x, int64_t n, float factor, float* y) {
  const Vec f = set1(factor);
  for (int64_t e = 0; e < n; e += kLanes) store(y + e, mul(f, load(x + e)));
}

// The product of two rows of scratch.
inline float dot(const float* x, const float* y, int64_t n) {
  Vec sum[2] = {zero(), zero()};
  int64_t e = 0;
  for (; e + 2 * kLanes <= n; e += 2 * kLanes) {
    sum[0] = fma(load(x + e), load(y + e), sum[0]);
    sum[1] = fma(load(x + e + kLanes), load(y + e + kLanes), sum[1]);
  }
  for (; e < n; e += kLanes) sum[0] = fma(load(x + e), load(y + e), sum[0]);
  return reduce_add(add(sum[0], sum[1]));
}

}  // namespace
}  // namespace tandem::TANDEM_ISA
