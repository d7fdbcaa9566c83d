// Parameters of GET_ROWS_BACK.
#pragma once
#include <stdint.h>

namespace tandem {

struct GetRowsBackParams {
  int64_t rows;  // of the tensor that was gathered from
};

}  // namespace tandem
