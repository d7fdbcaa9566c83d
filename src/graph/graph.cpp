#include "graph/graph.h"

#include <fmt/format.h>

#include <vector>

#include "graph/op_def.h"

namespace tandem {

namespace {

// Source i of a node is marked, and it is no tensor that could have a gradient.
[[noreturn]] void refuse_gradient(const Node& reader, int i) {
  const Node& s = *reader.src[static_cast<size_t>(i)];
  fail(Code::Unsupported,
       "{}: a gradient of tensor {} {} (source {}, {}) was asked for, but only F32 tensors have one; {}",
       op_name(reader.op), s.name, to_string(s.ne), i, name_of(s.type),
       s.type == DType::I32 ? "ids and positions only choose"
                            : "frozen weights are trained through an adapter (LoRA) beside them");
}

bool has_gradient_to_refuse(const Node* s) {
  return s && s->op == Op::LEAF && s->wants_grad && s->type != DType::F32;
}

}  // namespace

std::string to_string(const Shape& shape) {
  int last = kMaxDims - 1;
  while (last > 0 && shape[last] == 1) --last;
  std::string text = "{";
  for (int i = 0; i <= last; ++i) text += fmt::format("{}{}", i ? ", " : "", shape[i]);
  return text + "}";
}

bool Node::contiguous() const {
  const TypeInfo& info = type_info(type);
  int64_t expected = info.block_bytes;
  if (ne[0] != info.block_elements && nb[0] != expected) return false;
  expected = row_bytes(type, ne[0]);
  for (int i = 1; i < kMaxDims; ++i) {
    if (ne[i] != 1 && nb[static_cast<size_t>(i)] != expected) return false;
    expected *= ne[i];
  }
  return true;
}

void set_contiguous(Node& node) {
  node.nb[0] = type_info(node.type).block_bytes;
  node.nb[1] = row_bytes(node.type, node.ne[0]);
  node.nb[2] = node.nb[1] * node.ne[1];
  node.nb[3] = node.nb[2] * node.ne[2];
}

Graph::Graph(int capacity) : nodes_(new Node[static_cast<size_t>(capacity)]), capacity_(capacity) {}

Tensor Graph::leaf(DType type, const Shape& ne, Home home, void* data, const char* name) {
  Node& node = append(Op::LEAF, {});
  node.type = type;
  node.ne = ne;
  node.home = home;
  node.data = data;
  node.name = name;
  node.root = &node;
  for (int i = 0; i < kMaxDims; ++i) TANDEM_CHECK(ne[i] >= 0);
  TANDEM_CHECK(ne[0] % type_info(type).block_elements == 0);
  set_contiguous(node);
  return {&node, this};
}

Node& Graph::append(Op op, std::initializer_list<Tensor> src) {
  if (size_ == capacity_)
    fail(Code::Internal, "a graph of {} nodes is full; its segment is built wrongly", capacity_);
  TANDEM_CHECK(src.size() <= kMaxSrc);
  Node& node = nodes_[static_cast<size_t>(size_)];
  node = Node{};
  node.op = op;
  node.index = size_++;
  for (const Tensor& t : src) {
    TANDEM_CHECK(!t || t.graph == this);
    node.src[static_cast<size_t>(node.n_src++)] = t.node;
  }
  return node;
}

Tensor Graph::finish(Node& node) {
  const OpDef& def = op_def(node.op);
  TANDEM_CHECK(node.n_src == def.n_src);
  const int required = def.n_required < 0 ? def.n_src : def.n_required;
  for (int i = 0; i < required; ++i) {
    if (!node.src[static_cast<size_t>(i)]) fail(Code::Internal, "{}: source {} is absent", def.name, i);
  }
  node.root = &node;
  for (int i = 0; i < node.n_src; ++i) {
    const Node* s = node.src[static_cast<size_t>(i)];
    if (has_gradient_to_refuse(s)) refuse_gradient(node, i);
    if (s && s->wants_grad && !(def.no_grad >> i & 1)) node.wants_grad = true;
  }
  def.infer(node, Sources(node.src.data(), static_cast<size_t>(node.n_src)));
  if (node.nb[0] == 0) set_contiguous(node);
  return {&node, this};
}

void Graph::want_grad(Tensor leaf) {
  TANDEM_CHECK(leaf && leaf.node->op == Op::LEAF);
  leaf.node->wants_grad = true;
  if (leaf.type() == DType::F32) return;
  for (int n = leaf.node->index + 1; n < size_; ++n) {
    const Node& reader = node(n);
    for (int i = 0; i < reader.n_src; ++i) {
      if (reader.src[static_cast<size_t>(i)] == leaf.node) refuse_gradient(reader, i);
    }
  }
}

void Graph::bind(Tensor t, void* data) {
  TANDEM_CHECK(t && t.node->op != Op::LEAF && t.node->root == t.node && t.node->contiguous());
  t.node->home = Home::Persistent;
  t.node->data = data;
}

void Graph::drop_unread() {
  std::vector<bool> read(static_cast<size_t>(size_), false);
  for (int i = size_ - 1; i >= 0; --i) {
    Node& n = node(i);
    const bool own_place = n.root == &n && n.home != Home::Arena;  // leaves and bound results
    n.dropped = !own_place && !read[static_cast<size_t>(i)];
    if (n.dropped) continue;
    for (int s = 0; s < n.n_src; ++s) {
      if (const Node* src = n.src[static_cast<size_t>(s)]) read[static_cast<size_t>(src->index)] = true;
    }
  }
}

std::string dump(const Graph& graph) {
  static constexpr const char* kHomes[] = {"arena", "persistent", "mapped"};
  std::string text;
  for (int i = 0; i < graph.size(); ++i) {
    const Node& n = graph.node(i);
    text += fmt::format("{:4} {:24} {:5} {:24} {:10}{}", i, op_name(n.op), name_of(n.type), to_string(n.ne),
                        n.dropped ? "dropped" : kHomes[static_cast<int>(n.home)],
                        n.wants_grad ? " grad" : "     ");
    for (int s = 0; s < n.n_src; ++s) {
      const Node* src = n.src[static_cast<size_t>(s)];
      text += src ? fmt::format(" {}", src->index) : " -";
    }
    text += fmt::format(" {}\n", n.name);
  }
  return text;
}

}  // namespace tandem
