// Which kernel runs an op at an ISA level: made from ops.def.
#pragma once
#include "base/isa.h"
#include "base/kernel.h"
#include "graph/graph.h"

namespace tandem {

// The kernel of an op compiled for a level; null where ops.def lists none.
const CpuKernel* cpu_kernel(Op op, IsaLevel level);

}  // namespace tandem
