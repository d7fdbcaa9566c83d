// A file of its own: where these are inlined, g++ takes malloc behind new for a mistake.
#include "tests/fault/largest_allocation.h"

#include <atomic>
#include <cstdlib>
#include <new>

static std::atomic<size_t> largest{0};

void* operator new(size_t n) {
  size_t seen = largest.load();
  while (n > seen && !largest.compare_exchange_weak(seen, n)) {
  }
  if (void* p = std::malloc(n > 0 ? n : 1)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }

namespace tandem {

size_t largest_allocation_bytes() { return largest.load(); }
void reset_largest_allocation() { largest = 0; }

}  // namespace tandem
