#include <gtest/gtest.h>

#include <cmath>

#include "app/bench/baseline_run.h"
#include "base/rng.h"
#include "ops/ops.h"

namespace tandem {
namespace {

TEST(Baseline, IsMulMatIdBack) {
  constexpr int64_t kK = 64, kN = 37, kExperts = 5, kUsed = 2, kTokens = 11;
  Rng rng(7);
  std::vector<float> w(kK * kN * kExperts), grad(kN * kUsed * kTokens);
  for (float& x : w) x = static_cast<float>(rng.next_uniform() - 0.5);
  for (float& x : grad) x = static_cast<float>(rng.next_uniform() - 0.5);
  std::vector<int32_t> ids(kUsed * kTokens);
  for (int32_t& id : ids) id = static_cast<int32_t>(rng.below(kExperts - 1));  // the last one stays unused
  std::vector<std::byte> blocks(static_cast<size_t>(row_bytes(DType::Q8_0, kK) * kN * kExperts));
  const Codec& codec = *type_info(DType::Q8_0).codec;
  codec.encode(w.data(), blocks.data(), static_cast<int64_t>(w.size()));
  codec.decode(blocks.data(), w.data(), static_cast<int64_t>(w.size()));

  Graph g;
  const Tensor y = mul_mat_id_back(
      g.leaf(DType::Q8_0, {kK, kN, kExperts}, Home::Mapped, static_cast<const void*>(blocks.data()), "w"),
      g.leaf(DType::F32, {kN, kUsed, kTokens}, Home::Persistent, static_cast<void*>(grad.data()), "grad"),
      g.leaf(DType::I32, {kUsed, kTokens}, Home::Persistent, static_cast<void*>(ids.data()), "ids"),
      Precision::F32);
  ThreadPool pool(2);
  for (IsaLevel level : compiled_isa_levels()) {
    if (!isa_supported(level)) continue;
    BaselineBack baseline(*y.node, level, pool.n_threads());
    for (int time = 0; time < 2; ++time) baseline.run(pool);  // the second adds to nothing
    for (size_t pair = 0; pair < ids.size(); ++pair) {
      for (size_t k = 0; k < kK; ++k) {
        double want = 0;
        for (size_t r = 0; r < kN; ++r) {
          want += static_cast<double>(w[(static_cast<size_t>(ids[pair]) * kN + r) * kK + k]) *
                  static_cast<double>(grad[pair * kN + r]);
        }
        // f32 sums of kN terms of up to 1/4
        EXPECT_NEAR(baseline.result()[pair * kK + k], want, kN * 0.25 * 0x1p-23)
            << isa_name(level) << ", pair " << pair << ", element " << k;
      }
    }
  }
}

}  // namespace
}  // namespace tandem
