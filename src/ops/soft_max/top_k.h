// Parameters of TOP_K.
#pragma once
#include <stdint.h>

namespace tandem {

struct TopKParams {
  int64_t k;
  int32_t n_group;  // equal runs of a row; 1: no groups
  int32_t n_used;   // how many of them take part
  int32_t n_best;   // how many of a group's largest numbers are summed to its score
};

}  // namespace tandem
