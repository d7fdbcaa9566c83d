// A small vector vocabulary for kernel files (*.cpu.cpp), which are compiled once per ISA level.  Everything
// here is inlined into its caller and lives in the level's namespace, so no copy of it can be shared between
// levels.
#pragma once
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
// GCC 12 sees its own _mm512_undefined_ps() as a variable used uninitialized; GCC 13 does not.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#pragma GCC diagnostic pop
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#if !defined(TANDEM_ISA)
#error "base/simd.h is for kernel files, which are compiled with -DTANDEM_ISA=isa_<level>"
#endif

#define TANDEM_INLINE static inline __attribute__((always_inline))

namespace tandem::TANDEM_ISA {

#if defined(__AVX512F__) && defined(__AVX512DQ__)
constexpr int kLanes = 16;
#elif defined(__AVX2__) && defined(__FMA__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;  // base: SSE2 or NEON
#endif

typedef float Vec __attribute__((vector_size(kLanes * 4)));
typedef int32_t IVec __attribute__((vector_size(kLanes * 4)));

// How many parts of b cover a.  a >= 0, b > 0.
TANDEM_INLINE int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Pointers of load and store need the alignment of a float only.
TANDEM_INLINE Vec load(const float* p) {
  Vec v;
  memcpy(&v, p, sizeof v);
  return v;
}
TANDEM_INLINE void store(float* p, Vec v) { memcpy(p, &v, sizeof v); }
TANDEM_INLINE Vec zero() { return Vec{}; }
TANDEM_INLINE Vec set1(float x) { return x - Vec{}; }  // minus zero: keeps the sign of a zero x

TANDEM_INLINE Vec add(Vec a, Vec b) { return a + b; }
TANDEM_INLINE Vec sub(Vec a, Vec b) { return a - b; }
TANDEM_INLINE Vec mul(Vec a, Vec b) { return a * b; }

// a * b + c, rounded once where the level has FMA and twice on the base of x86-64.
TANDEM_INLINE Vec fma(Vec a, Vec b, Vec c) {
#if defined(__AVX512F__) && defined(__AVX512DQ__)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__AVX2__) && defined(__FMA__)
  return _mm256_fmadd_ps(a, b, c);
#elif defined(__aarch64__)
  return (Vec)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
  return a * b + c;
#endif
}

// a > b ? a : b per lane: b where either is NaN.
TANDEM_INLINE Vec max(Vec a, Vec b) { return a > b ? a : b; }
// a < b ? a : b per lane: b where either is NaN.
TANDEM_INLINE Vec min(Vec a, Vec b) { return a < b ? a : b; }

// The first n lanes from p, zero in the others; reads no more than n floats.  n in [0, kLanes].
TANDEM_INLINE Vec load_n(const float* p, int n) {
#if defined(__AVX512F__) && defined(__AVX512DQ__)
  return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1u), p);
#elif defined(__AVX2__) && defined(__FMA__)
  const IVec lane = {0, 1, 2, 3, 4, 5, 6, 7};
  return _mm256_maskload_ps(p, (__m256i)(lane < n));
#else
  Vec v{};
  for (int i = 0; i < kLanes; ++i) {
    if (i < n) v[i] = p[i];
  }
  return v;
#endif
}

// The first n lanes to p; writes no more than n floats.  n in [0, kLanes].
TANDEM_INLINE void store_n(float* p, Vec v, int n) {
#if defined(__AVX512F__) && defined(__AVX512DQ__)
  _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1u), v);
#elif defined(__AVX2__) && defined(__FMA__)
  const IVec lane = {0, 1, 2, 3, 4, 5, 6, 7};
  _mm256_maskstore_ps(p, (__m256i)(lane < n), v);
#else
  for (int i = 0; i < kLanes; ++i) {
    if (i < n) p[i] = v[i];
  }
#endif
}

// kLanes bytes from p, each widened to a lane.
TANDEM_INLINE IVec load_u8(const uint8_t* p) {
#if defined(__AVX512F__) && defined(__AVX512DQ__)
  return (IVec)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i*)p));
#elif defined(__AVX2__) && defined(__FMA__)
  return (IVec)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i*)p));
#elif defined(__SSE2__)
  int32_t bytes;
  memcpy(&bytes, p, 4);
  const __m128i pairs = _mm_unpacklo_epi8(_mm_cvtsi32_si128(bytes), _mm_setzero_si128());
  return (IVec)_mm_unpacklo_epi16(pairs, _mm_setzero_si128());
#else
  return IVec{p[0], p[1], p[2], p[3]};
#endif
}
TANDEM_INLINE IVec load_i8(const int8_t* p) {
#if defined(__AVX512F__) && defined(__AVX512DQ__)
  return (IVec)_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)p));
#elif defined(__AVX2__) && defined(__FMA__)
  return (IVec)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)p));
#elif defined(__SSE2__)
  int32_t bytes;
  memcpy(&bytes, p, 4);
  const __m128i pairs = _mm_unpacklo_epi8(_mm_setzero_si128(), _mm_cvtsi32_si128(bytes));
  return (IVec)_mm_srai_epi32(_mm_unpacklo_epi16(_mm_setzero_si128(), pairs), 24);
