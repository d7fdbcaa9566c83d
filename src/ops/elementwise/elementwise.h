// Parameters of SCALE and SWIGLU_OAI.
#pragma once

namespace tandem {

struct ScaleParams {
  float s;
};

struct SwigluOaiParams {
  float alpha;
  float limit;  // above 0
};

}  // namespace tandem
