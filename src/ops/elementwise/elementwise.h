// Parameters of SCALE.
#pragma once

namespace tandem {

struct ScaleParams {
  float s;
};

}  // namespace tandem
