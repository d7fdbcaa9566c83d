#include "graph/planner.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "graph/op_def.h"
#include "ops/ops.h"

namespace tandem {
namespace {

constexpr size_t kGranule = 64;  // bytes; everything in an arena starts at a multiple

Tensor leaf(Graph& g, const Shape& ne) {
  return g.leaf(DType::F32, ne, Home::Persistent, static_cast<void*>(nullptr), "x");
}

bool in_arena(const Node& n) { return n.op != Op::LEAF && n.root == &n && n.home == Home::Arena; }

struct Extent {
  size_t begin, end;
  bool meets(const Extent& o) const { return begin < o.end && o.begin < end; }
  bool operator==(const Extent&) const = default;
};

Extent extent_of(const Node& n, const Plan& plan) {
  const size_t at = static_cast<size_t>(plan.offset[static_cast<size_t>(n.index)]);
  return {at, at + static_cast<size_t>(n.bytes())};
}

// Runs a plan on an arena that only remembers whose value each granule holds.  Every source must still be
// whole when it is read, and everything that nothing reads must be whole at the end.  A result may take the
// very bytes of a source that dies, if its op says so, and may otherwise touch no source.
void expect_sound(const Graph& g, const Plan& plan) {
  std::vector<int32_t> owner(plan.arena_bytes / kGranule + 1, -1);
  std::vector<bool> read(static_cast<size_t>(g.size()), false);
  const auto whole = [&](const Node& n) {
    if (!in_arena(n)) return true;
    const Extent e = extent_of(n, plan);
    for (size_t b = e.begin / kGranule; b * kGranule < e.end; ++b) {
      if (owner[b] != n.index) return false;
    }
    return true;
  };
  for (int i = 0; i < g.size(); ++i) {
    const Node& n = g.node(i);
    const size_t index = static_cast<size_t>(i);
    for (int s = 0; s < n.n_src; ++s) {
      const Node& src = *n.src[static_cast<size_t>(s)];
      read[static_cast<size_t>(src.index)] = true;
      ASSERT_TRUE(whole(*src.root)) << "node " << i << " reads node " << src.root->index
                                    << " after it was overwritten";
    }
    if (!in_arena(n)) {
      ASSERT_EQ(plan.offset[index], -1) << "node " << i;
      continue;
    }
    ASSERT_GE(plan.offset[index], 0);
    const Extent e = extent_of(n, plan);
    ASSERT_EQ(e.begin % kGranule, 0u);
    ASSERT_LE(e.end, plan.arena_bytes);
    bool in_place = false;
    for (int s = 0; s < n.n_src; ++s) {
      const Node& root = *n.src[static_cast<size_t>(s)]->root;
      if (!in_arena(root) || !extent_of(root, plan).meets(e)) continue;
      ASSERT_EQ(extent_of(root, plan), e) << "node " << i << " half overlaps its source " << root.index;
      ASSERT_TRUE(op_def(n.op).inplace >> s & 1) << op_name(n.op) << " must not overwrite source " << s;
      ASSERT_EQ(n.src[static_cast<size_t>(s)], &root)
          << "node " << i << " overwrites what it reads through a view";
      in_place = true;
    }
    ASSERT_EQ(plan.storage[index] != i, in_place) << "node " << i;
    for (size_t b = e.begin / kGranule; b * kGranule < e.end; ++b) owner[b] = i;
  }
  for (int i = 0; i < g.size(); ++i) {
    const bool output = !read[static_cast<size_t>(i)];
    ASSERT_TRUE(!output || whole(*g.node(i).root)) << "output " << i << " is gone at the end";
  }
}

// A graph of random ops over tensors of a few sizes, with views of views and results in persistent memory.
void emit_random(Graph& g, std::mt19937& rng, int n_nodes, std::vector<float>& bound) {
  std::vector<Tensor> all;
  const auto random = [&](size_t n) { return static_cast<size_t>(rng() % n); };
  for (int i = 0; i < 3; ++i) all.push_back(leaf(g, {static_cast<int64_t>(8 << random(4)), 4}));
  while (g.size() < n_nodes) {
    // mostly recent tensors, sometimes an old one
    const size_t back = random(4) ? random(std::min<size_t>(all.size(), 6)) : random(all.size());
    Tensor x = all[all.size() - 1 - back], y;
    switch (random(7)) {
      case 0:
        y = scale(x, 2);
        break;
      case 1:
        y = rms_norm(x, 1e-6f);
        break;
      case 2:
        y = add(x, x);
        break;
      case 3: {
        y = x;
        for (size_t k = 0; k < all.size(); ++k) {
          Tensor other = all[(k + back) % all.size()];
          if (other.shape() == x.shape()) y = mul(x, other);
        }
        if (y.node == x.node) y = mul(x, x);
        break;
      }
      case 4:
        y = cont(x);
        break;
      case 5: {
        const int64_t n0 = x.ne(0) > 8 ? x.ne(0) / 2 : x.ne(0);
        std::array<int64_t, kMaxDims> nb = x.node->nb;
        y = view_strided(x, {n0, x.ne(1)}, nb, static_cast<int64_t>(random(2)) * (x.ne(0) - n0) * 4);
        break;
      }
      default:
        y = rms_norm_back(x, x, 1e-6f);
        break;
    }
    if (y.node->op != Op::VIEW && random(12) == 0) g.bind(y, bound.data());
    all.push_back(y);
  }
}

TEST(Planner, NoLiveTensorsOverlapInRandomGraphs) {
  size_t shared = 0, unshared = 0;
  int in_place = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 rng(seed);
    Graph g;
    std::vector<float> bound(1024);
    emit_random(g, rng, 10 + static_cast<int>(seed % 90), bound);
    const Plan plan = plan_arena(g, g.size());
    ASSERT_NO_FATAL_FAILURE(expect_sound(g, plan)) << "seed " << seed << "\n" << dump(g);
    const Plan apart = plan_arena(g, g.size(), {.share = false, .guard_bytes = 0});
    ASSERT_NO_FATAL_FAILURE(expect_sound(g, apart)) << "seed " << seed;
    shared += plan.arena_bytes;
    unshared += apart.arena_bytes;
    for (int i = 0; i < g.size(); ++i) in_place += plan.storage[static_cast<size_t>(i)] != i;
  }
  EXPECT_LT(shared * 5, unshared * 4);  // else little was shared and the test says little
  EXPECT_GT(in_place, 100);
}

TEST(Planner, UnsharedTensorsAreApartWithTheirGuards) {
  std::mt19937 rng(7);
  Graph g;
  std::vector<float> bound(1024);
  emit_random(g, rng, 60, bound);
  constexpr size_t kGuard = 100;
  const Plan plan = plan_arena(g, g.size(), {.share = false, .guard_bytes = kGuard});
  std::map<size_t, size_t> ends;  // by begin
  for (int i = 0; i < g.size(); ++i) {
    if (!in_arena(g.node(i))) continue;
    const Extent e = extent_of(g.node(i), plan);
    EXPECT_TRUE(ends.emplace(e.begin, e.end + kGuard).second);
    EXPECT_EQ(plan.storage[static_cast<size_t>(i)], i);
  }
  size_t free_from = 0;
  for (const auto& [begin, end] : ends) {
    EXPECT_GE(begin, free_from);
    free_from = end;
  }
  EXPECT_LE(free_from, plan.arena_bytes);
}

TEST(Planner, AChainNeedsOneTensor) {
  Graph g;
  Tensor x = leaf(g, {1024});
  for (int i = 0; i < 10; ++i) x = scale(x, 2);
  const Plan plan = plan_arena(g, g.size());
  EXPECT_EQ(plan.arena_bytes, 4096u);
  EXPECT_EQ(plan.storage.back(), 1);
}

TEST(Planner, AResultTakesTheBytesOfASourceOnlyWhereThatDies) {
  Graph g;
  Tensor a = scale(leaf(g, {64}), 2);
  Tensor b = scale(a, 3);  // a is read again below
  Tensor c = mul(a, b);
  const Plan plan = plan_arena(g, g.size());
  EXPECT_EQ(plan.storage[static_cast<size_t>(b.node->index)], b.node->index);
  EXPECT_NE(plan.storage[static_cast<size_t>(c.node->index)], c.node->index);
  expect_sound(g, plan);
}

TEST(Planner, NothingIsOverwrittenThatAViewStillShows) {
  Graph g;
  Tensor a = scale(leaf(g, {64}), 2);
  Tensor v = view(a, {32}, 128);
  Tensor b = scale(a, 3);  // a itself is not read again, but the view is
  Tensor c = scale(v, 4);
  Tensor d = add(cont(view(b, {32})), c);
  const Plan plan = plan_arena(g, g.size());
  EXPECT_EQ(plan.storage[static_cast<size_t>(b.node->index)], b.node->index);
  EXPECT_TRUE(d);
  expect_sound(g, plan);
}

TEST(Planner, ASourceReadThroughAViewByTheSameNodeIsNotOverwritten) {
  Graph g;
  Tensor a = scale(leaf(g, {32, 2}), 2);
  Tensor b = mul(a, view(a, {32}, 128));  // the second row times both
  const Plan plan = plan_arena(g, g.size());
  EXPECT_EQ(plan.storage[static_cast<size_t>(b.node->index)], b.node->index);
  expect_sound(g, plan);
}

TEST(Planner, AResultOfAnotherSizeIsNotInPlace) {
  Graph g;
  Tensor small = scale(leaf(g, {64}), 2);
  Tensor large = scale(leaf(g, {64, 3}), 2);
  Tensor c = mul(large, small);
  Tensor d = scale(view(c, {64}), 5);
  const Plan plan = plan_arena(g, g.size());
  EXPECT_EQ(plan.storage[static_cast<size_t>(c.node->index)], large.node->index);
  EXPECT_EQ(plan.storage[static_cast<size_t>(d.node->index)], d.node->index);
  expect_sound(g, plan);
}

TEST(Planner, OutputsSurviveToTheEnd) {
  Graph g;
  Tensor x = leaf(g, {256});
  Tensor first = scale(x, 2);               // nothing reads it
  Tensor seen = view(scale(x, 3), {8}, 0);  // nothing reads the view, so its root stays
  for (int i = 0; i < 20; ++i) x = rms_norm(x, 1e-6f);
  const Plan plan = plan_arena(g, g.size());
  expect_sound(g, plan);
  for (int i = 0; i < g.size(); ++i) {
    const Node& n = g.node(i);
    if (!in_arena(n) || &n == first.node || &n == seen.node->root) continue;
    EXPECT_FALSE(extent_of(n, plan).meets(extent_of(*first.node, plan)));
    EXPECT_FALSE(i > seen.node->index && extent_of(n, plan).meets(extent_of(*seen.node->root, plan)));
  }
}

TEST(Planner, BoundResultsAndLeavesAreNotInTheArena) {
  Graph g;
  std::vector<float> memory(64);
  Tensor a = scale(leaf(g, {64}), 2);
  g.bind(a, memory.data());
  Tensor b = scale(a, 3);  // must not take a's bytes
  const Plan plan = plan_arena(g, g.size());
  EXPECT_EQ(plan.offset[static_cast<size_t>(a.node->index)], -1);
  EXPECT_EQ(plan.storage[static_cast<size_t>(b.node->index)], b.node->index);
  EXPECT_EQ(plan.arena_bytes, 256u);
}

TEST(Planner, PlansAPrefix) {
  Graph g;
  Tensor a = scale(leaf(g, {64}), 2);
  const int n = g.size();
  scale(a, 3);
  const Plan plan = plan_arena(g, n);
  EXPECT_EQ(plan.offset.size(), static_cast<size_t>(n));
  EXPECT_EQ(plan.offset[1], 0);
}

TEST(Planner, DroppedNodesTakeNoBytesAndKeepNothingAlive) {
  Graph g;
  std::vector<float> memory(64);
  Tensor a = scale(leaf(g, {64}), 2);
  g.bind(scale(a, 3), memory.data());
  Tensor unread = mul(rms_norm(a, 1e-6f), a);
  Tensor part = view(unread, {16}, 128);
  const size_t all = plan_arena(g, g.size()).arena_bytes;
  g.drop_unread();
  const Plan plan = plan_arena(g, g.size());
  EXPECT_EQ(plan.offset[static_cast<size_t>(a.node->index)], 0);
  EXPECT_EQ(plan.offset[static_cast<size_t>(unread.node->index)], -1);
  EXPECT_EQ(plan.arena_bytes, 256u);
  EXPECT_EQ(all, 512u);
  alignas(64) std::byte arena[256];
  place(g, g.size(), plan, arena);
  EXPECT_EQ(unread.node->data, nullptr);
  EXPECT_EQ(part.node->data, nullptr);
}

TEST(Planner, PlaceWritesAddressesThroughViews) {
  Graph g;
  Tensor a = scale(leaf(g, {16, 4}), 2);
  Tensor v = view(view(a, {16, 2}, 128), {4}, 16);
  Tensor b = scale(v, 3);
  std::vector<float> memory(4096);
  auto* arena = reinterpret_cast<std::byte*>(memory.data());
  const Plan plan = plan_arena(g, g.size());
  place(g, g.size(), plan, arena);
  EXPECT_EQ(a.node->data, arena + plan.offset[static_cast<size_t>(a.node->index)]);
  EXPECT_EQ(v.node->data, static_cast<std::byte*>(a.node->data) + 144);
  EXPECT_EQ(b.node->data, arena + plan.offset[static_cast<size_t>(b.node->index)]);
}

TEST(Planner, PlaceFollowsViewsOfBoundTensorsAndLeaves) {
  Graph g;
  std::vector<float> memory(64), x(64);
  Tensor l = g.leaf(DType::F32, {64}, Home::Persistent, x.data(), "x");
  Tensor a = scale(view(l, {8}, 32), 2);
  g.bind(a, memory.data());
  Tensor v = view(a, {4}, 16);
  const Plan plan = plan_arena(g, g.size());
  place(g, g.size(), plan, nullptr);
  EXPECT_EQ(a.node->src[0]->data, x.data() + 8);
  EXPECT_EQ(v.node->data, memory.data() + 4);
}

}  // namespace
}  // namespace tandem
