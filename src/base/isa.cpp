#include "base/isa.h"

namespace tandem {

namespace {

constexpr IsaLevel kCompiled[] = {
    IsaLevel::base,
#if defined(TANDEM_HAVE_X86_LEVELS)
    IsaLevel::avx2,
    IsaLevel::avx512,
    IsaLevel::avx512_bf16,
#endif
};

#if defined(TANDEM_HAVE_X86_LEVELS)
// The checks cover the operating system too: it must save the wide registers.
bool cpu_has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c") &&
         __builtin_cpu_supports("bmi2");
}

bool cpu_has_avx512() {
  return cpu_has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vbmi");
}
#endif

}  // namespace

std::span<const IsaLevel> compiled_isa_levels() { return kCompiled; }

bool isa_supported(IsaLevel level) {
  switch (level) {
    case IsaLevel::base:
      return true;
#if defined(TANDEM_HAVE_X86_LEVELS)
    case IsaLevel::avx2:
      return cpu_has_avx2();
    case IsaLevel::avx512:
      return cpu_has_avx512();
    case IsaLevel::avx512_bf16:
      return cpu_has_avx512() && __builtin_cpu_supports("avx512bf16");
#else
    case IsaLevel::avx2:
    case IsaLevel::avx512:
    case IsaLevel::avx512_bf16:
      return false;
#endif
  }
  return false;
}

IsaLevel best_isa() {
  IsaLevel best = IsaLevel::base;
  for (IsaLevel level : kCompiled) {
    if (isa_supported(level)) best = level;
  }
  return best;
}

const char* isa_name(IsaLevel level) {
  switch (level) {
    case IsaLevel::base:
      return "base";
    case IsaLevel::avx2:
      return "avx2";
    case IsaLevel::avx512:
      return "avx512";
    case IsaLevel::avx512_bf16:
      return "avx512_bf16";
  }
  return "?";
}

std::optional<IsaLevel> isa_of_name(std::string_view name) {
  for (IsaLevel level : {IsaLevel::base, IsaLevel::avx2, IsaLevel::avx512, IsaLevel::avx512_bf16}) {
    if (name == isa_name(level)) return level;
  }
  return std::nullopt;
}

const char* precision_name(Precision precision) {
  switch (precision) {
    case Precision::F32:
      return "f32";
    case Precision::BF16:
      return "bf16";
    case Precision::Int8:
      return "int8";
  }
  return "?";
}

}  // namespace tandem
