// Parameters of TOP_K.
#pragma once
#include <stdint.h>

namespace tandem {

struct TopKParams {
  int64_t k;
};

}  // namespace tandem
