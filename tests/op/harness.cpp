#include "tests/op/harness.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <optional>

#include "base/half.h"
#include "formats/format_kernels.h"
#include "graph/autodiff.h"
#include "graph/op_def.h"
#include "graph/planner.h"
#include "ops/mul_mat/mul_mat.h"
#include "tests/op/blocks.h"
#include "tests/op/corruptions.h"
#include "tests/op/grad_check.h"
#include "tests/op/run_case.h"

namespace tandem {

#define OP(name, kernels) TANDEM_OP_CASES(name);
#include "ops/ops.def"
#undef OP

namespace {

constexpr bool kKernelsCPU = true, kKernelsREF = false;
constexpr OpList kLists[] = {
#define OP(name, kernels) {Op::name, #name, kKernels##kernels, name##_cases},
#include "ops/ops.def"
#undef OP
    {Op::LEAF, "MOE_BLOCK", false, moe_block_cases},
    {Op::LEAF, "ATTENTION_BLOCK", false, attention_block_cases},
    {Op::LEAF, "LAYER_BLOCK", false, layer_block_cases},
};

constexpr OpMode kModes[] = {OpMode::support, OpMode::eval, OpMode::grad,
                             OpMode::gauge,   OpMode::plan, OpMode::perf};

constexpr size_t kGuardBytes = 256;  // more than any kernel's widest store
constexpr uint32_t kFinitePoison =
    0x71573a95;                         // about 1e30: what is added to it does not come out as it should
constexpr double kMovedElement = 1e-4;  // of the largest
constexpr double kPerfSeconds = 0.2;
constexpr int kPerfRuns = 50;

std::vector<IsaLevel> host_levels(const OpFilter& filter) {
  std::vector<IsaLevel> levels;
  for (IsaLevel level : compiled_isa_levels()) {
    if (isa_supported(level) && (!filter.level || *filter.level == level)) levels.push_back(level);
  }
  return levels;
}

std::string key_of(const OpList& list, const OpCase& c) { return fmt::format("{}/{}", list.name, c.name); }

bool is_block(const OpList& list) { return list.op == Op::LEAF; }

bool has_rule(const OpList& list) { return is_block(list) || op_def(list.op).backward != kNoGrad; }

// Ops that write zeros where nothing is added: there the result is zero exactly.
bool zeros_are_exact(Op op) {
  return op == Op::GET_ROWS_BACK || op == Op::VIEW_BACK || op == Op::OUT_PROD_ID;
}

// A case ready to run: with its backward nodes where it has a gradient and they are asked for.
struct BuiltCase {
  std::unique_ptr<DifferentiatedCase> with_gradient;
  std::unique_ptr<HarnessBuilder> plain;
  Tensor result;

