#include "graph/op_def.h"

#include "graph/autodiff.h"

namespace tandem {

#define OP(name, kernels) extern const OpDef name##_def;
#include "ops/ops.def"
#undef OP

namespace {
constexpr const OpDef* kDefs[] = {
#define OP(name, kernels) &name##_def,
#include "ops/ops.def"
#undef OP
};
constexpr Op kOps[] = {
#define OP(name, kernels) Op::name,
#include "ops/ops.def"
#undef OP
};
}  // namespace

const OpDef& op_def(Op op) {
  TANDEM_CHECK(op != Op::LEAF);
  return *kDefs[static_cast<size_t>(op) - 1];
}

const char* op_name(Op op) { return op == Op::LEAF ? "LEAF" : op_def(op).name; }

std::span<const Op> all_ops() { return kOps; }

namespace {

// A leaf above a node that asked for a gradient; null if there is none.
const Node* asking_leaf(const Node& node) {
  if (node.op == Op::LEAF) return node.wants_grad ? &node : nullptr;
  for (int i = 0; i < node.n_src; ++i) {
    const Node* s = node.src[static_cast<size_t>(i)];
    if (!s || !s->wants_grad || op_def(node.op).no_grad >> i & 1) continue;
    if (const Node* leaf = asking_leaf(*s)) return leaf;
  }
  return nullptr;
}

}  // namespace

void kNoGrad(BackwardCtx& c) {
  const Node* leaf = asking_leaf(*c.out.node);
  fail(Code::Unsupported, "{}: no gradient passes through it, and that of tensor {} was asked for",
       op_name(c.out.node->op), leaf ? leaf->name : "(unnamed)");
}

}  // namespace tandem
