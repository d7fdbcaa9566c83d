// Places the temporaries of a segment in one arena by lifetime, before anything runs.
#pragma once
#include <cstddef>
#include <vector>

#include "graph/graph.h"

namespace tandem {

struct PlanOptions {
  bool share = true;       // false: every tensor its own bytes (the oracle of the plan tests)
  size_t guard_bytes = 0;  // untouched bytes behind every tensor (a test looks whether they stay so)
};

// Offsets into an arena for the first n nodes of a graph.
struct Plan {
  size_t arena_bytes = 0;
  std::vector<ptrdiff_t> offset;  // per node; -1: not in the arena (leaf, view, bound)
  std::vector<int32_t>
      storage;  // per node: the node whose bytes it uses (itself, or the source it overwrites)
};

// Whether the op lets the result of `node` take the bytes of source s, as far as sizes tell.
bool fits_in_place(const Node& node, int s);

// Plans the first n_nodes nodes.  A tensor's bytes are free again after its last use; every result that
// nothing uses stays until the end, so outputs can be read after the run.
Plan plan_arena(const Graph& graph, int n_nodes, const PlanOptions& options = {});

// Writes the addresses of a plan into the nodes (views included).
void place(Graph& graph, int n_nodes, const Plan& plan, std::byte* arena);

}  // namespace tandem
