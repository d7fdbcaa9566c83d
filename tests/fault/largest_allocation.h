// Watches what the whole test binary asks operator new for.
#pragma once
#include <cstddef>

namespace tandem {

// The largest piece since the last reset.
size_t largest_allocation_bytes();
void reset_largest_allocation();

}  // namespace tandem
