// Parameters of FLASH_ATTN and FLASH_ATTN_BACK, as nodes hold them.
#pragma once

namespace tandem {

struct FlashAttnNodeParams {
  float scale;  // multiplies q.k
};

}  // namespace tandem
