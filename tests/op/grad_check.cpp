#include "tests/op/grad_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "graph/autodiff.h"
#include "tests/op/corruptions.h"

namespace tandem {
namespace {

using Complex = std::complex<double>;

constexpr double kStep = 1e-30;  // its square is below the smallest double next to any value
constexpr double kBar = 1e-12;   // rounding of f64 over the longest sums of the cases, with a margin of ten
constexpr int64_t kPerElement = 512;  // larger tensors are checked along directions, and so are all of
constexpr int kSmallGraph = 24;       // graphs of more forward nodes: the blocks of models
constexpr int kDirections = 4;        // of a tensor
constexpr int kSliceDirections = 2;   // of each slice
constexpr int kMovedElements = 4;     // an element may be dead by right (a masked token); several are not
constexpr double kMove = 1e-4;        // of the largest element

std::vector<double> random_direction(const std::string& key, size_t n) {
  KeyedRandom random(key);
  std::vector<double> d(n);
  for (double& x : d) {
    x = random.uniform(0.5, 1);  // no element of the gradient gets a small weight
    if (random.bits() & 1) x = -x;
  }
  return d;
}

std::vector<double> leaf_values(Tensor leaf) {
  const auto* x = static_cast<const float*>(leaf.node->data);
  return {x, x + leaf.node->elements()};
}

bool runs(const Node& node) { return node.op != Op::LEAF && node.op != Op::VIEW; }

double largest(std::span<const double> x) {
  double m = 0;
  for (double v : x) m = std::max(m, std::fabs(v));
  return m;
}

// The experts of a stacked tensor are compared one by one.
size_t slices_of(const Graph& graph, int n_forward, const Node& input) {
  for (int i = 0; i < n_forward; ++i) {
    const Node& node = graph.node(i);
    const bool routed = node.op == Op::MUL_MAT_ID || node.op == Op::MUL_MAT_ID_BACK;
    if (routed && node.src[0] == &input) return static_cast<size_t>(input.ne[2]);
  }
  return 1;
}

// Whether a is nearer to its limit than b.
bool worse(const Verdict& a, const Verdict& b) {
  return b.message.empty() || a.error * b.limit > b.error * a.limit;
}

// A repetition that has no reader: a product with experts read its row instead (mul_mat_id.op.cpp), and a
// training step does not run it (Graph::drop_unread).  Any other node that nobody reads is a mistake, and
// gauge reports it as a corruption that was not noticed.
bool read_past(const Graph& graph, int i) {
  const Node& n = graph.node(i);
  if (n.op != Op::REPEAT) return false;
  for (int r = i + 1; r < graph.size(); ++r) {
    const Node& reader = graph.node(r);
    if (std::find(reader.src.begin(), reader.src.end(), &n) != reader.src.end()) return false;
  }
  return true;
}

}  // namespace

DifferentiatedCase::DifferentiatedCase(const std::string& key, const OpCase& op_case, GradWanted wanted)
    : builder(key, wanted) {
  result = op_case.build(builder);
  n_forward = builder.graph().size();
  HarnessBuilder& b = builder;
  cotangent = static_cast<CaseBuilder&>(b).constant("cotangent of the result", result.shape());
  const Seed seed{result, cotangent};
  grads = backward(builder.graph(), {&seed, 1}, builder.inputs());
}

GradCheck::GradCheck(const std::string& key, const OpCase& op_case)
    : key_(key), case_(key, op_case), exec_(case_.builder.graph()) {
  RefExec<Complex> forward(case_.builder.graph(), case_.n_forward);
  for (Tensor input : case_.builder.inputs()) numeric_.push_back(differentiate(forward, input));
  exec_.run();
}

GradCheck::Numeric GradCheck::differentiate(RefExec<Complex>& forward, Tensor input) const {
  const std::vector<double> x = leaf_values(input), c = leaf_values(case_.cotangent);
  std::vector<Complex> at(x.begin(), x.end());
  const auto slope = [&] {
    forward.set(input, at);
    forward.run();
    const std::span<const Complex> y = forward.get(case_.result);
    double sum = 0;
    for (size_t i = 0; i < c.size(); ++i) sum += c[i] * y[i].imag();
    return sum / kStep;
  };
  Numeric numeric;
  numeric.n_slices = slices_of(*input.graph, case_.n_forward, *input.node);
  if (input.node->elements() <= kPerElement && case_.n_forward <= kSmallGraph) {
    for (size_t i = 0; i < at.size(); ++i) {
      at[i] = {x[i], kStep};
      numeric.want.push_back(slope());
      at[i] = x[i];
    }
  } else {
    const size_t n = x.size() / numeric.n_slices;
    const int per_slice = numeric.n_slices > 1 ? kSliceDirections : kDirections;
    for (size_t s = 0; s < numeric.n_slices; ++s) {
      for (int d = 0; d < per_slice; ++d) {
        const std::string name = fmt::format("{}/{}/slice {} direction {}", key_, input.node->name, s, d);
        numeric.directions.push_back({s, random_direction(name, n)});
        at.assign(x.begin(), x.end());
        for (size_t i = 0; i < n; ++i)
          at[s * n + i] = {x[s * n + i], kStep * numeric.directions.back().values[i]};
        numeric.want.push_back(slope());
      }
    }
    at.assign(x.begin(), x.end());
  }
  forward.set(input, at);
  return numeric;
}

Verdict GradCheck::check_one(size_t input) {
  const Numeric& numeric = numeric_[input];
  const std::span<const double> got = exec_.get(case_.grads[input]);
  if (numeric.directions.empty()) {
    return numeric.n_slices > 1
               ? compare_slices(got, numeric.want, static_cast<int64_t>(numeric.n_slices), kBar)
               : compare(got, numeric.want, kBar);
  }
  if (!(largest(got) > 0)) return {.pass = false, .message = "all of it is zero"};
  const size_t n = got.size() / numeric.n_slices, per_slice = numeric.directions.size() / numeric.n_slices;
  Verdict worst{.pass = true};
  for (size_t s = 0; s < numeric.n_slices; ++s) {
    const std::span<const double> slice = got.subspan(s * n, n);
    const std::span<const double> want = std::span(numeric.want).subspan(s * per_slice, per_slice);
    std::vector<double> along;
    for (size_t d = 0; d < per_slice; ++d) {
      const std::vector<double>& direction = numeric.directions[s * per_slice + d].values;
      double sum = 0;
      for (size_t e = 0; e < n; ++e) sum += slice[e] * direction[e];
      along.push_back(sum);
    }
    Verdict v;
    if (largest(want) > 0 || numeric.n_slices == 1) {
      v = compare_scaled(along, want, kBar, largest(slice) * std::sqrt(static_cast<double>(n)));
    } else {  // an expert without a slot
      v = {.pass = std::all_of(slice.begin(), slice.end(), [](double g) { return g == 0; })};
      v.message = "zeros are wanted";
    }
    v.message += numeric.n_slices > 1 ? fmt::format(" (directions of slice {})", s) : " (directions)";
    if (!v.pass) return v;
    if (worse(v, worst)) worst = std::move(v);
  }
  return worst;
}

Verdict GradCheck::check() {
  const std::vector<Tensor>& inputs = case_.builder.inputs();
  if (inputs.empty()) return {.pass = false, .message = "the case has no input"};
  std::set<std::string> names;
  std::string missing;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!names.insert(inputs[i].node->name).second)
      return {.pass = false, .message = fmt::format("two inputs are called {}", inputs[i].node->name)};
    if (!case_.grads[i]) missing += fmt::format(" {}", inputs[i].node->name);
  }
  if (!missing.empty()) return {.pass = false, .message = "no gradient for" + missing};
  Verdict worst{.pass = true};
  for (size_t i = 0; i < inputs.size(); ++i) {
    Verdict v = check_one(i);
    v.message = fmt::format("gradient of {}: {}", inputs[i].node->name, v.message);
    if (!v.pass) return v;
    if (worse(v, worst)) worst = std::move(v);
  }
  return worst;
}

