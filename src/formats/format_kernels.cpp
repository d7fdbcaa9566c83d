#include "formats/format_kernels.h"

namespace tandem {

#define KNOWN(name, id, elements, bytes)

#define FORMAT(name, id, elements, bytes) extern const FormatKernels name##_kernels;
namespace isa_base {
#include "formats/formats.def"
}
#if defined(TANDEM_HAVE_X86_LEVELS)
namespace isa_avx2 {
#include "formats/formats.def"
}
namespace isa_avx512 {
#include "formats/formats.def"
}
namespace isa_avx512_bf16 {
#include "formats/formats.def"
}
#endif
#undef FORMAT

const FormatKernels* format_kernels(DType type, IsaLevel level) {
#define FORMAT(name, id, elements, bytes) \
  case DType::name:                       \
    return &name##_kernels;
  switch (level) {
    case IsaLevel::base: {
      using namespace isa_base;
      switch (type) {
#include "formats/formats.def"
        default:
          return nullptr;
      }
    }
#if defined(TANDEM_HAVE_X86_LEVELS)
    case IsaLevel::avx2: {
      using namespace isa_avx2;
      switch (type) {
#include "formats/formats.def"
        default:
          return nullptr;
      }
    }
    case IsaLevel::avx512: {
      using namespace isa_avx512;
      switch (type) {
#include "formats/formats.def"
        default:
          return nullptr;
      }
    }
    case IsaLevel::avx512_bf16: {
      using namespace isa_avx512_bf16;
      switch (type) {
#include "formats/formats.def"
        default:
          return nullptr;
      }
    }
#else
    case IsaLevel::avx2:
    case IsaLevel::avx512:
    case IsaLevel::avx512_bf16:
      return nullptr;
#endif
  }
#undef FORMAT
  return nullptr;
}

#undef KNOWN

Precision product_precision(Precision asked, DType type) {
  if (asked != Precision::Int8) return asked;
  const FormatKernels* kernels = format_kernels(type, IsaLevel::base);
  return kernels && kernels->int8.pack ? Precision::Int8 : Precision::BF16;
}

}  // namespace tandem
