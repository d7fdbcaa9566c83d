// Runs a graph through the references of its ops: the oracle of kernels (f64) and of backward rules (complex
// step).
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "graph/graph.h"

namespace tandem {

// Runs the first nodes of a graph in numbers of type T: float, double or std::complex<double>.  Every tensor
// that is not a view has storage of its own here, so all values can be read after the run and nothing of the
// graph is written.
template <class T>
class RefExec {
 public:
  // The first n_nodes nodes of a graph, -1 for all.  The graph must outlive this and not shrink meanwhile.
  explicit RefExec(const Graph& graph, int n_nodes = -1);

  // The values of a leaf, as many as it has elements.  A leaf that is not set has those of its data, decoded.
  void set(Tensor leaf, std::span<const T> values);

  // Runs the nodes in order.  Throws Internal for a leaf without values.
  void run() { run(0, n_nodes_); }
  // Runs nodes [first, last) on what earlier runs left.
  void run(int first, int last);

  // The values of an F32 node (of any decodable type for a leaf), contiguous; valid until the next get() of
  // the same tensor, run() or set().
  std::span<const T> get(Tensor t);
  // The values of an I32 node, contiguous.
  std::vector<int32_t> get_ids(Tensor t) const;
  // The storage of an F32 node that is not a view, to change what later nodes read.
  std::span<T> storage(Tensor t);

  // Fills each result with a NaN of its own bit pattern before its node runs, and throws Internal if the node
  // left an element unwritten.
  bool poison = false;

 private:
  struct Storage {
    std::vector<T> f;
    std::vector<int32_t> i;
    bool filled = false;  // of a leaf: decoded or set
  };

  void fill_leaf(const Node& leaf);
  void poison_storage(const Node& node);
  void check_written(const Node& node) const;

  const Graph& graph_;
  int n_nodes_;
  std::vector<Storage> storage_;        // by node
  std::vector<std::vector<T>> copies_;  // by node: what get() gathered
};

}  // namespace tandem
