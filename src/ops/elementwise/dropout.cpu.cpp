#include "base/kernel.h"
#include "base/simd.h"
#include "ops/elementwise/dropout_mask.h"
#include "ops/elementwise/runs.h"

namespace tandem::TANDEM_ISA {
namespace {

int64_t row_units(const KernelArgs& a) { return ceil_div(n_rows(a.dst), rows_per_unit(a)); }

// Every element is read before it is written, so y may be x.
void run(const KernelArgs& a, int64_t lo, int64_t hi, int) {
  const DropoutMask mask = *static_cast<const DropoutMask*>(a.params);
  const int64_t n = a.dst.ne[0], per = rows_per_unit(a),
                end = hi * per < n_rows(a.dst) ? hi * per : n_rows(a.dst);
  for (int64_t r = lo * per; r < end; ++r) {
    const uint64_t row_key = dropout_row_key(mask.key, mask.first_token + r);
    const float* x = row(a.src[0], a.dst, r);
    float* y = static_cast<float*>(a.dst.data) + r * n;
    for (int64_t pair = 0; pair < n / 2; ++pair) {
      const uint64_t bits = dropout_bits(row_key, pair);
      const float even = x[2 * pair] * mask.scale, odd = x[2 * pair + 1] * mask.scale;
      y[2 * pair] = (uint32_t)bits >= mask.threshold ? even : 0.f;
      y[2 * pair + 1] = (uint32_t)(bits >> 32) >= mask.threshold ? odd : 0.f;
    }
    if (n % 2) y[n - 1] = dropout_keeps(mask, row_key, n - 1) ? x[n - 1] * mask.scale : 0.f;
  }
}

}  // namespace

TANDEM_KERNEL(DROPOUT) = {refuse, nullptr, {{row_units, run}}};

}  // namespace tandem::TANDEM_ISA
