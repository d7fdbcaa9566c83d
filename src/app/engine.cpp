#include "app/engine.h"

#include "base/error.h"
#include "base/log.h"

namespace tandem {

IsaLevel chosen_isa(const Options& options) {
  const std::string& name = options.text(Opt::Isa);
  if (name.empty()) return best_isa();
  const std::optional<IsaLevel> level = isa_of_name(name);
  TANDEM_CHECK(level);  // a choice of the options table
  if (!isa_supported(*level)) {
    fail(Code::Unsupported,
         "the instruction set {} (TANDEM_ISA or --isa) is not available here; the best is {}", name,
         isa_name(best_isa()));
  }
  return *level;
}

int chosen_threads(const Options& options) {
  const int64_t n = options.integer(Opt::Threads);
  return n > 0 ? static_cast<int>(n) : default_threads();
}

ModelOptions model_options(const Options& options) {
  return {.yarn_round = options.text(Opt::RopeYarnRound) == "on"};
}

Engine::Engine(const Options& options) : pool(chosen_threads(options)), backend(pool, chosen_isa(options)) {
  if (options.integer(Opt::GpuLayers) != 0) log_warn("-ngl has no effect: there is no GPU backend");
  log_info("{} threads, instruction set {}", pool.n_threads(), isa_name(backend.level()));
}

Precision chosen_precision(const Options& options, const Engine& engine) {
  const Command command = options.command();
  const bool serving = command == Command::Generate,
             training = command == Command::Train || command == Command::Check;
  if (const std::optional<Precision> given = given_precision(options, !serving)) return *given;
  if (serving) return Precision::Int8;
  return training && engine.backend.level() == IsaLevel::avx512_bf16 ? Precision::BF16 : Precision::F32;
}

std::optional<Precision> given_precision(const Options& options, bool gradients) {
  const std::string& name = options.text(Opt::Precision);
  if (name.empty()) return std::nullopt;
  if (name == "int8" && gradients) {
    fail(Code::Usage,
         "--precision int8 is for generating: no gradient goes through it; training takes f32 or bf16");
  }
  return name == "int8" ? Precision::Int8 : name == "bf16" ? Precision::BF16 : Precision::F32;
}

}  // namespace tandem
