// ISA levels of the CPU kernels: each *.cpu.cpp is compiled once per level.  TANDEM_HAVE_X86_LEVELS is set by
// the build on x86-64; elsewhere only `base` exists.
#pragma once
#include <optional>
#include <span>
#include <string_view>

#include "base/kernel.h"

namespace tandem {

// In ascending order: each level has everything of those before it.
enum class IsaLevel {
  base,         // what the compiler takes for granted: SSE2; NEON with FMA on AArch64
  avx2,         // AVX2, FMA, F16C, BMI2
  avx512,       // F, BW, DQ, VL, VNNI, VBMI
  avx512_bf16,  // BF16
};

constexpr int kIsaLevels = 4;

// The levels this binary has kernels for, lowest first.
std::span<const IsaLevel> compiled_isa_levels();
// Whether this machine runs the kernels of a level, and this binary has them.
bool isa_supported(IsaLevel level);
// The highest supported level.
IsaLevel best_isa();
// "base", "avx2", "avx512" or "avx512_bf16".
const char* isa_name(IsaLevel level);
// The level with this name; nothing for an unknown one.
std::optional<IsaLevel> isa_of_name(std::string_view name);

// "f32", "bf16" or "int8".
const char* precision_name(Precision precision);

}  // namespace tandem
