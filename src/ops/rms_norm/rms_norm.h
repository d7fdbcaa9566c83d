// Parameters of RMS_NORM and RMS_NORM_BACK.
#pragma once

namespace tandem {

struct RmsNormParams {
  float eps;  // added to the mean of the squares
};

}  // namespace tandem
