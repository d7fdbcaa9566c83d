#include "exec/cpu/kernel_table.h"

namespace tandem {

#define TANDEM_DECLARE_CPU(name) extern const CpuKernel name##_cpu;
#define TANDEM_DECLARE_REF(name)
#define OP(name, kernels) TANDEM_DECLARE_##kernels(name)
namespace isa_base {
#include "ops/ops.def"
}
#if defined(TANDEM_HAVE_X86_LEVELS)
namespace isa_avx2 {
#include "ops/ops.def"
}
namespace isa_avx512 {
#include "ops/ops.def"
}
namespace isa_avx512_bf16 {
#include "ops/ops.def"
}
#endif
#undef OP

namespace {

#define TANDEM_ENTRY_CPU(isa, name) &isa::name##_cpu,
#define TANDEM_ENTRY_REF(isa, name) nullptr,
constexpr const CpuKernel* kBase[] = {
#define OP(name, kernels) TANDEM_ENTRY_##kernels(isa_base, name)
#include "ops/ops.def"
#undef OP
};
#if defined(TANDEM_HAVE_X86_LEVELS)
constexpr const CpuKernel* kAvx2[] = {
#define OP(name, kernels) TANDEM_ENTRY_##kernels(isa_avx2, name)
#include "ops/ops.def"
#undef OP
};
constexpr const CpuKernel* kAvx512[] = {
#define OP(name, kernels) TANDEM_ENTRY_##kernels(isa_avx512, name)
#include "ops/ops.def"
#undef OP
};
constexpr const CpuKernel* kAvx512Bf16[] = {
#define OP(name, kernels) TANDEM_ENTRY_##kernels(isa_avx512_bf16, name)
#include "ops/ops.def"
#undef OP
};
constexpr const CpuKernel* const* kLevels[kIsaLevels] = {kBase, kAvx2, kAvx512, kAvx512Bf16};
#else
constexpr const CpuKernel* const* kLevels[kIsaLevels] = {kBase, nullptr, nullptr, nullptr};
#endif

}  // namespace

const CpuKernel* cpu_kernel(Op op, IsaLevel level) {
  const CpuKernel* const* table = kLevels[static_cast<size_t>(level)];
  return table && op != Op::LEAF ? table[static_cast<size_t>(op) - 1] : nullptr;
}

}  // namespace tandem
