// The modes of `tandem bench`.
#pragma once
#include "app/bench/report.h"
#include "app/bench/rounds.h"
#include "base/options.h"

namespace tandem {

struct NamedShape;

enum class BenchMode { Ops, Train, Prefill, Decode };

// The mode with this name; without one, ops.  Throws: Usage.
BenchMode parse_bench_mode(const std::string& name);
// Throws: Usage for a flag that would have no effect in the mode (a misunderstanding), and for no model or
// two.
void check_bench_flags(const Options& options, BenchMode mode);

// The op cases of the tests, or with --synth the products and attention of a shape.  Throws: Usage if nothing
// has the name that was asked for.
void bench_ops(const Options& options, const Machines& machines, Reporter& reporter);
// A model file, or with --synth a model of such layers: training steps, prompts, or single tokens.
void bench_model(const Options& options, const Machines& machines, Reporter& reporter);

// --precision; without it int8 in prefill and decode, in ops and train bf16 where products train so (kernels
// that multiply it in hardware), else f32.  Throws: Usage for int8 in training.
Precision bench_precision(const Options& options, IsaLevel level);
// The type of --type, or that of the shape's files.  Throws: Usage for a name that is no type.

DType bench_type(const Options& options, const NamedShape& shape);

// What --why prints of graphs: each different node that its best kernel refuses, once.
class Refusals {
 public:
  struct Refused {
    std::string node, taken_by, reasons, where;
    int64_t n = 0;  // nodes like it
  };
  explicit Refusals(const CpuBackend& backend) : backend_(backend) {}
  // `where` is the case or segment.
  void look_at(const Graph& graph, const std::string& where);
  void print(bool lines_of_json) const;
  const std::vector<Refused>& refused() const { return refused_; }
  int64_t n_nodes() const { return n_nodes_; }  // that were looked at

 private:
  const CpuBackend& backend_;
  std::vector<Refused> refused_;
  int64_t n_nodes_ = 0;
};

}  // namespace tandem