  BuiltCase(const OpList& list, const OpCase& c, bool backward_too) {
    plain = std::make_unique<HarnessBuilder>(key_of(list, c));
    result = c.build(*plain);
    if (!backward_too || !has_rule(list) || plain->inputs().empty()) return;
    with_gradient = std::make_unique<DifferentiatedCase>(key_of(list, c), c);
    result = with_gradient->result;
  }
  Graph& graph() { return with_gradient ? with_gradient->builder.graph() : plain->graph(); }
};

std::vector<double> as_numbers(const std::vector<std::byte>& bytes) {
  std::vector<float> f(bytes.size() / sizeof(float));
  std::memcpy(f.data(), bytes.data(), bytes.size());
  return {f.begin(), f.end()};
}

std::vector<int32_t> as_ids(const std::vector<std::byte>& bytes) {
  std::vector<int32_t> ids(bytes.size() / sizeof(int32_t));
  std::memcpy(ids.data(), bytes.data(), bytes.size());
  return ids;
}

bool all_zero(std::span<const double> x) {
  return std::all_of(x.begin(), x.end(), [](double v) { return v == 0; });
}

// Values of one node of a run against the reference on the same sources.  Only the result must not be zero: a
// gradient inside may be.
Verdict compare_node(RefExec<double>& ref, Tensor t, const CaseRun& run, double tolerance, bool is_result) {
  const std::vector<std::byte>& bytes = run.values[static_cast<size_t>(t.node->index)];
  if (t.type() == DType::I32) return compare_ids(as_ids(bytes), ref.get_ids(t));
  const std::span<const double> want = ref.get(t);
  const std::vector<double> got = as_numbers(bytes);
  if (!is_result && (want.empty() || all_zero(want))) {
    return {.pass = got.size() == want.size() && all_zero(got), .message = "zeros are wanted"};
  }
  if (zeros_are_exact(t.node->op)) {
    for (size_t i = 0; i < want.size() && i < got.size(); ++i) {
      if (want[i] == 0 && got[i] != 0) {
        return {.pass = false,
                .message = fmt::format("element {} is {:.9g}, exactly 0 is wanted", i, got[i])};
      }
    }
  }
  return compare(got, want, tolerance);
}

Verdict bitwise(const CaseRun& a, const CaseRun& b, const Graph& graph, const char* what) {
  for (size_t i = 0; i < a.values.size(); ++i) {
    if (b.values[i].empty() || a.values[i] == b.values[i]) continue;
    return {.pass = false,
            .message = fmt::format("{}: the bytes of {} (node {}) differ", what,
                                   op_name(graph.node(static_cast<int>(i)).op), i)};
  }
  return {.pass = true};
}

// The precision asked of a product with weights; of other ops nothing.
std::optional<Precision> precision_of(const Node& n) {
  if (n.op == Op::MUL_MAT || n.op == Op::MUL_MAT_BACK) return params_of<MulMatParams>(n).precision;
  if (n.op == Op::MUL_MAT_ID || n.op == Op::MUL_MAT_ID_BACK) return params_of<MulMatIdParams>(n).precision;
  return std::nullopt;
}

// The one it is computed in.
Precision computed_in(const Node& n) {
  const std::optional<Precision> asked = precision_of(n);
  return asked ? product_precision(*asked, n.src[0]->type) : Precision::F32;
}

// Products are computed in the precision of their graph, backward ones too; returns one that is not, in
// words.
std::string other_precision(const Graph& graph) {
  const auto name = [](Precision p) {
    return p == Precision::Int8 ? "int8" : p == Precision::BF16 ? "bf16" : "f32";
  };
  for (int i = 0; i < graph.size(); ++i) {
    const Precision p = precision_of(graph.node(i)).value_or(graph.precision);
    if (p != graph.precision)
      return fmt::format("{} (node {}) computes in {}, its graph in {}", op_name(graph.node(i).op), i,
                         name(p), name(graph.precision));
  }
  return "";
}

// The nearest bf16, ties to even.
double rounded_to_bf16(double x) {
  return static_cast<double>(bf16_to_f32(f32_to_bf16(static_cast<float>(x))));
}

constexpr int64_t kInt8Block = 32;  // activations under one scale

// The scale of a block of activations in int8: the largest magnitude over 127.
float int8_scale(std::span<const double> block) {
  float most = 0;
  for (double x : block) most = std::max(most, std::fabs(static_cast<float>(x)));
  return most / 127.f;
}

// Every element of a block as the integer times the scale that int8 makes of it, to nearest, ties to even.
void round_to_int8(std::span<double> block) {
  const float scale = int8_scale(block);
  float most = 0;
  for (double x : block) most = std::max(most, std::fabs(static_cast<float>(x)));
  const float inverse = most > 0 ? 127.f / most : 0.f;
  for (double& x : block) {
    const float code = std::nearbyint(static_cast<float>(x) * inverse);
    x = static_cast<double>(code) * static_cast<double>(scale);
  }
}

// Calls `change` on each block of 32 elements of the rows of a source, in the values of its root.
void for_blocks(RefExec<double>& ref, Graph& graph, const Node& src,
                const std::function<void(std::span<double>)>& change) {
  const std::span<double> all = ref.storage({src.root, &graph});
  for (int64_t d = 0; d < src.ne[3]; ++d)
    for (int64_t b = 0; b < src.ne[2]; ++b)
      for (int64_t a = 0; a < src.ne[1]; ++a) {
        const int64_t at = (src.root_offset_bytes + a * src.nb[1] + b * src.nb[2] + d * src.nb[3]) / 4;
        const std::span<double> row = all.subspan(static_cast<size_t>(at), static_cast<size_t>(src.ne[0]));
        for (size_t k = 0; k < row.size(); k += kInt8Block)
          change(row.subspan(k, std::min<size_t>(kInt8Block, row.size() - k)));
      }
}

// Runs node i on changed values of its first two sources, which are put back.
void run_on_changed(RefExec<double>& ref, Graph& graph, int i, const std::function<void()>& change) {
  const Node& node = graph.node(i);
  std::vector<std::vector<double>> exact;
  for (size_t s = 0; s < 2; ++s) {
    const std::span<double> values = ref.storage({node.src[s]->root, &graph});
    exact.emplace_back(values.begin(), values.end());
  }
  change();
  ref.run(i, i + 1);
  for (size_t s = exact.size(); s-- > 0;) {
    const std::span<double> values = ref.storage({node.src[s]->root, &graph});
    std::copy(exact[s].begin(), exact[s].end(), values.begin());
  }
}

// Runs node i as its kernel is meant to compute it: a product in bf16 rounds both operands first, one in int8
// its activations, so that their bound is that of f32, and a kernel that forgets to round, or rounds
// otherwise, is noticed.
void run_as_stated(RefExec<double>& ref, Graph& graph, int i) {
  const Node& node = graph.node(i);
  const auto storage = [&](size_t s) { return ref.storage({node.src[s]->root, &graph}); };
  switch (computed_in(node)) {
    case Precision::F32:
      return ref.run(i, i + 1);
    case Precision::BF16:
      return run_on_changed(ref, graph, i, [&] {
        for (size_t s = 0; s < 2; ++s)
          std::transform(storage(s).begin(), storage(s).end(), storage(s).begin(), rounded_to_bf16);
      });
    case Precision::Int8:
      return run_on_changed(ref, graph, i, [&] { for_blocks(ref, graph, *node.src[1], round_to_int8); });
  }
}

// Holds a product in int8 against what it stands for, the product of unrounded activations.  Each of those is
// moved by half a step of its block at most, so an element may be off by the sum of half the step times the
// weights' magnitudes, beside what f32 loses.  All together are off as much as independent errors that are
// uniform within a step (variance: the square of a step over 12), within a factor of two.
Verdict check_int8_rounding(RefExec<double>& ref, Graph& graph, int i, const CaseRun& run, double tolerance) {
  const Tensor t{&graph.node(i), &graph};
  const Node& node = *t.node;
  ref.run(i, i + 1);
  const std::vector<double> want(ref.get(t).begin(), ref.get(t).end());
  // The product of what `of_weight` and `of_scale` make of the weights and of the scales of activations.
  const auto bound = [&](auto of_weight, auto of_scale) {
    run_on_changed(ref, graph, i, [&] {
      const std::span<double> weights = ref.storage({node.src[0]->root, &graph});
      std::transform(weights.begin(), weights.end(), weights.begin(), of_weight);
      for_blocks(ref, graph, *node.src[1], [&](std::span<double> block) {
        std::fill(block.begin(), block.end(), of_scale(static_cast<double>(int8_scale(block))));
      });
    });
    return std::vector<double>(ref.get(t).begin(), ref.get(t).end());
  };
  const std::vector<double> most =
      bound([](double w) { return std::fabs(w); }, [](double scale) { return scale / 2; });
  const std::vector<double> variance =
      bound([](double w) { return w * w; }, [](double scale) { return scale * scale / 12; });
  const std::vector<double> got = as_numbers(run.values[static_cast<size_t>(i)]);
  double largest = 0, error = 0, expected = 0, size = 0;
  for (double w : want) largest = std::max(largest, std::fabs(w));
  for (size_t e = 0; e < want.size(); ++e) {
    const double off = std::fabs(got[e] - want[e]);
    if (!(off <= most[e] + tolerance * largest)) {
      return {.pass = false,
              .message = fmt::format("element {} is off by {:.3g}, rounding the activations explains {:.3g}",
                                     e, off, most[e])};
    }
    error += off * off;
    expected += variance[e];
    size += want[e] * want[e];
  }
  const double ratio = std::sqrt(error / expected);
  return {.pass = ratio > 0.5 && ratio < 2,
          .message = fmt::format("normalized error {:.3g}, {:.2f} times what rounding to int8 makes expect",
                                 std::sqrt(error / size), ratio)};
}

// A verdict with the share of the limit that was used.  Each node is held against the reference on the values
// that its kernel read, so that errors do not add up along a graph and the bound can be that of one op.
Verdict eval_case(BuiltCase& built, IsaLevel level) {
  Graph& graph = built.graph();
  if (std::string other = other_precision(graph); !other.empty()) return {.pass = false, .message = other};
  const RunOptions options{.level = level, .n_threads = 2, .share = false, .guard_bytes = kGuardBytes};
  RunOptions other_poison = options;
  other_poison.poison = kFinitePoison;
  const CaseRun run = run_on_cpu(graph, options), again = run_on_cpu(graph, other_poison);
  for (const CaseRun* r : {&run, &again}) {
    if (!r->complaint.empty()) return {.pass = false, .message = r->complaint};
  }
  if (Verdict v = bitwise(run, again, graph, "memory that held something else before"); !v.pass) return v;
  RefExec<double> ref(graph);
  ref.poison = true;
  const double tolerance = eval_tolerance(graph);
  Verdict worst{.pass = true};
  for (int i = 0; i < graph.size(); ++i) {
    Node& node = graph.node(i);
    const bool is_result = &node == built.result.node;
    if (node.op == Op::LEAF || (node.op == Op::VIEW && !is_result)) continue;
    if (computed_in(node) == Precision::Int8) {
      Verdict v = check_int8_rounding(ref, graph, i, run, tolerance);
      v.message = fmt::format("{} (node {}): {}", op_name(node.op), i, v.message);
      if (!v.pass) return v;
    }
    run_as_stated(ref, graph, i);
    Verdict v = compare_node(ref, {&node, &graph}, run, tolerance, is_result);
    v.message = fmt::format("{} (node {} {}): {}", op_name(node.op), i, to_string(node.ne), v.message);
    if (!v.pass) return v;
    if (worst.message.empty() || v.error * worst.limit > worst.error * v.limit) worst = std::move(v);
    if (node.op == Op::VIEW || node.type == DType::I32) continue;
    const std::vector<double> read_by_others = as_numbers(run.values[static_cast<size_t>(i)]);
    std::copy(read_by_others.begin(), read_by_others.end(), ref.storage({&node, &graph}).begin());
  }
  return worst;
}

Verdict plan_graph(Graph& graph, IsaLevel level) {
  const CaseRun apart = run_on_cpu(
      graph,
      {.level = level, .n_threads = 2, .one_writer = true, .share = false, .guard_bytes = kGuardBytes});
  const CaseRun shared = run_on_cpu(graph, {.level = level, .poison = 0x7fc0feed});
  const CaseRun threads =
      run_on_cpu(graph, {.level = level, .n_threads = 3, .share = false, .poison = 0x7fc0fade});
  for (const CaseRun* run : {&apart, &shared, &threads}) {
    if (!run->complaint.empty()) return {.pass = false, .message = run->complaint};
  }
  if (Verdict v = bitwise(apart, shared, graph, "shared and unshared arena"); !v.pass) return v;
  return bitwise(apart, threads, graph, "one unit after the other and 3 threads");
}

Verdict plan_case(BuiltCase& built, IsaLevel level) {
  Verdict v = plan_graph(built.plain->graph(), level);
  if (v.pass && built.with_gradient) v = plan_graph(built.with_gradient->builder.graph(), level);
  return v;
}

// Asks for a gradient through the result of a case; returns how that was refused, or nothing.
std::string refusal(HarnessBuilder& builder, const OpCase& c) {
  try {
    const Tensor result = c.build(builder);
    const Tensor cotangent =
        static_cast<CaseBuilder&>(builder).constant("cotangent of the result", result.shape());
    const Seed seed{result, cotangent};
    backward(builder.graph(), {&seed, 1}, {});
  } catch (const Error& e) {
    if (e.code() == Code::Unsupported) return e.what();
    throw;
  }
  return "";
}

// A source of `op`, which has no rule, that wants a gradient while the record calls it one without: no error
// would say that what it depends on does not train.  Integers made from numbers (TOP_K) are meant so.
std::string silenced_source(const Graph& graph, Op op) {
  for (int i = 0; i < graph.size(); ++i) {
    const Node& n = graph.node(i);
    if (n.op != op || n.type != DType::F32) continue;
    for (size_t s = 0; s < static_cast<size_t>(n.n_src); ++s) {
      if (n.src[s] && n.src[s]->wants_grad && (op_def(op).no_grad >> s & 1))
        return fmt::format("source {}", s);
    }
  }
  return "";
}

// Asking for the gradient of an op that has none must throw, unless the record says so of every source.
Verdict check_refusal(const OpList& list, const OpCase& c) {
  HarnessBuilder plain(key_of(list, c));
  c.build(plain);
  const GradWanted wanted = plain.inputs().empty() ? GradWanted::AllF32 : GradWanted::Inputs;
  HarnessBuilder first(key_of(list, c), wanted), second(key_of(list, c), wanted);
  const Tensor result = c.build(first);
  const std::string silenced = wanted == GradWanted::Inputs ? silenced_source(first.graph(), list.op) : "";
  if (!silenced.empty())
    return {.pass = false,
            .message = fmt::format("the record lets a gradient of {} end in silence", silenced)};
  if (!result.node->wants_grad) return {.pass = true, .message = "no source has a gradient"};
  const std::string refused = refusal(second, c);
  if (refused.find(list.name) != std::string::npos) return {.pass = true, .message = "refused: " + refused};
  return {.pass = false,
          .message = refused.empty() ? "asking for a gradient through an op without a rule did not throw"
                                     : "refused without the op's name: " + refused};
}

// A case without inputs: states why, or has tensors only that cannot have a gradient and are refused one by
// name.
Verdict check_no_gradient(const OpList& list, const OpCase& c, HarnessBuilder& built) {
  if (!c.no_gradient.empty()) return {.pass = true, .message = "stated: " + c.no_gradient};
  const Graph& graph = built.graph();
  const auto reader_of = [&graph](const Node& leaf) {
    for (int i = leaf.index + 1; i < graph.size(); ++i) {
      const Node& n = graph.node(i);
      if (std::find(n.src.begin(), n.src.end(), &leaf) != n.src.end()) return op_name(n.op);
    }
    return "?";
  };
  std::string refusals;
  for (int i = 0; i < graph.size(); ++i) {
    const Node& node = graph.node(i);
    if (node.op != Op::LEAF) continue;
    if (node.type == DType::F32)
      return {.pass = false, .message = "skipped: the case has no input and states no reason"};
    HarnessBuilder asked(key_of(list, c), GradWanted::Inputs, node.name);
    const std::string refused = refusal(asked, c);
    if (refused.find(node.name) == std::string::npos || refused.find(reader_of(node)) == std::string::npos) {
      return {.pass = false,
              .message = fmt::format("the gradient of {} was not refused with both names: '{}'", node.name,
                                     refused)};
    }
    refusals += (refusals.empty() ? "refused: " : "; ") + refused;
  }
  return {.pass = !refusals.empty(), .message = refusals.empty() ? "the case has no tensors" : refusals};
}

Verdict grad_case(const OpList& list, const OpCase& c) {
  if (!has_rule(list)) return check_refusal(list, c);
  HarnessBuilder plain(key_of(list, c));
  c.build(plain);
  if (plain.inputs().empty()) return check_no_gradient(list, c, plain);
  if (!c.no_gradient.empty())
    return {.pass = false, .message = "has inputs and states that it has no gradient"};
  return GradCheck(key_of(list, c), c).check();
}

// Corrupts the results of the op itself: would eval notice?
std::vector<Gauged> gauge_eval(const OpList& list, const OpCase& c) {
  HarnessBuilder builder(key_of(list, c));
  c.build(builder);
  Graph& graph = builder.graph();
  RefExec<double> exec(graph);
  exec.run();
  const double tolerance = eval_tolerance(graph);
  std::vector<Gauged> all;
  for (int i = 0; i < graph.size(); ++i) {
    const Node& node = graph.node(i);
    if (node.op != list.op || node.op == Op::VIEW) continue;
    const std::string name = fmt::format("node {} {}", i, list.name);
    const Tensor t{&graph.node(i), &graph};
    if (node.type == DType::I32) {
      const std::vector<int32_t> ids = exec.get_ids(t);
      std::vector<int32_t> bad = ids;
      bad[bad.size() / 2] += 1;
      all.push_back({node.op, "one element moved", name, true, !compare_ids(bad, ids).pass});
      continue;
    }
    const RanNode at{graph, exec, i};
    const std::vector<double> good(at.values().begin(), at.values().end());
    for (const Corruption& corruption : corruptions()) {
      if (!corruption.belongs(node)) continue;
      const std::optional<std::vector<double>> bad = corrupted(corruption, at);
      if (!bad && !corruption.structural) {
        all.push_back({node.op, corruption.name, name + " (all zero)", true, false});
      } else {
        all.push_back(
            {node.op, corruption.name, name, bad.has_value(), bad && !compare(*bad, good, tolerance).pass});
      }
    }
    std::vector<double> bad = good;
    bad[bad.size() / 2] +=
        kMovedElement * std::fabs(*std::max_element(good.begin(), good.end(), [](double a, double b) {
          return std::fabs(a) < std::fabs(b);
        }));
    all.push_back({node.op, "one element moved", name, true, !compare(bad, good, tolerance).pass});
  }
  return all;
}

// Every corruption that had an effect must be noticed.  What was noticed is added to the table.
Verdict judge_gauge(const OpList& list, const OpCase& c, const std::vector<Gauged>& all, GaugeTable& table) {
  std::string unnoticed;
  int n = 0;
  for (const Gauged& g : all) {
    Noticed& entry = table[{g.op == Op::LEAF ? "(cotangent)" : op_name(g.op), g.what}];
    if (!g.effective) continue;
    ++n;
    if (!g.noticed) {
      unnoticed += fmt::format("{}{} {}", unnoticed.empty() ? "not noticed: " : "; ", g.node, g.what);
      continue;
    }
    if (entry.n++ == 0) entry.by = key_of(list, c);
  }
  if (!unnoticed.empty()) return {.pass = false, .message = unnoticed};
  if (n == 0) return {.pass = false, .message = "skipped: there was nothing to corrupt"};
  return {.pass = true, .message = fmt::format("{} corruptions noticed", n)};
}

Verdict gauge_case(const OpList& list, const OpCase& c, GaugeTable& table) {
  HarnessBuilder plain(key_of(list, c));
  c.build(plain);
  if (!has_rule(list) || plain.inputs().empty()) return judge_gauge(list, c, gauge_eval(list, c), table);
  GradCheck check(key_of(list, c), c);
  if (Verdict v = check.check(); !v.pass)
    return {.pass = false, .message = "red before any corruption: " + v.message};
  return judge_gauge(list, c, check.gauge(), table);
}

// A mistake that belongs to some node of a list's cases must have had an effect in one of them.
void check_gauge_table(const OpList& list, const GaugeTable& table, std::vector<OpResult>& results) {
  for (const auto& [what, entry] : table) {
    if (is_block(list) && entry.n == 0) continue;  // as a fold of one row; the op's own list has better cases
    results.push_back({list.name, fmt::format("<{}: {}>", what.first, what.second), OpMode::gauge, "",
                       entry.n > 0,
                       entry.n > 0 ? fmt::format("noticed by {} and {} more", entry.by, entry.n - 1)
                                   : "has no effect in any case of the list"});
  }
}

// Every source of a differentiable op is differentiated in some case, or marked as without gradient in the
// record, or refused with Unsupported when its gradient is asked for.  One result per source.
std::vector<OpResult> check_sources(const OpList& list, const std::vector<OpCase>& cases) {
  const OpDef& def = op_def(list.op);
  std::vector<OpResult> results;
  for (size_t s = 0; s < static_cast<size_t>(def.n_src); ++s) {
    OpResult r{list.name, fmt::format("<source {}>", s),    OpMode::grad, "",
               false,     "no case has an F32 tensor there"};
    if (def.no_grad >> s & 1) {
      r.pass = true;
      r.message = "without gradient, says the record";
    }
    for (size_t i = 0; i < cases.size() && !r.pass; ++i) {
      const OpCase& c = cases[i];
      HarnessBuilder built(key_of(list, c), GradWanted::Inputs);
      c.build(built);
      for (int n = 0; n < built.graph().size() && !r.pass; ++n) {
        const Node& node = built.graph().node(n);
        const Node* src = node.op == list.op ? node.src[s] : nullptr;
        if (!src) continue;
        if (src->wants_grad) {
          r.pass = true;
          r.message = "checked in " + c.name;
        } else if (src->op == Op::LEAF && src->type == DType::F32) {
          HarnessBuilder asked(key_of(list, c), GradWanted::Inputs, src->name);
          const std::string refused = refusal(asked, c);
          r.pass = !refused.empty();
          r.message =
              r.pass ? "refused: " + refused
                     : fmt::format("{} has a gradient that no case checks, e.g. in {}", src->name, c.name);
        }
      }
    }
    results.push_back(std::move(r));
  }
  return results;
}

// What runs the nodes of a block, and how many of them.
Verdict support_block(const Graph& graph, const CpuBackend& cpu) {
  std::map<std::string, int> counts;
  std::string references;
  for (int i = 0; i < graph.size(); ++i) {
    const Node& node = graph.node(i);
    if (node.op == Op::LEAF || node.op == Op::VIEW) continue;
    const std::string taken = cpu.explain(node, nullptr);
    ++counts[taken];
    if (taken == "reference") references += fmt::format(" {}", op_name(node.op));
  }
  Verdict v{.pass = references.empty()};
  for (const auto& [by, n] : counts)
    v.message += fmt::format("{}{} nodes: {}", v.message.empty() ? "" : ", ", n, by);
  if (!v.pass) v.message += "; the slow reference runs" + references;
  return v;
}

Verdict support_case(const OpList& list, const OpCase& c, HarnessBuilder& builder, IsaLevel level) {
  ThreadPool pool(1);
  CpuBackend cpu(pool, level);
  cpu.plan(builder.graph(), builder.graph().size());  // throws where nothing takes a node
  if (is_block(list)) return support_block(builder.graph(), cpu);
  Verdict v{.pass = true};
  for (int i = 0; i < builder.graph().size(); ++i) {
    const Node& node = builder.graph().node(i);
    if (node.op != list.op) continue;
    std::string refusals;
    const std::string taken = node.op == Op::VIEW ? "nothing to run" : cpu.explain(node, &refusals);
    v.message +=
        fmt::format("{}{}{}{}", v.message.empty() ? "" : ", ", taken, refusals.empty() ? "" : "; ", refusals);
    if (list.has_kernels && taken == "reference" && refusals.empty()) {
      return {.pass = false, .message = "kernels are listed, but the reference runs for no given reason"};
    }
    for (int s = 0; s < node.n_src; ++s) {
      if (fits_in_place(node, s)) v.message += fmt::format("; in place of source {}", s);
      if (op_def(list.op).no_grad >> s & 1) v.message += fmt::format("; no gradient to source {}", s);
    }
  }
  if (!has_rule(list)) {
    v.message += "; gradient: none, says the op's record";
  } else if (!c.no_gradient.empty()) {
    v.message += "; gradient: not checked in this case: " + c.no_gradient;
  } else if (builder.inputs().empty()) {
    v.message += "; gradient: refused, no source is F32";
  }
  return v;
}

Verdict perf_case(BuiltCase& built, IsaLevel level) {
  double best = 1e30, total = 0;
  int runs = 0;
  for (; runs < kPerfRuns && total < kPerfSeconds; ++runs) {
    const CaseRun run = run_on_cpu(built.plain->graph(), {.level = level, .n_threads = default_threads()});
    best = std::min(best, run.seconds);
    total += run.seconds;
  }
  return {.pass = true, .message = fmt::format("{:.1f} us, best of {}", best * 1e6, runs)};
}

}  // namespace

std::span<const OpMode> all_op_modes() { return kModes; }

const char* mode_name(OpMode mode) {
  switch (mode) {
    case OpMode::support:
      return "support";
    case OpMode::eval:
      return "eval";
    case OpMode::grad:
      return "grad";
    case OpMode::gauge:
      return "gauge";
    case OpMode::plan:
      return "plan";
    case OpMode::perf:
      return "perf";
  }
  return "?";
}

std::span<const OpList> op_lists() { return kLists; }

double eval_tolerance(const Graph& graph) {
  int64_t longest = 1;
  for (int i = 0; i < graph.size(); ++i) {
    const Node& n = graph.node(i);
    for (int64_t extent : n.ne.ne) longest = std::max(longest, extent);
  }
  return 2 * 0x1p-23 * std::sqrt(static_cast<double>(longest));
}

std::vector<OpResult> run_op_list(const OpList& list, OpMode mode, const OpFilter& filter,
                                  GaugeTable* noticed) {
  std::vector<OpResult> results;
  const auto add = [&](const OpCase& c, const char* isa, auto run) {
    Verdict v;
    try {
      v = run();
    } catch (const std::exception& e) {
      v = {.pass = false, .message = fmt::format("threw: {}", e.what())};
    }
    results.push_back({list.name, c.name, mode, isa, v.pass, v.message});
  };
  const std::vector<OpCase> cases = list.cases();
  GaugeTable table;
  if (cases.empty()) results.push_back({list.name, "<list>", mode, "", false, "the list of cases is empty"});
  for (const OpCase& c : cases) {
    if (c.name.find(filter.test_case) == std::string::npos) continue;
    if (mode == OpMode::grad) {
      add(c, "", [&] { return grad_case(list, c); });
      continue;
    }
    if (mode == OpMode::gauge) {
      add(c, "", [&] { return gauge_case(list, c, table); });
      continue;
    }
    std::optional<BuiltCase> built;
    for (IsaLevel level :
         mode == OpMode::perf ? std::vector{filter.level.value_or(best_isa())} : host_levels(filter)) {
      add(c, isa_name(level), [&] {
        if (!built) built.emplace(list, c, mode == OpMode::eval || mode == OpMode::plan);
        if (mode == OpMode::support) return support_case(list, c, *built->plain, level);
        if (mode == OpMode::eval) return eval_case(*built, level);
        if (mode == OpMode::plan) return plan_case(*built, level);
        return perf_case(*built, level);
      });
    }
  }
  if (mode == OpMode::gauge && filter.test_case.empty()) check_gauge_table(list, table, results);
  if (mode == OpMode::grad && has_rule(list) && !is_block(list) && filter.test_case.empty()) {
    try {
      for (OpResult& r : check_sources(list, cases)) results.push_back(std::move(r));
    } catch (const std::exception& e) {
      results.push_back({list.name, "<sources>", mode, "", false, fmt::format("threw: {}", e.what())});
    }
  }
  if (noticed) {
    for (const auto& [what, entry] : table) {
      Noticed& of_all = (*noticed)[what];
      if (of_all.n == 0) of_all.by = entry.by;
      of_all.n += entry.n;
    }
  }
  return results;
}

std::vector<OpResult> run_op_tests(OpMode mode, const OpFilter& filter, GaugeTable* noticed) {
  std::vector<OpResult> results;
  for (const OpList& list : kLists) {
    if (!filter.op.empty() && filter.op != list.name) continue;
    for (OpResult& r : run_op_list(list, mode, filter, noticed)) results.push_back(std::move(r));
  }
  return results;
}

}  // namespace tandem
