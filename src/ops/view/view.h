// Parameters of VIEW and VIEW_BACK.
#pragma once
#include <stdint.h>

namespace tandem {

struct ViewParams {
  int64_t ne[4];  // VIEW: shape of the window; VIEW_BACK: shape of what the window looks into
  int64_t nb[3];  // bytes per step of the window's dimensions 1, 2, 3; that of dimension 0 is the type's own
  int64_t offset_bytes;  // of the window's first element
};

}  // namespace tandem
