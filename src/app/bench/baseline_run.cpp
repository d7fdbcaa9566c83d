#include "app/bench/baseline_run.h"

#include <algorithm>

#include "formats/format_kernels.h"

namespace tandem {

namespace isa_base {
extern const BaselineExpert baseline_expert;
}
#if defined(TANDEM_HAVE_X86_LEVELS)
namespace isa_avx2 {
extern const BaselineExpert baseline_expert;
}
namespace isa_avx512 {
extern const BaselineExpert baseline_expert;
}
namespace isa_avx512_bf16 {
extern const BaselineExpert baseline_expert;
}
#endif

namespace {

BaselineExpert kernel_of(IsaLevel level) {
#if defined(TANDEM_HAVE_X86_LEVELS)
  if (level == IsaLevel::avx2) return isa_avx2::baseline_expert;
  if (level == IsaLevel::avx512) return isa_avx512::baseline_expert;
  if (level == IsaLevel::avx512_bf16) return isa_avx512_bf16::baseline_expert;
#endif
  (void)level;
  return isa_base::baseline_expert;
}

struct Call {
  BaselineExpert kernel;
  const BaselineArgs* args;
};

void run_expert(const void* arg, int64_t expert, int thread) noexcept {
  const Call& call = *static_cast<const Call*>(arg);
  call.kernel(*call.args, expert, thread);
}

}  // namespace

BaselineBack::BaselineBack(const Node& node, IsaLevel level, int max_threads)
    : node_(node), kernel_(kernel_of(level)) {
  TANDEM_CHECK(node.op == Op::MUL_MAT_ID_BACK);
  const Node &as = *node.src[0], &grad = *node.src[1], &ids = *node.src[2];
  TANDEM_CHECK(as.contiguous() && grad.contiguous() && ids.contiguous() && grad.ne[1] == ids.ne[0]);
  args_.experts = static_cast<const char*>(as.data);
  args_.format = format_kernels(as.type, level);
  if (!args_.format) {
    fail(Code::Unsupported, "the baseline: {} has no kernels at {}", name_of(as.type), isa_name(level));
  }
  std::copy_n(as.ne.ne.begin(), 3, args_.ne);
  args_.row_bytes = row_bytes(as.type, as.ne[0]);
  args_.grad = static_cast<const float*>(grad.data);
  result_.resize(static_cast<size_t>(as.ne[0] * ids.elements()));
  tiles_.resize(static_cast<size_t>(kBaselineRows * as.ne[0] * max_threads));
  pairs_.resize(static_cast<size_t>(ids.elements()));
  offset_.resize(static_cast<size_t>(as.ne[2] + 1));
  args_.dst = result_.data();
  args_.tiles = tiles_.data();
  args_.pairs = pairs_.data();
  args_.offset = offset_.data();
}

// A counting sort by expert.
void BaselineBack::sort_pairs() {
  const auto* ids = static_cast<const int32_t*>(node_.src[2]->data);
  std::fill(offset_.begin(), offset_.end(), 0);
  for (size_t p = 0; p < pairs_.size(); ++p) ++offset_[static_cast<size_t>(ids[p]) + 1];
  for (size_t e = 1; e < offset_.size(); ++e) offset_[e] += offset_[e - 1];
  std::vector<int32_t> at(offset_.begin(), offset_.end() - 1);
  for (size_t p = 0; p < pairs_.size(); ++p)
    pairs_[static_cast<size_t>(at[static_cast<size_t>(ids[p])]++)] = static_cast<int32_t>(p);
}

void BaselineBack::run(ThreadPool& pool) {
  sort_pairs();
  const Call call{kernel_, &args_};
  const Task task{run_expert, &call, args_.ne[2]};
  pool.run({&task, 1}, Priority::Training);
}

}  // namespace tandem
