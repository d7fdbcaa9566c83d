#include "graph/autodiff.h"

namespace tandem {
namespace {

// Adds a contribution to what has been collected for a tensor.
void accumulate(Tensor& slot, Tensor t) { slot = slot ? t.graph->emit(Op::ADD, {slot, t}) : t; }

}  // namespace

bool BackwardCtx::needs(int i) const {
  const Node* s = out.node->src[static_cast<size_t>(i)];
  return s && s->wants_grad && !(op_def(out.node->op).no_grad >> i & 1);
}

void BackwardCtx::grad(int i, Tensor t) {
  const Node* s = out.node->src[static_cast<size_t>(i)];
  TANDEM_CHECK(s && needs(i));
  if (t.shape() != s->ne) {
    fail(Code::Internal, "{}: the gradient of source {} has shape {}, the source {}", op_name(out.node->op),
         i, to_string(t.shape()), to_string(s->ne));
  }
  accumulate(grads_[static_cast<size_t>(s->index)], t);
}

std::vector<Tensor> backward(Graph& graph, std::span<const Seed> seeds, std::span<const Tensor> wrt) {
  const int n_forward = graph.size();
  for (int i = 0; i < n_forward; ++i) {
    const Node& leaf = graph.node(i);
    if (leaf.op != Op::LEAF || !leaf.wants_grad || leaf.type == DType::F32) continue;
    fail(Code::Unsupported, "tensor {} is {}: its gradient was asked for, but only F32 tensors have one",
         leaf.name, name_of(leaf.type));
  }
  std::vector<Tensor> grads(static_cast<size_t>(n_forward));
  for (const Seed& seed : seeds) {
    TANDEM_CHECK(seed.of && seed.cotangent);
    if (seed.of.shape() != seed.cotangent.shape()) {
      fail(Code::Internal, "a cotangent of shape {} was given for a tensor of shape {}",
           to_string(seed.cotangent.shape()), to_string(seed.of.shape()));
    }
    if (!seed.of.node->wants_grad) continue;
    accumulate(grads[static_cast<size_t>(seed.of.node->index)], seed.cotangent);
  }
  for (int i = n_forward - 1; i >= 0; --i) {
    Node& node = graph.node(i);
    const Tensor cotangent = grads[static_cast<size_t>(i)];
    if (node.op == Op::LEAF || !node.wants_grad || !cotangent) continue;
    BackwardCtx c(graph, node, cotangent, grads);
    op_def(node.op).backward(c);
  }
  std::vector<Tensor> result;
  for (const Tensor& t : wrt) {
    TANDEM_CHECK(t && t.node->op == Op::LEAF);
    if (!t.node->wants_grad) {
      fail(Code::Internal, "{}: its gradient is asked for, but it was not marked before it was used",
           t.node->name);
    }
    result.push_back(grads[static_cast<size_t>(t.node->index)]);
  }
  return result;
}

}  // namespace tandem
