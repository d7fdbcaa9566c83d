// Loops that do nothing but keep one part of a core busy: what a level's instructions could reach at best.
// Plain data, for a kernel file.
#pragma once
#include <stdint.h>

namespace tandem {

// A loop in registers: run() does `steps` steps and gives a number that depends on all of them.
struct PeakLoop {
  float (*run)(int64_t steps);
  int32_t operations;  // of one step, a multiply-add counted twice
};

// Null where the level has no instruction for it.
struct PeakLoops {
  PeakLoop fma_f32;   // f32 multiply-adds
  PeakLoop dot_bf16;  // pairs of bf16 products added into f32
  PeakLoop dot_int8;  // products of an unsigned and a signed byte, added in fours into int32
};

}  // namespace tandem
