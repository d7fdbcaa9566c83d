// Parameters of the products.
#pragma once
#include <stdint.h>

namespace tandem {

struct MulMatParams {
  int32_t bf16;  // 1: operands rounded to bf16, f32 accumulation; 0: f32
};

// How the experts of a layer lie in the file.
enum class ExpertLayout : int32_t {
  Stacked,  // one tensor {K, N, E}
  Gather,   // one tensor per expert, reached through pointers
};

struct MulMatIdParams {
  int32_t bf16;
  ExpertLayout layout;
};

struct OutProdIdParams {
  int64_t n_expert;
};

}  // namespace tandem
