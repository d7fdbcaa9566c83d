// What the machine reaches at best right now, to hold a kernel's speed against: absolute times of a shared
// machine mean little.
#pragma once
#include "base/isa.h"
#include "base/memory.h"
#include "base/thread_pool.h"

namespace tandem {

// Per second, all threads of a pool together; 0 where the level has no such instruction.
struct Peaks {
  double fma_f32 = 0;   // f32 operations, a multiply-add counted twice
  double dot_bf16 = 0;  // the same of products of bf16 added into f32
  double dot_int8 = 0;  // the same of products of bytes added into int32
  double copy = 0;      // bytes read and bytes written, of memory that no cache holds
};

// Runs the loops of a level (exec/cpu/peak_loops.h).
class MachinePeaks {
 public:
  // Takes held_bytes() of memory.  Throws: OutOfMemory; Unsupported for a level this machine lacks.
  explicit MachinePeaks(IsaLevel level);

  // About two milliseconds for each kind, and one copy.
  Peaks measure(ThreadPool& pool) const;
  IsaLevel level() const { return level_; }
  size_t held_bytes() const { return from_.bytes() + to_.bytes(); }

 private:
  IsaLevel level_;
  Buffer from_, to_;
};

}  // namespace tandem
