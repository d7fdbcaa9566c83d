// The kernels of each weight format at each ISA level.
#pragma once
#include "base/isa.h"
#include "base/kernel.h"
#include "formats/dtype.h"

namespace tandem {

// The kernels of a type at a level; null for a type without kernels or a level this binary lacks.  Whether
// the machine can run them is isa_supported()'s to say.
const FormatKernels* format_kernels(DType type, IsaLevel level);

// The precision in which a product with weights of this type is computed where `asked` is asked for: a type
// without integers (FormatKernels::int8) is multiplied in bf16 in place of int8.
Precision product_precision(Precision asked, DType type);

}  // namespace tandem
