#include "tests/op/run_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>

#include "graph/op_def.h"

namespace tandem {
namespace {

constexpr std::align_val_t kAlign{64};  // bytes; what the planner assumes of an arena

struct FreeAligned {
  void operator()(std::byte* p) const { ::operator delete[](p, kAlign); }
};

std::vector<std::vector<std::byte>> leaf_bytes(const Graph& graph) {
  std::vector<std::vector<std::byte>> all;
  for (int i = 0; i < graph.size(); ++i) {
    const Node& n = graph.node(i);
    if (n.op == Op::LEAF) all.push_back(gather_bytes(n));
  }
  return all;
}

bool in_arena(const Node& n) { return n.op != Op::LEAF && n.root == &n && n.home == Home::Arena; }

uint32_t word_at(const std::byte* p) {
  uint32_t w;
  std::memcpy(&w, p, sizeof w);
  return w;
}

// Looks for elements that still hold the poison and for guard words that no longer do.
std::string inspect(const Graph& graph, const Plan& plan, const RunOptions& o, const std::byte* arena) {
  for (int i = 0; i < graph.size(); ++i) {
    const Node& n = graph.node(i);
    if (!in_arena(n)) continue;
    const std::byte* p = arena + plan.offset[static_cast<size_t>(i)];
    for (int64_t b = 0; b < n.bytes(); b += 4) {
      if (word_at(p + b) == o.poison) {
        return fmt::format("{} (node {}) left element {} of {} unwritten", op_name(n.op), i, b / 4,
                           to_string(n.ne));
      }
    }
    for (int64_t b = n.bytes(); b + 4 <= n.bytes() + static_cast<int64_t>(o.guard_bytes); b += 4) {
      if (word_at(p + b) != o.poison) {
        return fmt::format("bytes behind {} (node {}, {}) were overwritten", op_name(n.op), i,
                           to_string(n.ne));
      }
    }
  }
  return "";
}

// Shows each unit a result of nothing but poison, and keeps what it writes there.
class OneWriter final : public CpuBackend::UnitWatch {
 public:
  explicit OneWriter(uint32_t poison) : poison_(poison) {}

  void before(const Node& node, int64_t) override {
    if (&node != node_) {
      node_ = &node;
      written_.assign(static_cast<size_t>(node.bytes()) / 4, poison_);
    }
    std::fill_n(words(node), written_.size(), poison_);
  }

  void after(const Node& node, int64_t unit) override {
    const uint32_t* now = words(node);
    for (size_t i = 0; i < written_.size(); ++i) {
      if (now[i] == poison_) continue;
      if (written_[i] != poison_ && complaint.empty()) {
        complaint = fmt::format("{} (node {}): unit {} writes element {}, which another unit has written",
                                op_name(node.op), node.index, unit, i);
      }
      written_[i] = now[i];
    }
    std::copy(written_.begin(), written_.end(), words(node));
  }

  std::string complaint;

 private:
  static uint32_t* words(const Node& node) { return static_cast<uint32_t*>(node.data); }
  const uint32_t poison_;
  const Node* node_ = nullptr;
  std::vector<uint32_t> written_;  // by the units so far
};

}  // namespace

std::vector<std::byte> gather_bytes(const Node& node) {
  std::vector<std::byte> out(static_cast<size_t>(node.bytes()));
  const size_t row = static_cast<size_t>(row_bytes(node.type, node.ne[0]));
  std::byte* to = out.data();
  for (int64_t d = 0; d < node.ne[3]; ++d)
    for (int64_t c = 0; c < node.ne[2]; ++c)
      for (int64_t b = 0; b < node.ne[1]; ++b, to += row) {
        if (row) {
          std::memcpy(
              to, static_cast<const std::byte*>(node.data) + b * node.nb[1] + c * node.nb[2] + d * node.nb[3],
              row);
        }
      }
  return out;
}

CaseRun run_on_cpu(Graph& graph, const RunOptions& options) {
  ThreadPool pool(options.n_threads);
  CpuBackend cpu(pool, options.level);
  const PlanOptions plan_options{options.share, options.guard_bytes};
  cpu.set_plan_options(plan_options);
  const size_t bytes = (cpu.plan(graph, graph.size()).total() + 3) / 4 * 4;
  std::unique_ptr<std::byte[], FreeAligned> memory(static_cast<std::byte*>(::operator new[](bytes, kAlign)));
  for (size_t b = 0; b < bytes; b += 4) std::memcpy(memory.get() + b, &options.poison, 4);
  const std::vector<std::vector<std::byte>> leaves = leaf_bytes(graph);

  CaseRun result;
  const auto start = std::chrono::steady_clock::now();
  if (options.one_writer) {
    OneWriter watch(options.poison);
    cpu.run_watched(graph, graph.size(), {memory.get(), bytes}, watch);
    result.complaint = watch.complaint;
  } else {
    cpu.run(graph, graph.size(), {memory.get(), bytes}, Priority::Training);
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();

  if (leaf_bytes(graph) != leaves && result.complaint.empty()) result.complaint = "a leaf was written to";
  const Plan plan = plan_arena(graph, graph.size(), plan_options);
  if (!options.share && result.complaint.empty())
    result.complaint = inspect(graph, plan, options, memory.get());
  std::vector<bool> read(static_cast<size_t>(graph.size()), false);
  for (int i = 0; i < graph.size(); ++i) {
    const Node& n = graph.node(i);
    for (int s = 0; s < n.n_src; ++s) {
      if (const Node* src = n.src[static_cast<size_t>(s)]) read[static_cast<size_t>(src->index)] = true;
    }
  }
  result.values.resize(static_cast<size_t>(graph.size()));
  for (int i = 0; i < graph.size(); ++i) {
    const Node& n = graph.node(i);
    const size_t index = static_cast<size_t>(i);
    if (n.op != Op::LEAF && (!options.share || !read[index])) result.values[index] = gather_bytes(n);
  }
  return result;
}

}  // namespace tandem
