#include "graph/planner.h"

#include <algorithm>

#include "graph/op_def.h"

namespace tandem {
namespace {

constexpr size_t kAlign = 64;  // bytes: a cache line, and the widest vector

size_t rounded(size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

bool in_arena(const Node& n) {
  return n.op != Op::LEAF && n.root == &n && n.home == Home::Arena && !n.dropped;
}

// The free bytes of the arena, kept as sorted, disjoint, non-touching ranges; the last one is open-ended.
class FreeList {
 public:
  // The smallest hole that fits, or the open end.
  size_t take(size_t bytes) {
    size_t best = ranges_.size() - 1;
    for (size_t i = 0; i + 1 < ranges_.size(); ++i) {
      const size_t hole = ranges_[i].end - ranges_[i].begin;
      if (hole < bytes) continue;
      if (best == ranges_.size() - 1 || hole < ranges_[best].end - ranges_[best].begin) best = i;
    }
    const size_t offset = ranges_[best].begin;
    ranges_[best].begin += bytes;
    if (best + 1 < ranges_.size() && ranges_[best].begin == ranges_[best].end) {
      ranges_.erase(ranges_.begin() + static_cast<ptrdiff_t>(best));
    }
    return offset;
  }
  void give(size_t offset, size_t bytes) {
    size_t i = 0;
    while (ranges_[i].begin < offset) ++i;
    const size_t end = offset + bytes;
    const bool joins_next = ranges_[i].begin == end;
    const bool joins_previous = i > 0 && ranges_[i - 1].end == offset;
    if (joins_previous && joins_next) {
      ranges_[i].begin = ranges_[i - 1].begin;
      ranges_.erase(ranges_.begin() + static_cast<ptrdiff_t>(i) - 1);
    } else if (joins_next) {
      ranges_[i].begin = offset;
    } else if (joins_previous) {
      ranges_[i - 1].end = end;
    } else {
      ranges_.insert(ranges_.begin() + static_cast<ptrdiff_t>(i), Range{offset, end});
    }
  }

 private:
  struct Range {
    size_t begin, end;
  };
  std::vector<Range> ranges_{{0, SIZE_MAX}};
};

// May the result of `node` take the bytes of its source s?  Only if that source dies here, and whatever other
// source looks into the same bytes is that very tensor and may be overwritten too.
bool may_overwrite(const Node& node, int s, uint32_t inplace, const std::vector<int32_t>& last_use) {
  if (!(inplace >> s & 1) || !fits_in_place(node, s)) return false;
  const Node* src = node.src[static_cast<size_t>(s)];
  if (!in_arena(*src) || last_use[static_cast<size_t>(src->index)] != node.index) return false;
  for (int i = 0; i < node.n_src; ++i) {
    const Node* other = node.src[static_cast<size_t>(i)];
    if (other && other->root == src->root && (other != src || !(inplace >> i & 1))) return false;
  }
  return true;
}

}  // namespace

bool fits_in_place(const Node& node, int s) {
  const Node* src = node.src[static_cast<size_t>(s)];
  return src && op_def(node.op).inplace >> s & 1 && src->bytes() == node.bytes() && src->contiguous() &&
         node.contiguous();
}

Plan plan_arena(const Graph& graph, int n_nodes, const PlanOptions& options) {
  const size_t n = static_cast<size_t>(n_nodes);
  Plan plan;
  plan.offset.assign(n, -1);
  plan.storage.resize(n);

  // When a root is read for the last time.  A result that nothing reads is an output and stays to the end,
  // and so does the root of a view that nothing reads.
  std::vector<int32_t> last_use(n, -1);
  std::vector<bool> read(n, false);
  for (int i = 0; i < n_nodes; ++i) {
    const Node& node = graph.node(i);
    plan.storage[static_cast<size_t>(i)] = i;
    if (node.dropped) continue;
    for (int s = 0; s < node.n_src; ++s) {
      const Node* src = node.src[static_cast<size_t>(s)];
      if (!src) continue;
      read[static_cast<size_t>(src->index)] = true;
      if (node.op != Op::VIEW) last_use[static_cast<size_t>(src->root->index)] = i;
    }
  }
  for (int i = 0; i < n_nodes; ++i) {
    if (!read[static_cast<size_t>(i)]) last_use[static_cast<size_t>(graph.node(i).root->index)] = n_nodes;
  }

  struct Block {
    size_t offset, bytes;
    int32_t dies;
  };
  std::vector<Block> live;
  std::vector<int32_t> block_of(n, -1);
  FreeList free_list;
  for (int i = 0; i < n_nodes; ++i) {
    const Node& node = graph.node(i);
    if (options.share) {
      for (Block& b : live) {
        if (b.bytes && b.dies < i) {
          free_list.give(b.offset, b.bytes);
          b.bytes = 0;
        }
      }
    }
    if (!in_arena(node)) continue;
    const size_t index = static_cast<size_t>(i);
    const uint32_t inplace = options.share ? op_def(node.op).inplace : 0;
    for (int s = 0; s < node.n_src && plan.offset[index] < 0; ++s) {
      if (!may_overwrite(node, s, inplace, last_use)) continue;
      const size_t src = static_cast<size_t>(node.src[static_cast<size_t>(s)]->index);
      plan.offset[index] = plan.offset[src];
      plan.storage[index] = plan.storage[src];
      block_of[index] = block_of[src];
      live[static_cast<size_t>(block_of[index])].dies = last_use[index];
    }
    if (plan.offset[index] >= 0) continue;
    const size_t bytes = std::max(kAlign, rounded(static_cast<size_t>(node.bytes()) + options.guard_bytes));
    const size_t offset = free_list.take(bytes);
    plan.offset[index] = static_cast<ptrdiff_t>(offset);
    plan.arena_bytes = std::max(plan.arena_bytes, offset + bytes);
    block_of[index] = static_cast<int32_t>(live.size());
    live.push_back({offset, bytes, last_use[index]});
  }
  return plan;
}

void place(Graph& graph, int n_nodes, const Plan& plan, std::byte* arena) {
  for (int i = 0; i < n_nodes; ++i) {
    Node& node = graph.node(i);
    if (node.dropped) continue;
    if (plan.offset[static_cast<size_t>(i)] >= 0) node.data = arena + plan.offset[static_cast<size_t>(i)];
    if (node.root != &node) node.data = static_cast<std::byte*>(node.root->data) + node.root_offset_bytes;
  }
}

}  // namespace tandem
