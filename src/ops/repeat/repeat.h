// Parameters of REPEAT and REPEAT_BACK.
#pragma once
#include <stdint.h>

namespace tandem {

struct RepeatParams {
  int64_t ne[4];  // shape of the result
};

}  // namespace tandem
