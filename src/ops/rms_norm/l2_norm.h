// Parameters of L2_NORM and L2_NORM_BACK.
#pragma once

namespace tandem {

struct L2NormParams {
  float eps;  // what a row is divided by at least, above 0
};

}  // namespace tandem
