// Parameters of the products.
#pragma once
#include "base/kernel.h"

namespace tandem {

struct MulMatParams {
  Precision precision;
};

// How the experts of a layer lie in the file.
enum class ExpertLayout : int32_t {
  Stacked,  // one tensor {K, N, E}
  Gather,   // one tensor per expert, reached through pointers
};

struct MulMatIdParams {
  Precision precision;
  ExpertLayout layout;
};

struct OutProdIdParams {
  int64_t n_expert;
};

}  // namespace tandem