Verdict GradCheck::check_input(const std::string& name) {
  const std::vector<Tensor>& inputs = case_.builder.inputs();
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].node->name == name && case_.grads[i]) return check_one(i);
  }
  return {.pass = false, .message = "no gradient for " + name};
}

// Does the check fail with these values in place of the node's own?  Runs what depends on it, and puts all
// back.
bool GradCheck::notices(int node, const std::vector<double>& corrupted) {
  Graph& graph = case_.builder.graph();
  std::vector<bool> changed(static_cast<size_t>(graph.size()), false);
  const auto put = [&](int i, const std::vector<double>& values) {
    std::copy(values.begin(), values.end(), exec_.storage({&graph.node(i), &graph}).begin());
  };
  put(node, corrupted);
  changed[static_cast<size_t>(node)] = true;
  for (int i = node + 1; i < graph.size(); ++i) {
    const Node& n = graph.node(i);
    for (int s = 0; s < n.n_src; ++s) {
      const Node* src = n.src[static_cast<size_t>(s)];
      if (src && changed[static_cast<size_t>(src->root->index)])
        changed[static_cast<size_t>(n.root->index)] = true;
    }
    if (runs(n) && changed[static_cast<size_t>(i)]) exec_.run(i, i + 1);
  }
  const bool noticed = !check().pass;
  for (int i = node; i < graph.size(); ++i) {
    if (changed[static_cast<size_t>(i)] && graph.node(i).root == &graph.node(i))
      put(i, good_[static_cast<size_t>(i)]);
  }
  return noticed;
}

