// The machine side of a command: threads, instruction set, backend, precision.
#pragma once
#include "base/isa.h"
#include "base/options.h"
#include "base/thread_pool.h"
#include "exec/cpu/cpu_backend.h"
#include "graph/graph.h"
#include "models/model.h"

namespace tandem {

// The level of --isa, by default the best one.  Throws: Unsupported for one this machine or binary does not
// have.
IsaLevel chosen_isa(const Options& options);
int chosen_threads(const Options& options);
// How the base model is read.
ModelOptions model_options(const Options& options);

struct Engine {
  // Says once that -ngl has no effect.
  explicit Engine(const Options& options);

  ThreadPool pool;
  CpuBackend backend;
};

// --precision; without it int8 in generating, in training bf16 where the kernels multiply bf16 in hardware,
// else f32.  Throws: Usage for int8 where gradients are wanted.
Precision chosen_precision(const Options& options, const Engine& engine);
// --precision, if it is given.  Throws: Usage for int8 with `gradients`.
std::optional<Precision> given_precision(const Options& options, bool gradients);

}  // namespace tandem
