#include "exec/cpu/cpu_backend.h"

#include <algorithm>
#include <chrono>
#include <deque>

#include "exec/cpu/kernel_table.h"
#include "formats/format_kernels.h"
#include "graph/op_def.h"

namespace tandem {
namespace {

constexpr size_t kAlign = 64;
size_t rounded(size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

void fill(NodeView& view, const Node& node, IsaLevel level) {
  const TypeInfo& info = type_info(node.type);
  view.data = node.data;
  for (int i = 0; i < kMaxDims; ++i) {
    view.ne[i] = node.ne[i];
    view.nb[i] = node.nb[static_cast<size_t>(i)];
  }
  view.type = static_cast<int32_t>(node.type);
  view.block_elements = info.block_elements;
  view.block_bytes = info.block_bytes;
  view.format = format_kernels(node.type, level);
}

KernelArgs make_args(const Node& node, IsaLevel level) {
  KernelArgs args{};
  fill(args.dst, node, level);
  args.n_src = node.n_src;
  for (int i = 0; i < node.n_src; ++i) {
    if (const Node* s = node.src[static_cast<size_t>(i)]) fill(args.src[i], *s, level);
  }
  args.params = node.params.data();
  return args;
}

bool skipped(const Node& node) {
  return node.op == Op::LEAF || node.op == Op::VIEW || node.dropped || node.elements() == 0;
}

// The references see plain numbers only, so a node with quantized sources never falls back on them.
bool reference_takes(const Node& node) {
  const auto plain = [](const Node* n) { return n->type == DType::F32 || n->type == DType::I32; };
  for (int i = 0; i < node.n_src; ++i) {
    if (const Node* s = node.src[static_cast<size_t>(i)]; s && !plain(s)) return false;
  }
  return plain(&node);
}

RefTensor<float> ref_tensor(const Node& node) {
  RefTensor<float> t;
  if (node.type == DType::I32) {
    t.i = static_cast<int32_t*>(node.data);
  } else {
    t.f = static_cast<float*>(node.data);
  }
  for (size_t i = 0; i < kMaxDims; ++i) {
    t.ne[i] = node.ne.ne[i];
    t.st[i] = node.nb[i] / 4;
  }
  return t;
}

void run_reference(const void* arg, int64_t, int) noexcept {
  const Node& node = *static_cast<const Node*>(arg);
  RefArgs<float> args;
  args.dst = ref_tensor(node);
  for (size_t i = 0; i < static_cast<size_t>(node.n_src); ++i) {
    if (node.src[i]) args.src[i] = ref_tensor(*node.src[i]);
  }
  args.raw_params = node.params.data();
  op_def(node.op).ref_f32(args);
}

struct PhaseCall {
  const KernelArgs* args;
  void (*run)(const KernelArgs& args, int64_t lo, int64_t hi, int thread);
};

void run_phase(const void* arg, int64_t unit, int thread) noexcept {
  const PhaseCall& call = *static_cast<const PhaseCall*>(arg);
  call.run(*call.args, unit, unit + 1, thread);
}

}  // namespace

CpuBackend::CpuBackend(ThreadPool& pool, IsaLevel level) : pool_(pool), level_(level) {
  if (!isa_supported(level)) {
    fail(Code::Unsupported, "this machine has no {} instructions; the best it runs is {}", isa_name(level),
         isa_name(best_isa()));
  }
}

const CpuKernel* CpuBackend::choose(const Node& node, const KernelArgs& args, IsaLevel* level) const {
  for (int l = static_cast<int>(level_); l >= 0; --l) {
    const CpuKernel* kernel = cpu_kernel(node.op, static_cast<IsaLevel>(l));
    if (kernel && (!kernel->refuse || !kernel->refuse(args))) {
      *level = static_cast<IsaLevel>(l);
      return kernel;
    }
  }
  if (!reference_takes(node)) {
    std::string reasons;
    explain(node, &reasons);
    fail(Code::Unsupported, "{} {}: no kernel takes it ({})", op_name(node.op), to_string(node.ne), reasons);
  }
  return nullptr;
}

const char* CpuBackend::explain(const Node& node, std::string* refusals) const {
  const KernelArgs args = make_args(node, level_);
  for (int l = static_cast<int>(level_); l >= 0; --l) {
    const CpuKernel* kernel = cpu_kernel(node.op, static_cast<IsaLevel>(l));
    if (!kernel) continue;
    const char* reason = kernel->refuse ? kernel->refuse(args) : nullptr;
    if (!reason) return isa_name(static_cast<IsaLevel>(l));
    if (refusals)
      *refusals +=
          fmt::format("{}{}: {}", refusals->empty() ? "" : "; ", isa_name(static_cast<IsaLevel>(l)), reason);
  }
  return "reference";
}

const char* CpuBackend::refusal(const Node& node, IsaLevel level) {
  if (!cpu_kernel(node.op, level)) return "no kernel";
  const CpuKernel& kernel = *cpu_kernel(node.op, IsaLevel::base);
  return kernel.refuse ? kernel.refuse(make_args(node, level)) : nullptr;
}

MemoryNeed CpuBackend::plan(const Graph& graph, int n_nodes) {
  MemoryNeed need;
  need.arena_bytes = plan_arena(graph, n_nodes, plan_options_).arena_bytes;
  for (int i = 0; i < n_nodes; ++i) {
    const Node& node = graph.node(i);
    if (skipped(node)) continue;
    const KernelArgs args = make_args(node, level_);
    IsaLevel level;
    const CpuKernel* kernel = choose(node, args, &level);
    if (!kernel || !kernel->scratch) continue;
    const ScratchBytes s = kernel->scratch(args);
    need.scratch_bytes =
        std::max(need.scratch_bytes,
                 rounded(s.shared) + rounded(s.per_thread) * static_cast<size_t>(pool_.n_threads()));
  }
  return need;
}

// The tasks of a graph, in order.
struct CpuBackend::Program {
  std::deque<KernelArgs> args;  // addresses must stay
  std::deque<PhaseCall> calls;
  std::vector<Task> tasks;
  std::vector<const Node*> nodes;  // of each task
};

CpuBackend::Program CpuBackend::place_and_split(Graph& graph, int n_nodes,
                                                std::span<std::byte> memory) const {
  const Plan plan = plan_arena(graph, n_nodes, plan_options_);
  TANDEM_CHECK(plan.arena_bytes <= memory.size());
  place(graph, n_nodes, plan, memory.data());
  const std::span<std::byte> scratch = memory.subspan(plan.arena_bytes);

  Program program;
  const auto add = [&](const Task& task, const Node& node) {
    program.tasks.push_back(task);
    program.nodes.push_back(&node);
  };
  for (int i = 0; i < n_nodes; ++i) {
    const Node& node = graph.node(i);
    if (skipped(node)) continue;
    program.args.push_back(make_args(node, level_));
    KernelArgs& args = program.args.back();
    IsaLevel level;
    const CpuKernel* kernel = choose(node, args, &level);
    if (!kernel) {
      add({run_reference, &node, 1}, node);
      continue;
    }
    if (level != level_) args = make_args(node, level);
    if (kernel->scratch) {
      const ScratchBytes s = kernel->scratch(args);
      const size_t shared = rounded(s.shared);
      args.thread_scratch_stride = rounded(s.per_thread);
      TANDEM_CHECK(shared + args.thread_scratch_stride * static_cast<size_t>(pool_.n_threads()) <=
                   scratch.size());
      args.shared_scratch = reinterpret_cast<char*>(scratch.data());
      args.thread_scratch = args.shared_scratch + shared;
    }
    for (const Phase& phase : kernel->phases) {
      if (!phase.run) break;
      program.calls.push_back({&args, phase.run});
      add({run_phase, &program.calls.back(), phase.units(args)}, node);
    }
  }
  return program;
}

void CpuBackend::run(Graph& graph, int n_nodes, std::span<std::byte> memory, Priority priority) {
  const Program program = place_and_split(graph, n_nodes, memory);
  if (!watch_) {
    pool_.run(program.tasks, priority);
    return;
  }
  for (size_t t = 0; t < program.tasks.size(); ++t) {
    const auto start = std::chrono::steady_clock::now();
    pool_.run({&program.tasks[t], 1}, priority);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    watch_->ran(graph, *program.nodes[t], seconds.count());
  }
}

void CpuBackend::run_watched(Graph& graph, int n_nodes, std::span<std::byte> memory, UnitWatch& watch) {
  const Program program = place_and_split(graph, n_nodes, memory);
  for (size_t t = 0; t < program.tasks.size(); ++t) {
    const Task& task = program.tasks[t];
    for (int64_t unit = 0; unit < task.units; ++unit) {
      watch.before(*program.nodes[t], unit);
      task.run(task.arg, unit, static_cast<int>(unit % pool_.n_threads()));
      watch.after(*program.nodes[t], unit);
    }
  }
}

}  // namespace tandem
