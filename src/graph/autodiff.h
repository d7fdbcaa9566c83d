// Reverse-mode differentiation of a graph: backward rules emit ops into the same graph.
#pragma once
#include <span>
#include <vector>

#include "graph/graph.h"
#include "graph/op_def.h"

namespace tandem {

// What a backward rule sees of one node.
class BackwardCtx {
 public:
  BackwardCtx(Graph& g, Node& node, Tensor cotangent, std::vector<Tensor>& grads)
      : graph(g), out{&node, &g}, dout(cotangent), grads_(grads) {}

  // Does a gradient of source i lead anywhere?
  bool needs(int i) const;
  Tensor src(int i) const { return Tensor{out.node->src[static_cast<size_t>(i)], &graph}; }
  // Adds t to the gradient of source i; several contributions add up in the order of the calls.
  // Throws Internal if the shapes differ.
  void grad(int i, Tensor t);

  Graph& graph;
  Tensor out;
  Tensor dout;  // same shape as out, contiguous or not

 private:
  std::vector<Tensor>& grads_;
};

// Where a gradient enters: the cotangent of a tensor.
struct Seed {
  Tensor of;
  Tensor cotangent;
};

// Emits the gradient of sum over the seeds of <cotangent, of> with respect to each leaf in `wrt`, in the
// order of `wrt`; an empty handle where no gradient reaches.  Leaves must have been marked by want_grad()
// before they were used. Throws Unsupported where a rule refuses.  Source: gradients.md.
std::vector<Tensor> backward(Graph& graph, std::span<const Seed> seeds, std::span<const Tensor> wrt);

}  // namespace tandem
