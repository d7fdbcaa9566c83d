// Runs the graph of a case on the CPU backend with poisoned memory, and keeps what came out.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "exec/cpu/cpu_backend.h"
#include "graph/graph.h"

namespace tandem {

struct RunOptions {
  IsaLevel level = IsaLevel::base;
  int n_threads = 1;
  bool one_writer = false;       // unit by unit, and no two may write the same element
  bool share = true;             // false: every tensor its own bytes, so that all can be read afterwards
  size_t guard_bytes = 0;        // behind every tensor; they are checked if nothing is shared
  uint32_t poison = 0x7fc0beef;  // fills the memory before the run: a NaN no arithmetic makes on its own
};

// What a run left.  `complaint` is empty if guard bytes and leaves are as before and, where nothing is
// shared, every element was written, by one unit if that was asked for.
struct CaseRun {
  std::vector<std::vector<std::byte>>
      values;  // by node, contiguous; empty for leaves and, if shared, all but outputs
  std::string complaint;
  double seconds = 0;  // of the run alone
};

// Runs all nodes of the graph.  Throws what the backend throws.
CaseRun run_on_cpu(Graph& graph, const RunOptions& options);

// The values of a node as the run left them, contiguous.
std::vector<std::byte> gather_bytes(const Node& node);

}  // namespace tandem
