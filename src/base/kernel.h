// What a CPU kernel is and sees.  Included by kernel files (*.cpu.cpp), which are compiled once per ISA
// level, so this header holds plain data and nothing the compiler could emit as a shared (weak) symbol.
#pragma once
#include <stddef.h>
#include <stdint.h>

namespace tandem {

constexpr int kMaxDims = 4;
constexpr int kMaxSrc = 8;

// How products with weights are computed.  Source: codebase.md 5.
enum class Precision : int32_t {
  F32,   // f32 operands
  BF16,  // operands rounded to bf16, f32 accumulation
  Int8,  // forward products only: activations rounded to bytes, weights as they lie in the file
};

constexpr int kI8Rows = 16;    // weight rows of an Int8Panel
constexpr int kI8Depth = 256;  // and its elements of a row, at most

// Rows of a weight as integers: the value of element k of row r is
//   scales[k / group][r] * (codes[k / 4][r][k % 4] - zero) + offsets[k / group][r].
struct Int8Panel {
  uint8_t* codes;  // [n / 4][kI8Rows][4]
  float* scales;   // [n / group][kI8Rows]
  float* offsets;  // the same, untouched by formats without offsets
};

// A row of activations as integers: x[k] is about scales[k / 32] * codes[k].
struct Int8Row {
  const int8_t* codes;
  const float* scales;
  const int32_t* sums;  // of 16 codes each
};

// How a format becomes integers.
struct Int8Format {
  // Fills a panel with n elements of `rows` rows, which lie row_bytes apart; rows in [1, kI8Rows], n a
  // multiple of the format's block.  Rows past the last may hold anything.  Exact: codes, zero and scales are
  // those of the reference's decoding, each scale rounded as it rounds it.  Null: the format has no such
  // form.
  void (*pack)(const void* blocks, int64_t row_bytes, int rows, int64_t n, const Int8Panel& panel);
  int32_t group;     // elements under one scale: 16 or 32
  int32_t zero;      // the code that stands for zero
  bool has_offsets;  // a multiple of one is added to every element of a group
  // The products of `rows` rows (as in pack), of n elements each, with one row of activations, to y: the same
  // bits that a panel and the tile of ops/mul_mat/int8.h give.  Fetches as many bytes behind the rows, for
  // who comes next, if `more`.  Null: nobody has sped it up.
  void (*dot)(const void* blocks, int64_t row_bytes, int rows, int64_t n, const Int8Row& x, bool more,
              float* y) = nullptr;
};

// One weight format at one ISA level.  `n` counts elements and is a multiple of the format's block; rows
// start at a block.  Filled by formats/<type>/<type>.cpu.cpp.
struct FormatKernels {
  void (*to_f32)(const void* blocks, float* dst, int64_t n);
  // The same values rounded to the nearest bf16, ties to even, subnormal ones to zero.  Null where the level
  // has no bf16 arithmetic, and for types that nobody has sped up: then to_f32 and a conversion do.
  void (*to_bf16)(const void* blocks, uint16_t* dst, int64_t n);
  // For products with int8 activations; of one kind at all levels.
  Int8Format int8 = {};
};

// A tensor as a kernel sees it: ne counts elements and nb bytes per step of each dimension, fastest first.
struct NodeView {
  void* data;  // null while a kernel is only asked whether it would take the node
  int64_t ne[kMaxDims];
  int64_t nb[kMaxDims];
  int32_t type;            // DType (formats/dtype.h); F32 = 0, I32 = 26
  int32_t block_elements;  // of the type; 1 for plain types
  int32_t block_bytes;
  const FormatKernels* format;  // decoding of a weight type, null for I32
};

// The arguments of one node.
struct KernelArgs {
  NodeView dst;
  NodeView src[kMaxSrc];
  int32_t n_src;         // including absent optional ones, whose ne[0] is 0
  const void* params;    // the op's parameter struct
  char* shared_scratch;  // 64-byte aligned, lives for the whole node
  char* thread_scratch;  // 64-byte aligned; thread i owns [i * stride, (i + 1) * stride)
  size_t thread_scratch_stride;
};

// Bytes of scratch a node needs: one shared region, and one per thread.
struct ScratchBytes {
  size_t shared;
  size_t per_thread;
};

// A part of a node that can be split.  Units are about 0.1 ms of work, a property of the node and never of
// the thread count; run() does units [lo, hi), writes only what those units own, and does its arithmetic in a
// fixed order.
struct Phase {
  int64_t (*units)(const KernelArgs& args);
  void (*run)(const KernelArgs& args, int64_t lo, int64_t hi, int thread);
};

constexpr int kMaxPhases = 4;

// A kernel of one op at one ISA level.  Phases of a node follow each other.
struct CpuKernel {
  const char* (*refuse)(const KernelArgs& args);    // null: takes it; else the reason in words
  ScratchBytes (*scratch)(const KernelArgs& args);  // null: needs none
  Phase phases[kMaxPhases];                         // the first with a null run ends the list
};

}  // namespace tandem

// TANDEM_ISA is the namespace of the level being compiled: isa_base, isa_avx2, isa_avx512, isa_avx512_bf16.
// Defines the kernel of op NAME at this level: `TANDEM_KERNEL(RMS_NORM) = {refuse, scratch, {{units, run}}};`
#define TANDEM_KERNEL(NAME)          \
  extern const CpuKernel NAME##_cpu; \
  const CpuKernel NAME##_cpu
// The same for the decoding functions of a format: `TANDEM_FORMAT_KERNELS(Q8_0) = {to_f32, to_bf16,
// {pack, group, zero, has_offsets}};`, the last left out where there is none.
#define TANDEM_FORMAT_KERNELS(NAME)          \
  extern const FormatKernels NAME##_kernels; \
  const FormatKernels NAME##_kernels
