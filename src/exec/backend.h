// What runs a segment's graph.
#pragma once
#include <cstddef>
#include <span>

#include "base/thread_pool.h"
#include "graph/graph.h"
#include "graph/planner.h"

namespace tandem {

// The temporary memory of a segment.
struct MemoryNeed {
  size_t arena_bytes = 0;    // tensors
  size_t scratch_bytes = 0;  // of the kernels, all threads together
  size_t total() const { return arena_bytes + scratch_bytes; }
};

class Backend {
 public:
  virtual ~Backend() = default;
  // What the first n_nodes nodes need; touches no tensor's bytes.  Throws Unsupported if a node has no
  // kernel.
  virtual MemoryNeed plan(const Graph& graph, int n_nodes) = 0;
  // Plans, places and runs the first n_nodes nodes in `memory`, which holds at least plan().total() bytes.
  virtual void run(Graph& graph, int n_nodes, std::span<std::byte> memory, Priority priority) = 0;
  // What the last bits of its results depend on beside the graph: the name of its instruction set ("avx512").
  virtual const char* numerics() const = 0;
};

}  // namespace tandem