#else
  return IVec{p[0], p[1], p[2], p[3]};
#endif
}

// The integers as floats, rounded to nearest even above 2^24.
TANDEM_INLINE Vec to_float(IVec v) { return __builtin_convertvector(v, Vec); }

// The sum of all lanes: the upper half is added onto the lower one until one lane is left.
TANDEM_INLINE float reduce_add(Vec v) {
#if defined(__AVX2__) && defined(__FMA__)
#if defined(__AVX512F__) && defined(__AVX512DQ__)
  const __m256 v8 = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
#else
  const __m256 v8 = v;
#endif
  const __m128 v4 = _mm_add_ps(_mm256_castps256_ps128(v8), _mm256_extractf128_ps(v8, 1));
  const __m128 v2 = _mm_add_ps(v4, _mm_movehl_ps(v4, v4));
  return _mm_cvtss_f32(_mm_add_ss(v2, _mm_movehdup_ps(v2)));
#else
  return (v[0] + v[2]) + (v[1] + v[3]);
#endif
}

// The largest lane, folded as reduce_add.  Lanes are not NaN.
TANDEM_INLINE float reduce_max(Vec v) {
#if defined(__AVX2__) && defined(__FMA__)
#if defined(__AVX512F__) && defined(__AVX512DQ__)
  const __m256 v8 = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
#else
  const __m256 v8 = v;
#endif
  const __m128 v4 = _mm_max_ps(_mm256_castps256_ps128(v8), _mm256_extractf128_ps(v8, 1));
  const __m128 v2 = _mm_max_ps(v4, _mm_movehl_ps(v4, v4));
  return _mm_cvtss_f32(_mm_max_ss(v2, _mm_movehdup_ps(v2)));
#else
  const float a = v[0] > v[2] ? v[0] : v[2];
  const float b = v[1] > v[3] ? v[1] : v[3];
  return a > b ? a : b;
#endif
}

// e^x per lane, within 2 ulp (1.0 was the worst seen, with and without FMA), subnormal results included;
// 0 below -104, infinite above 88.73, NaN for NaN.
//
// e^x = 2^n e^r with n = round(x / ln 2) and |r| <= ln(2) / 2;  e^r = 1 + r + r^2 q(r), q of degree 4 fitted
// by exchange (Remez) to a relative error of 3.1e-9.
TANDEM_INLINE Vec exp(Vec x) {
  x = max(set1(-104.0f), min(set1(89.0f), x));              // in this order NaN passes
  const Vec magic = set1(0x1.8p23f);                        // its ulp is 1: the sum is rounded to an integer
  const Vec shifted = fma(x, set1(0x1.715476p+0f), magic);  // x / ln 2
  const Vec n = shifted - magic;
  Vec r = fma(n, set1(-0x1.62e4p-1f), x);  // 15 bits of ln 2: n times it is exact
  r = fma(n, set1(-0x1.7f7d1cp-20f), r);   // the rest of ln 2
  Vec q = set1(0x1.6a2352p-10f);
  q = fma(q, r, set1(0x1.123a6cp-7f));
  q = fma(q, r, set1(0x1.5558f4p-5f));
  q = fma(q, r, set1(0x1.555490p-3f));
  q = fma(q, r, set1(0x1.fffffcp-2f));
  const Vec p = fma(q, r * r, r) + set1(1.0f);
#if defined(__AVX512F__) && defined(__AVX512DQ__)
  return _mm512_scalef_ps(p, n);
#else
  // 2^n in two factors, both normal: n is in [-150, 128].  A NaN has garbage in `factor` only, and stays NaN.
  const IVec whole = (IVec)shifted - (IVec)magic;
  const IVec half = whole >> 1;
  const Vec factor = (Vec)((half + 127) << 23);
  const Vec factor2 = (Vec)((whole - half + 127) << 23);
  return p * factor * factor2;
#endif
}

TANDEM_INLINE uint32_t bits_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  return bits;
}
TANDEM_INLINE float float_of_bits(uint32_t bits) {
  float x;
  memcpy(&x, &bits, 4);
  return x;
}

// The value of a binary16.  Exact; a signalling NaN comes out quiet.  Source: quantization.md 2.
TANDEM_INLINE float f16_to_f32(uint16_t h) {
#if defined(__F16C__)
  return _cvtsh_ss(h);
#else
  const uint32_t sign = (uint32_t)(h & 0x8000) << 16;
  const uint32_t wide = (uint32_t)(h & 0x7fff) << 13;
  // Bits of a subnormal put below the exponent of 2^-14 mean 2^-14 + value: subtract it again.  Masks, not
  // branches, so that loops over this vectorize.
  const uint32_t subnormal = bits_of(float_of_bits(wide + (113u << 23)) - 0x1p-14f);
  const uint32_t normal = wide + (112u << 23);
  const uint32_t is_subnormal = 0u - (uint32_t)(wide < 0x00800000u);
  const uint32_t is_special = 0u - (uint32_t)(wide >= 0x0f800000u);
  const uint32_t is_nan = 0u - (uint32_t)(wide > 0x0f800000u);
  const uint32_t finite = (subnormal & is_subnormal) | (normal & ~is_subnormal);
  return float_of_bits(sign | finite | (is_special & 0x7f800000u) | (is_nan & 0x400000u));
#endif
}

