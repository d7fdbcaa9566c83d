#include "graph/graph.h"

#include <gtest/gtest.h>

#include "graph/op_def.h"
#include "ops/ops.h"

namespace tandem {
namespace {

Tensor leaf(Graph& g, const Shape& ne, DType type = DType::F32, const char* name = "x") {
  return g.leaf(type, ne, Home::Persistent, static_cast<void*>(nullptr), name);
}

TEST(Shape, CountsAndPrints) {
  const Shape s{2, 3, 4};
  EXPECT_EQ(s.elements(), 24);
  EXPECT_EQ(s.rows(), 12);
  EXPECT_EQ(to_string(s), "{2, 3, 4}");
  EXPECT_EQ(to_string(Shape{}), "{1}");
  EXPECT_EQ(to_string(Shape{5, 1, 2, 1}), "{5, 1, 2}");
  EXPECT_EQ((Shape{5, 0, 2}).elements(), 0);
}

TEST(Graph, LeavesAreContiguousInBytesOfTheirType) {
  Graph g;
  Tensor f = leaf(g, {6, 5, 4});
  EXPECT_EQ(f.node->nb, (std::array<int64_t, 4>{4, 24, 120, 480}));
  EXPECT_EQ(f.node->bytes(), 480);
  Tensor q = leaf(g, {512, 3}, DType::Q4_K);
  EXPECT_EQ(q.node->nb, (std::array<int64_t, 4>{144, 288, 864, 864}));
  EXPECT_EQ(q.node->bytes(), 864);
  EXPECT_TRUE(f.node->contiguous() && q.node->contiguous());
}

TEST(Graph, RefusesLeavesThatCannotBe) {
  Graph g;
  EXPECT_THROW(leaf(g, {31}, DType::Q8_0), Error);
  EXPECT_THROW(leaf(g, {4, -1}), Error);
}

TEST(Graph, ContiguityIgnoresStridesOfSingleElements) {
  Node n;
  n.ne = {4, 1, 3};
  n.nb = {4, 999, 16, 7};
  EXPECT_TRUE(n.contiguous());
  n.nb = {4, 16, 32, 0};
  EXPECT_FALSE(n.contiguous());
  n.nb = {8, 16, 16, 0};
  EXPECT_FALSE(n.contiguous());
}

TEST(Graph, NodesKeepTheirAddressesAndOrder) {
  Graph g(64);
  Tensor x = leaf(g, {4});
  Node* first = x.node;
  for (int i = 1; i < 64; ++i) x = scale(x, 2);
  EXPECT_EQ(first, &g.node(0));
  for (int i = 0; i < 64; ++i) EXPECT_EQ(g.node(i).index, i);
  EXPECT_THROW(scale(x, 2), Error);  // full
  g.clear();
  EXPECT_EQ(g.size(), 0);
  EXPECT_EQ(leaf(g, {2}).node, first);
}

TEST(Graph, AReusedNodeIsNew) {
  Graph g(2);
  Tensor x = leaf(g, {4});
  g.want_grad(x);
  scale(x, 2);
  g.clear();
  Tensor y = leaf(g, {8, 2});
  EXPECT_FALSE(y.node->wants_grad);
  Tensor z = scale(y, 3);
  EXPECT_EQ(z.shape(), (Shape{8, 2}));
  EXPECT_FALSE(z.node->wants_grad);
  EXPECT_EQ(z.node->nb[1], 32);
}

TEST(Graph, WantingAGradientSpreadsForward) {
  Graph g;
  Tensor a = leaf(g, {4}), b = leaf(g, {4});
  g.want_grad(a);
  Tensor c = scale(b, 2), d = mul(a, c), e = scale(d, 2);
  EXPECT_FALSE(c.node->wants_grad);
  EXPECT_TRUE(d.node->wants_grad && e.node->wants_grad);
}

TEST(Graph, WantingAGradientDoesNotPassIds) {
  Graph g;
  Tensor x = leaf(g, {8, 4});
  g.want_grad(x);
  Tensor ids = top_k(x, 2);
  Tensor y = get_rows(leaf(g, {3, 8, 4}), ids);
  EXPECT_FALSE(y.node->wants_grad);
  EXPECT_EQ(y.shape(), (Shape{3, 2, 4}));
}

TEST(Graph, ViewsShareTheBytesOfTheirRoot) {
  Graph g;
  Tensor x = scale(leaf(g, {6, 4}), 1);
  Tensor v = view_strided(x, {2, 4}, {4, 24, 96, 96}, 8);
  Tensor w = view(v, {1}, 4);
  EXPECT_EQ(v.node->root, x.node);
  EXPECT_EQ(w.node->root, x.node);
  EXPECT_EQ(w.node->root_offset_bytes, 12);
  EXPECT_FALSE(v.node->contiguous());
  EXPECT_THROW(g.bind(v, nullptr), Error);  // not its own bytes
}

TEST(Graph, BindsAResultToPersistentMemory) {
  Graph g;
  std::vector<float> memory(4);
  Tensor y = scale(leaf(g, {4}), 2);
  g.bind(y, memory.data());
  EXPECT_EQ(y.node->home, Home::Persistent);
  EXPECT_EQ(y.node->data, memory.data());
  EXPECT_THROW(g.bind(leaf(g, {4}), memory.data()), Error);
}

TEST(Graph, DropsWhatNothingReads) {
  Graph g;
  std::vector<float> memory(4);
  Tensor x = leaf(g, {4});
  Tensor kept = scale(x, 2);
  Tensor looked_at = view(kept, {2}, 0);
  Tensor bound = scale(x, 3);
  g.bind(bound, memory.data());
  Tensor inner = scale(kept, 4);
  Tensor end = add(scale(inner, 5), view(bound, {4}, 0));
  Tensor later = scale(looked_at, 6);
  g.bind(later, memory.data());
  g.drop_unread();
  for (const Tensor& t : {x, kept, looked_at, bound, later}) EXPECT_FALSE(t.node->dropped) << t.node->index;
  for (int i = inner.node->index; i <= end.node->index; ++i) EXPECT_TRUE(g.node(i).dropped) << i;
  EXPECT_NE(dump(g).find("dropped"), std::string::npos);
}

TEST(Graph, RefusesTensorsOfAnotherGraphAndAbsentSources) {
  Graph g, other;
  Tensor a = leaf(g, {4}), b = leaf(other, {4});
  EXPECT_THROW(g.emit(Op::MUL, {a, b}), Error);
  EXPECT_THROW(g.emit(Op::MUL, {a, Tensor{}}), Error);
  EXPECT_THROW(g.emit(Op::MUL, {a}), Error);
}

TEST(Graph, AMisfitNamesTheOpAndTheShapes) {
  Graph g;
  try {
    mul_mat(leaf(g, {8, 4}), leaf(g, {7, 2}));
    ADD_FAILURE() << "{8, 4} times {7, 2} was accepted";
  } catch (const Error& e) {
    const std::string what = e.what();
    EXPECT_NE(what.find("MUL_MAT"), std::string::npos) << what;
    EXPECT_NE(what.find("{8, 4}"), std::string::npos) << what;
    EXPECT_NE(what.find("{7, 2}"), std::string::npos) << what;
  }
}

TEST(Graph, DumpHasALinePerNode) {
  Graph g;
  Tensor x = leaf(g, {6, 4}, DType::F32, "token embedding");
  g.want_grad(x);
  rms_norm(x, 1e-6f);
  const std::string text = dump(g);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
  for (const char* part : {"LEAF", "token embedding", "RMS_NORM", "{6, 4}", "persistent", "arena", "grad"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " is missing in\n" << text;
  }
}

}  // namespace
}  // namespace tandem