void GradCheck::remove_path(Op op) {
  Graph& graph = case_.builder.graph();
  int from = case_.n_forward;
  for (int i = from; i < graph.size(); ++i) {
    if (graph.node(i).op != op) continue;
    exec_.run(from, i + 1);
    const std::span<double> values = exec_.storage({&graph.node(i), &graph});
    std::fill(values.begin(), values.end(), 0.0);
    from = i + 1;
  }
  exec_.run(from, graph.size());
}

std::vector<Gauged> GradCheck::gauge() {
  Graph& graph = case_.builder.graph();
  std::vector<int> nodes;
  good_.assign(static_cast<size_t>(graph.size()), {});
  const auto remember = [&](int i) {
    const std::span<const double> values = exec_.storage({&graph.node(i), &graph});
    good_[static_cast<size_t>(i)].assign(values.begin(), values.end());
    nodes.push_back(i);
  };
  for (int i = case_.n_forward; i < graph.size(); ++i) {
    if (runs(graph.node(i)) && !read_past(graph, i)) remember(i);
  }
  // Where the gradient is the cotangent itself, that is what a wrong rule would change.
  if (nodes.empty()) remember(case_.cotangent.node->index);
  std::vector<Gauged> all;
  bool has_experts = false;
  for (int i : nodes) {
    const Node& node = graph.node(i);
    has_experts = has_experts || node.op == Op::MUL_MAT_ID_BACK;
    const std::string name = fmt::format("node {} {}", i, op_name(node.op));
    const RanNode at{graph, exec_, i};
    bool dead = false;
    for (const Corruption& corruption : corruptions()) {
      if (!corruption.belongs(node)) continue;
      const std::optional<std::vector<double>> bad = corrupted(corruption, at);
      const bool noticed = bad && notices(i, *bad);
      // A node that is all zero is as dead as one that nobody reads.
      all.push_back({node.op, corruption.name, name, bad || !corruption.structural, noticed});
      if (!noticed && !corruption.structural) {
        dead = true;
        break;
      }
    }
    if (dead) continue;
    const std::vector<double>& good = good_[static_cast<size_t>(i)];
    KeyedRandom random(fmt::format("{}/{}", key_, name));
    bool moved = false;
    for (int tries = 0; tries < kMovedElements && !moved; ++tries) {
      std::vector<double> bad = good;
      bad[static_cast<size_t>(random.below(static_cast<int64_t>(bad.size())))] += kMove * largest(good);
      moved = notices(i, bad);
    }
    all.push_back({node.op, "one element moved", name, true, moved});
  }
  if (has_experts) {
    remove_path(Op::MUL_MAT_ID_BACK);
    all.push_back(
        {Op::MUL_MAT_ID_BACK, "experts' path removed", "all nodes MUL_MAT_ID_BACK", true, !check().pass});
  }
  restore();
  return all;
}

}  // namespace tandem
