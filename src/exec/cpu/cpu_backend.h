// Runs graphs on the CPU: picks a kernel per node (the best ISA level that takes it, then the reference),
// gives it scratch, and splits it into units over the pool.
#pragma once
#include <memory>
#include <vector>

#include "base/isa.h"
#include "base/kernel.h"
#include "exec/backend.h"

namespace tandem {

class CpuBackend final : public Backend {
 public:
  // Results depend on the level, never on the number of threads.
  CpuBackend(ThreadPool& pool, IsaLevel level);

  MemoryNeed plan(const Graph& graph, int n_nodes) override;
  void run(Graph& graph, int n_nodes, std::span<std::byte> memory, Priority priority) override;
  const char* numerics() const override { return isa_name(level_); }

  // Told before and after each unit of work; `node` is what the unit is a part of.
  struct UnitWatch {
    virtual ~UnitWatch() = default;
    virtual void before(const Node& node, int64_t unit) = 0;
    virtual void after(const Node& node, int64_t unit) = 0;
  };
  // The same as run(), for tests of what a unit touches: unit after unit, with the scratch of each thread in
  // turn.
  void run_watched(Graph& graph, int n_nodes, std::span<std::byte> memory, UnitWatch& watch);

  // Told after each part of a node that ran on its own, with its time.  For benchmarks: while a watch is set
  // the threads meet after every part.
  struct NodeWatch {
    virtual ~NodeWatch() = default;
    virtual void ran(const Graph& graph, const Node& node, double seconds) = 0;
  };
  void set_watch(NodeWatch* watch) { watch_ = watch; }

  IsaLevel level() const { return level_; }
  int n_threads() const { return pool_.n_threads(); }
  // For the plan tests: no sharing, guard bytes.
  void set_plan_options(const PlanOptions& options) { plan_options_ = options; }
  // Which kernel takes a node: its level's name or "reference"; `refusals` collects the reasons of those that
  // did not.
  const char* explain(const Node& node, std::string* refusals) const;
  // Why a level's own kernel would not take a node; null if it would.  For any level of the build, whether or
  // not this machine runs it: all levels are compiled from one source, and the base level's judgement is
  // asked.
  static const char* refusal(const Node& node, IsaLevel level);

 private:
  struct Program;
  Program place_and_split(Graph& graph, int n_nodes, std::span<std::byte> memory) const;
  const CpuKernel* choose(const Node& node, const KernelArgs& args, IsaLevel* level) const;

  ThreadPool& pool_;
  IsaLevel level_;
  PlanOptions plan_options_;
  NodeWatch* watch_ = nullptr;
};

}  // namespace tandem
