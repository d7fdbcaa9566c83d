// What a CPU kernel is and sees.  Included by kernel files (*.cpu.cpp), which are compiled once per ISA
// level, so this header holds plain data and nothing the compiler could emit as a shared (weak) symbol.
#pragma once
#include <stddef.h>
#include <stdint.h>

namespace tandem {

constexpr int kMaxDims = 4;
constexpr int kMaxSrc = 8;

// One weight format at one ISA level.  `n` counts elements and is a multiple of the format's block; rows
// start at a block.  Filled by formats/<type>/<type>.cpu.cpp.
struct FormatKernels {
  void (*to_f32)(const void* blocks, float* dst, int64_t n);
  // The same values rounded to the nearest bf16, ties to even, subnormal ones to zero.  Null where the level
  // has no bf16 arithmetic, and for types that nobody has sped up: then to_f32 and a conversion do.
  void (*to_bf16)(const void* blocks, uint16_t* dst, int64_t n);
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
// The same for the decoding functions of a format: `TANDEM_FORMAT_KERNELS(Q8_0) = {to_f32, to_bf16};`
#define TANDEM_FORMAT_KERNELS(NAME)          \
  extern const FormatKernels NAME##_kernels; \
  const FormatKernels NAME##_kernels
