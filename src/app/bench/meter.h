// A backend that hands graphs to the machine in use, and can note what each node cost and took.
#pragma once
#include <vector>

#include "app/bench/modes.h"
#include "app/bench/rounds.h"

namespace tandem {

// One node of a segment, as it ran.
struct NodeRun {
  const char* segment;
  Op op;
  Work work;
  double seconds;
};

class MeterBackend final : public Backend, private CpuBackend::NodeWatch {
 public:
  // `refusals`, if given, looks at every graph that is planned.
  MeterBackend(const Machines& machines, Refusals* refusals) : machines_(machines), refusals_(refusals) {}

  // The need with every machine, until one is in use.
  MemoryNeed plan(const Graph& graph, int n_nodes) override;
  void run(Graph& graph, int n_nodes, std::span<std::byte> memory, Priority priority) override;
  const char* numerics() const override;

  void use(Machine& machine) { machine_ = &machine; }
  // What the nodes run from now on cost and took is added to `runs`; null ends that.
  void record(std::vector<NodeRun>* runs) { runs_ = runs; }

 private:
  void ran(const Graph& graph, const Node& node, double seconds) override;

  const Machines& machines_;
  Refusals* refusals_;
  Machine* machine_ = nullptr;
  std::vector<NodeRun>* runs_ = nullptr;
  const Node* last_ = nullptr;  // of the graph that runs: parts of a node follow each other
};

}  // namespace tandem
