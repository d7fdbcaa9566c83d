// Parameters of GATED_DELTA_NET and GATED_DELTA_NET_BACK, as nodes hold them.
#pragma once
#include <stdint.h>

namespace tandem {

struct GatedDeltaNetParams {
  int32_t grouped;  // value head h reads key head h / (H_v / H_k); else h % H_k
};

}  // namespace tandem
