// Mistakes that a backward rule or a kernel could make, done to the values of a node: the checks must notice.
// Source: gradients.md 15.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "exec/ref/ref_exec.h"
#include "graph/graph.h"

namespace tandem {

// A node that ran, with the executor that ran it; the values of its sources are read from there.
struct RanNode {
  Graph& graph;
  RefExec<double>& exec;
  int index;

  const Node& node() const { return graph.node(index); }
  Tensor tensor() const { return {&graph.node(index), &graph}; }
  std::span<const double> values() const { return exec.storage(tensor()); }
};

struct Corruption {
  const char* name;
  // A mistake in indexing, which belongs to certain ops and shapes; each must show in some case of every op
  // it belongs to.  The others are changes of size or sign and belong to every node.
  bool structural;
  double change;  // of the others: how much of the largest value; 0: a mistake in indexing
  bool (*belongs)(const Node& node);
  // The values a node with this mistake would have: as many as it has.
  std::vector<double> (*apply)(const RanNode& at);
};

// Of nodes with F32 values; "one element moved" is not among them, since one element may be dead by right.
std::span<const Corruption> corruptions();

// The values under a corruption that belongs to the node; nothing if it changes nothing there (more than 1e-6
// of the largest value must move somewhere), as shifting ids does where there is one expert.
std::optional<std::vector<double>> corrupted(const Corruption& corruption, const RanNode& at);

}  // namespace tandem