// The nearest binary16, ties to even; NaN quiet.  Source: quantization.md 2.
TANDEM_INLINE uint16_t f32_to_f16(float x) {
#if defined(__F16C__)
  return _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT);
#else
  const uint32_t bits = bits_of(x);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  // Below 2^-14 the sum with 0.5, whose ulp is 2^-24, does the rounding.
  const uint32_t subnormal = bits_of(float_of_bits(magnitude) + 0.5f) - 0x3f000000u;
  const uint32_t normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  const uint32_t finite = magnitude < 0x38800000u ? subnormal : normal;
  const uint32_t nan = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  const uint32_t special = magnitude > 0x7f800000u ? nan : 0x7c00u;
  return (uint16_t)(sign | (magnitude >= 0x477ff000u ? special : finite));
#endif
}

// The value of a bfloat16.  Exact.
TANDEM_INLINE float bf16_to_f32(uint16_t b) { return float_of_bits((uint32_t)b << 16); }

// The nearest bfloat16, ties to even; NaN quiet.  Source: quantization.md 2.
TANDEM_INLINE uint16_t f32_to_bf16(float x) {
  const uint32_t bits = bits_of(x);
  const uint32_t nan = (bits >> 16) | 0x40u;
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

#if defined(__AVX512F__)
// Transposes 16 x 16 dwords: r[i] becomes column i.
TANDEM_INLINE void transpose16(__m512i r[16]) {
  __m512i t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {  // pairs of dwords
    t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {  // quadruples: r[4i + j] has columns j, j + 4, j + 8, j + 12 of rows 4i ..
    r[4 * i] = _mm512_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
    r[4 * i + 1] = _mm512_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
    r[4 * i + 2] = _mm512_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
    r[4 * i + 3] = _mm512_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const __m512i a = _mm512_shuffle_i32x4(r[j], r[4 + j], 0x44),
                  b = _mm512_shuffle_i32x4(r[j], r[4 + j], 0xee);
    const __m512i c = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0x44),
                  d = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0xee);
    r[j] = _mm512_shuffle_i32x4(a, c, 0x88);
    r[4 + j] = _mm512_shuffle_i32x4(a, c, 0xdd);
    r[8 + j] = _mm512_shuffle_i32x4(b, d, 0x88);
    r[12 + j] = _mm512_shuffle_i32x4(b, d, 0xdd);
  }
}
#endif

#if defined(__AVX512BF16__)

// --- rows of bf16, where the machine computes with them ---
// Conversion is to nearest, ties to even; subnormal values become zero, as the instruction has it.  Codes of
// up to five bits are looked up in a table of rounded values, 32 at a time.

TANDEM_INLINE Vec iota() {
  return Vec{0.f, 1.f, 2.f, 3.f, 4.f, 5.f, 6.f, 7.f, 8.f, 9.f, 10.f, 11.f, 12.f, 13.f, 14.f, 15.f};
}

// 32 values rounded, those of `low` first.
TANDEM_INLINE __m512i round_bf16(Vec low, Vec high) {
  return (__m512i)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low);
}

// A table of sixteen values; look_up() ignores all but the low four bits of a code.
TANDEM_INLINE __m512i table_of_16(Vec values) {
  return _mm512_broadcast_i64x4((__m256i)_mm512_cvtneps_pbh((__m512)values));
}

// The values of 32 codes, one per 16-bit lane; all but the low five bits are ignored.
TANDEM_INLINE __m512i look_up(__m512i table, __m512i codes) { return _mm512_permutexvar_epi16(codes, table); }

// 32 bytes, each widened to a lane of 16 bits.
TANDEM_INLINE __m512i load_u8x32(const uint8_t* p) {
  return _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i*)p));
}

// The low halves of 16 bytes, then their high halves, in the low four bits of 32 lanes; the bits above are
// anything.
TANDEM_INLINE __m512i load_nibbles(const uint8_t* p) {
  const __m128i packed = _mm_loadu_si128((const __m128i*)p);
  return _mm512_cvtepu8_epi16(_mm256_set_m128i(_mm_srli_epi16(packed, 4), packed));
}

TANDEM_INLINE void store_bf16(uint16_t* p, __m512i v) { _mm512_storeu_si512(p, v); }

// The first n of 16 values, rounded, to p.  n in [0, 16].
TANDEM_INLINE void store_bf16_n(uint16_t* p, Vec v, int n) {
  _mm256_mask_storeu_epi16(p, (__mmask16)((1u << n) - 1u), (__m256i)_mm512_cvtneps_pbh((__m512)v));
}

#endif

}  // namespace tandem::TANDEM_ISA
