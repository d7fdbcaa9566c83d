// Tensors, nodes and graphs.  A graph covers one segment of a model (the embedding, one layer, head and loss)
// over a token range; nodes run in the order they were emitted.
#pragma once
#include <array>
#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <type_traits>

#include "base/error.h"
#include "base/kernel.h"
#include "formats/dtype.h"

namespace tandem {

// Every op of ops/ops.def, and LEAF for tensors that come from outside the graph.
enum class Op : uint16_t {
  LEAF,
#define OP(name, kernels) name,
#include "ops/ops.def"
#undef OP
};

// Where the bytes of a tensor live (codebase.md 1.7).
enum class Home : uint8_t {
  Arena,       // a temporary of this segment, placed by the planner
  Persistent,  // anonymous memory that outlives the graph: adapters, gradients, caches, inputs
  Mapped,      // weights in the mapped file, read-only
};

// Numbers of elements along each dimension, fastest first.
struct Shape {
  std::array<int64_t, kMaxDims> ne{1, 1, 1, 1};
  constexpr Shape() = default;
  constexpr Shape(int64_t a, int64_t b = 1, int64_t c = 1, int64_t d = 1)
      : ne{a, b, c, d} {}  // NOLINT: implicit
  constexpr int64_t operator[](int i) const { return ne[static_cast<size_t>(i)]; }
  constexpr int64_t elements() const { return ne[0] * ne[1] * ne[2] * ne[3]; }
  constexpr int64_t rows() const { return ne[1] * ne[2] * ne[3]; }
  bool operator==(const Shape&) const = default;
};

// "{2048, 8, 512}", trailing ones left out.
std::string to_string(const Shape& shape);

constexpr size_t kMaxParamsBytes = 64;

struct Node {
  Op op = Op::LEAF;
  DType type = DType::F32;
  Home home = Home::Arena;
  bool wants_grad = false;  // a gradient reaches it or is asked for
  bool dropped = false;     // never run: see Graph::drop_unread
  int32_t index = 0;        // position in the graph
  int32_t n_src = 0;
  Shape ne;
  std::array<int64_t, kMaxDims> nb{};  // bytes per step of each dimension
  std::array<Node*, kMaxSrc> src{};    // null: an optional source that is absent
  Node* root = nullptr;                // whose bytes these are: itself, or the tensor a VIEW looks into
  int64_t root_offset_bytes = 0;       // of the first element, from the root's first
  void* data = nullptr;   // where the bytes are; set at creation for leaves, by bind() or by the planner
  const char* name = "";  // of a leaf; must outlive the graph
  alignas(8) std::array<std::byte, kMaxParamsBytes> params{};

  int64_t elements() const { return ne.elements(); }
  int64_t bytes() const {
    return row_bytes(type, ne[0]) * ne.rows();
  }  // of a contiguous tensor of this shape
  bool contiguous() const;
};

// The parameters of a node's op.
template <class P>
const P& params_of(const Node& node) {
  return *reinterpret_cast<const P*>(node.params.data());
}

class Graph;

// A handle to a node; empty where a tensor is absent.
struct Tensor {
  Node* node = nullptr;
  Graph* graph = nullptr;

  explicit operator bool() const { return node != nullptr; }
  int64_t ne(int i) const { return node->ne[i]; }
  const Shape& shape() const { return node->ne; }
  DType type() const { return node->type; }
};

// Holds the nodes of one segment.  Node addresses are stable; emitting beyond the capacity throws Internal.
class Graph {
 public:
  explicit Graph(int capacity = 2048);
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // A contiguous tensor whose bytes are outside the graph.  `data` may be null while only planning.
  Tensor leaf(DType type, const Shape& ne, Home home, void* data, const char* name);
  Tensor leaf(DType type, const Shape& ne, Home home, const void* data, const char* name) {
    return leaf(type, ne, home, const_cast<void*>(data), name);
  }
  Tensor leaf(DType type, const Shape& ne, Home home, std::nullptr_t, const char* name) {
    return leaf(type, ne, home, static_cast<void*>(nullptr), name);
  }

  // Appends a node: runs the op's shape rule on it.  Throws Usage/Unsupported/Internal as the rule says, with
  // the op's name and both shapes.
  template <class P>
  Tensor emit(Op op, std::initializer_list<Tensor> src, const P& params) {
    static_assert(std::is_trivially_copyable_v<P> && sizeof(P) <= kMaxParamsBytes);
    Node& node = append(op, src);
    std::memcpy(node.params.data(), &params, sizeof(P));
    return finish(node);
  }
  Tensor emit(Op op, std::initializer_list<Tensor> src) { return finish(append(op, src)); }

  // Asks for the gradient of a leaf; must come before ops read it.  A tensor that cannot have one (not F32:
  // frozen weights, ids) is refused with Unsupported, by the op that reads it or, if one does already, at
  // once.
  void want_grad(Tensor leaf);

  // Places the result of a node at `data` (persistent memory of at least its bytes) instead of in the arena.
  void bind(Tensor t, void* data);

  // Leaves out of every run the nodes whose arena results nothing reads, and in turn what only those read;
  // what is wanted of the graph must therefore be bound.  A recompute ends with such nodes: the backward pass
  // needs a layer's inner results and not its output.
  void drop_unread();

  int size() const { return size_; }
  Node& node(int i) { return nodes_[static_cast<size_t>(i)]; }
  const Node& node(int i) const { return nodes_[static_cast<size_t>(i)]; }
  void clear() { size_ = 0; }

  Precision precision = Precision::F32;  // of the products emitted from now on
  const char* segment = "";              // what part of a model this is, for reports

 private:
  Node& append(Op op, std::initializer_list<Tensor> src);
  Tensor finish(Node& node);

  std::unique_ptr<Node[]> nodes_;
  int size_ = 0;
  int capacity_;
};

// Sets nb for a contiguous tensor of the node's type and shape.
void set_contiguous(Node& node);

// One line per node: index, op, type, shape, home, sources.
std::string dump(const Graph& graph);

}  // namespace tandem
