#include "app/bench/meter.h"

namespace tandem {

MemoryNeed MeterBackend::plan(const Graph& graph, int n_nodes) {
  if (refusals_) refusals_->look_at(graph, graph.segment);
  return machine_ ? machine_->backend.plan(graph, n_nodes) : machines_.plan(graph, n_nodes);
}

void MeterBackend::run(Graph& graph, int n_nodes, std::span<std::byte> memory, Priority priority) {
  TANDEM_CHECK(machine_);
  last_ = nullptr;
  machine_->backend.set_watch(runs_ ? this : nullptr);
  machine_->backend.run(graph, n_nodes, memory, priority);
}

const char* MeterBackend::numerics() const { return machines_[0].backend.numerics(); }

void MeterBackend::ran(const Graph& graph, const Node& node, double seconds) {
  if (&node == last_) {
    runs_->back().seconds += seconds;
    return;
  }
  last_ = &node;
  runs_->push_back({graph.segment, node.op, work_of(node), seconds});
}

}  // namespace tandem
