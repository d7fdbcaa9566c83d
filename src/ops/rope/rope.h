// Parameters of ROPE and ROPE_BACK as their kernels see them.
#pragma once
#include <stdint.h>

namespace tandem {

struct RopeMap {
  int32_t neox;         // 1: pairs are channels (i, i + n_rot / 2); 0: (2 i, 2 i + 1)
  int32_t n_rot;        // channels that turn
  int32_t first;        // of them: the channel where they begin
  float base;           // pair i turns by position * base^(-2 i / n_rot)
  float scale;          // of the angle
  float yarn_factor;    // 0: no YaRN
  float magnitude;      // of cos and sin
  double yarn_low;      // pairs up to here turn as they are
  double yarn_high;     // pairs from here on are slowed down by yarn_factor; a ramp lies between
  int32_t sections[4];  // of IMROPE; all zero: one position per token
};

}  // namespace tandem
