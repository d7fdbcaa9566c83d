#include "exec/cpu/machine_peaks.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "exec/cpu/peak_loops.h"

namespace tandem {

namespace isa_base {
extern const PeakLoops peak_loops;
}
#if defined(TANDEM_HAVE_X86_LEVELS)
namespace isa_avx2 {
extern const PeakLoops peak_loops;
}
namespace isa_avx512 {
extern const PeakLoops peak_loops;
}
namespace isa_avx512_bf16 {
extern const PeakLoops peak_loops;
}
#endif

namespace {

constexpr size_t kCopyBytes = size_t{64}
                              << 20;  // twice that is more than a last-level cache per core complex
constexpr int64_t kCopyChunk = int64_t{1} << 20;
constexpr int64_t kUnitSteps = 20'000;  // about 0.1 ms where two instructions start per cycle
constexpr int64_t kUnitsPerThread = 20;

const PeakLoops& loops_of(IsaLevel level) {
#if defined(TANDEM_HAVE_X86_LEVELS)
  if (level == IsaLevel::avx2) return isa_avx2::peak_loops;
  if (level == IsaLevel::avx512) return isa_avx512::peak_loops;
  if (level == IsaLevel::avx512_bf16) return isa_avx512_bf16::peak_loops;
#endif
  (void)level;
  return isa_base::peak_loops;
}

double seconds_of(ThreadPool& pool, const Task& task) {
  const auto start = std::chrono::steady_clock::now();
  pool.run({&task, 1}, Priority::Training);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void run_loop(const void* arg, int64_t, int) noexcept {
  [[maybe_unused]] volatile float kept = static_cast<const PeakLoop*>(arg)->run(kUnitSteps);
}

double operations_per_second(ThreadPool& pool, const PeakLoop& loop) {
  if (!loop.run) return 0;
  const int64_t units = kUnitsPerThread * pool.n_threads();
  const double operations = static_cast<double>(units * kUnitSteps) * loop.operations;
  return operations / seconds_of(pool, {run_loop, &loop, units});
}

struct CopyCall {
  std::byte* to;
  const std::byte* from;
};

void copy_chunk(const void* arg, int64_t unit, int) noexcept {
  const auto& call = *static_cast<const CopyCall*>(arg);
  std::memcpy(call.to + unit * kCopyChunk, call.from + unit * kCopyChunk, kCopyChunk);
}

}  // namespace

MachinePeaks::MachinePeaks(IsaLevel level)
    : level_(level), from_(kCopyBytes, "a copy loop"), to_(kCopyBytes, "a copy loop") {
  if (!isa_supported(level)) {
    fail(Code::Unsupported, "this machine has no {} instructions; the best it runs is {}", isa_name(level),
         isa_name(best_isa()));
  }
  // Pages of their own: untouched ones would all be read from one page of zeros.
  std::memset(from_.data(), 1, from_.bytes());
  std::memset(to_.data(), 2, to_.bytes());
}

Peaks MachinePeaks::measure(ThreadPool& pool) const {
  const PeakLoops& loops = loops_of(level_);
  Peaks p;
  p.fma_f32 = operations_per_second(pool, loops.fma_f32);
  p.dot_bf16 = operations_per_second(pool, loops.dot_bf16);
  p.dot_int8 = operations_per_second(pool, loops.dot_int8);
  const CopyCall call{to_.data(), from_.data()};
  p.copy = 2.0 * kCopyBytes / seconds_of(pool, {copy_chunk, &call, int64_t{kCopyBytes} / kCopyChunk});
  return p;
}

}  // namespace tandem
