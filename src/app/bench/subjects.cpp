#include "app/bench/subjects.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "app/bench/baseline_run.h"
#include "app/engine.h"
#include "base/rng.h"
#include "graph/op_def.h"
#include "ops/ops.h"

namespace tandem {
namespace {

// Encoding is slow, so rows of a large matrix are taken from so many, at random.
constexpr int64_t kDistinctRows = 1024;

std::vector<Work> works_of(const Graph& graph) {
  std::vector<Work> works;
  for (int i = 0; i < graph.size(); ++i) {
    const Work w = work_of(graph.node(i));
    if (w.bytes > 0) works.push_back(w);
  }
  return works;
}

// The node that the baseline can run too, or null; it knows no gradient row that slots share.
const Node* baseline_node(const Graph& graph) {
  if (graph.size() == 0) return nullptr;
  const Node& last = graph.node(graph.size() - 1);
  if (last.op != Op::MUL_MAT_ID_BACK || last.elements() == 0) return nullptr;
  if (last.src[1]->ne[1] != last.src[2]->ne[0]) return nullptr;
  for (size_t i = 0; i < 3; ++i) {
    const Node& s = *last.src[i];
    if (s.op != Op::LEAF || !s.data || !s.contiguous()) return nullptr;
  }
  return &last;
}

// Where the operands are rounded to bf16, results differ by that: a difference in the work shows as far more.
void require_same(std::span<const float> got, std::span<const float> want, const std::string& name) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    difference += std::pow(static_cast<double>(got[i]) - static_cast<double>(want[i]), 2);
    size += std::pow(static_cast<double>(want[i]), 2);
  }
  if (!(std::isfinite(size) && size > 0 && difference <= 1e-4 * size)) {
    fail(Code::Internal, "{}: the baseline comes to another result (relative difference {:.3g})", name,
         std::sqrt(difference / size));
  }
}

Buffer random_f32(const Shape& ne, Rng& rng) {
  Buffer b(static_cast<size_t>(ne.elements()) * sizeof(float), "the operands of a benchmark");
  for (int64_t i = 0; i < ne.elements(); ++i) b.f32()[i] = static_cast<float>(2 * rng.next_uniform() - 1);
  return b;
}

Buffer random_weights(DType type, const Shape& ne, Rng& rng) {
  const int64_t row = row_bytes(type, ne[0]), n_distinct = std::min(kDistinctRows, ne.rows());
  std::vector<float> numbers(static_cast<size_t>(ne[0]));
  Buffer distinct(static_cast<size_t>(n_distinct * row), "the weights of a benchmark");
  const float bound = std::sqrt(3.f / static_cast<float>(ne[0]));
  for (int64_t r = 0; r < n_distinct; ++r) {
    for (float& x : numbers) x = bound * static_cast<float>(2 * rng.next_uniform() - 1);
    type_info(type).codec->encode(numbers.data(), distinct.data() + r * row, ne[0]);
  }
  Buffer all(static_cast<size_t>(ne.rows() * row), "the weights of a benchmark");
  for (int64_t r = 0; r < ne.rows(); ++r) {
    const int64_t from = static_cast<int64_t>(rng.below(static_cast<uint64_t>(n_distinct)));
    std::memcpy(all.data() + r * row, distinct.data() + from * row, static_cast<size_t>(row));
  }
  return all;
}

// For each token `n_used` different experts.
void draw_experts(int32_t* ids, int64_t n_tokens, int64_t n_used, int64_t n_expert, Rng rng) {
  std::vector<int32_t> deck(static_cast<size_t>(n_expert));
  for (size_t e = 0; e < deck.size(); ++e) deck[e] = static_cast<int32_t>(e);
  for (int64_t t = 0; t < n_tokens; ++t) {
    for (size_t i = 0; i < static_cast<size_t>(n_used); ++i) {
      std::swap(deck[i], deck[i + rng.below(deck.size() - i)]);
      ids[t * n_used + static_cast<int64_t>(i)] = deck[i];
    }
  }
}

bool wanted(const ShapeSettings& s, Op op, const std::string& name) {
  return (s.op.empty() || s.op == op_name(op)) && name.find(s.part) != std::string::npos;
}

// Graphs of one op each over shared sources.
class OpGraphs {
 public:
  explicit OpGraphs(const ShapeSettings& settings) : settings_(settings) {}

  // Adds the op if it is wanted; `build` makes its node, the last of the graph.
  void add(Op op, const std::string& what, std::string precision, const std::function<void(Graph&)>& build,
           const std::function<void(int64_t)>& prepare = {}) {
    const std::string name = fmt::format("{} {}", op_name(op), what);
    if (!wanted(settings_, op, name)) return;
    graphs_.push_back(std::make_unique<Graph>(32));
    build(*graphs_.back());
    subjects_.push_back({name, op_name(op), std::move(precision), graphs_.back().get(), prepare});
  }
  const std::vector<Subject>& subjects() const { return subjects_; }

 private:
  const ShapeSettings& settings_;
  std::vector<std::unique_ptr<Graph>> graphs_;
  std::vector<Subject> subjects_;
};

Tensor f32_leaf(Graph& g, const Shape& ne, const Buffer& b) {
  return g.leaf(DType::F32, ne, Home::Persistent, static_cast<void*>(b.data()), "operand");
}

void for_matrix(const NamedShape& shape, const NamedMatrix& m, const ShapeSettings& s,
                const UseSubjects& use) {
  const bool experts = m.ne[2] > 1;
  const int64_t k = m.ne[0], n = m.ne[1], n_used = experts ? shape.n_expert_used : 1, t = s.n_tokens;
  const DType type = matrix_type(s.type, k);
  const std::string what = fmt::format("{}/{} {} T={}", shape.name, m.name, name_of(type), t);
  const Op forward = experts ? Op::MUL_MAT_ID : Op::MUL_MAT,
           back = experts ? Op::MUL_MAT_ID_BACK : Op::MUL_MAT_BACK;
  const auto named = [&](Op op) { return fmt::format("{} {}", op_name(op), what); };
  const bool with_back = s.precision != Precision::Int8;  // through which no gradient goes
  if (!wanted(s, forward, named(forward)) && !(with_back && wanted(s, back, named(back)))) return;

  Rng rng(key_of(what));
  const Buffer weights = random_weights(type, m.ne, rng);
  const Shape x_ne = experts ? Shape(k, m.per_slot ? n_used : 1, t) : Shape(k, t),
              dy_ne = experts ? Shape(n, n_used, t) : Shape(n, t);
  const Buffer x = random_f32(x_ne, rng), dy = random_f32(dy_ne, rng);
  const Buffer ids(static_cast<size_t>(n_used * t) * sizeof(int32_t), "the operands of a benchmark");
  const auto draw = [&](int64_t time) {
    draw_experts(ids.i32(), t, n_used, m.ne[2], Rng(static_cast<uint64_t>(time)));
  };
  const auto weight_leaf = [&](Graph& g) {
    return g.leaf(type, m.ne, Home::Mapped, static_cast<const void*>(weights.data()), "weight");
  };
  const auto ids_leaf = [&](Graph& g) {
    return g.leaf(DType::I32, {n_used, t}, Home::Persistent, static_cast<void*>(ids.data()), "ids");
  };
  OpGraphs ops(s);
  const std::string precision = precision_name(s.precision);
  if (experts) {
    draw(0);
    ops.add(
        forward, what, precision,
        [&](Graph& g) { mul_mat_id(weight_leaf(g), f32_leaf(g, x_ne, x), ids_leaf(g), s.precision); }, draw);
    if (with_back) {
      ops.add(
          back, what, precision,
          [&](Graph& g) {
            mul_mat_id_back(weight_leaf(g), f32_leaf(g, dy_ne, dy), ids_leaf(g), s.precision);
          },
          draw);
    }
  } else {
    ops.add(forward, what, precision,
            [&](Graph& g) { mul_mat(weight_leaf(g), f32_leaf(g, x_ne, x), s.precision); });
    if (with_back) {
      ops.add(back, what, precision,
              [&](Graph& g) { mul_mat_back(weight_leaf(g), f32_leaf(g, dy_ne, dy), s.precision); });
    }
  }
  use(ops.subjects(), fmt::format("{} {}", what, to_string(m.ne)));
}

void for_attention(const NamedShape& shape, const ShapeSettings& s, const UseSubjects& use) {
  const int64_t t = s.n_tokens;
  const std::string what = fmt::format("{}/attention T={}", shape.name, t);
  Rng rng(key_of(what));
  const Shape q_ne(shape.d_head, shape.n_head, t), k_ne(shape.d_head, shape.n_head_kv, t);
  const Buffer q = random_f32(q_ne, rng), k = random_f32(k_ne, rng), v = random_f32(k_ne, rng);
  const Buffer first(static_cast<size_t>(t) * sizeof(int32_t), "the operands of a benchmark");
  const float scale = 1.f / std::sqrt(static_cast<float>(shape.d_head));
  const Shape packed_ne((shape.d_head + 1) * shape.n_head * t);
  const Buffer packed = random_f32(packed_ne, rng), dpacked = random_f32(packed_ne, rng);
  const auto first_leaf = [&](Graph& g) {
    return g.leaf(DType::I32, {t}, Home::Persistent, static_cast<void*>(first.data()), "first key");
  };
  OpGraphs ops(s);
  ops.add(Op::FLASH_ATTN, what, "f32", [&](Graph& g) {
    flash_attn(f32_leaf(g, q_ne, q), f32_leaf(g, k_ne, k), f32_leaf(g, k_ne, v), {}, {}, first_leaf(g),
               scale);
  });
  ops.add(Op::FLASH_ATTN_BACK, what, "f32", [&](Graph& g) {
    flash_attn_back(f32_leaf(g, q_ne, q), f32_leaf(g, k_ne, k), f32_leaf(g, k_ne, v), {}, {}, first_leaf(g),
                    f32_leaf(g, packed_ne, packed), f32_leaf(g, packed_ne, dpacked), scale);
  });
  if (!ops.subjects().empty()) {
    use(ops.subjects(), fmt::format("{} attention, {} heads of {}, {} of keys", shape.name, shape.n_head,
                                    shape.d_head, shape.n_head_kv));
  }
}

}  // namespace

void measure_subjects(const std::vector<Subject>& subjects, const Machines& machines,
                      const RoundSettings& settings, Reporter& reporter) {
  struct Entry {
    const Subject* subject;
    std::vector<Work> work;
    size_t contender;
    bool baseline;
  };
  std::vector<Entry> entries;
  std::vector<Contender> contenders;
  std::vector<std::unique_ptr<BaselineBack>> baselines;
  size_t arena_bytes = 1;
  for (const Subject& s : subjects)
    arena_bytes = std::max(arena_bytes, machines.plan(*s.graph, s.graph->size()).total());
  const Buffer arena(arena_bytes, "the result of a benchmark");
  for (const Subject& s : subjects) {
    if (s.prepare) s.prepare(0);
    std::vector<Work> work = works_of(*s.graph);
    if (work.empty()) continue;
    const auto run = [&arena, g = s.graph](Machine& m) {
      m.backend.run(*g, g->size(), arena.span(), Priority::Training);
    };
    if (const Node* node = baseline_node(*s.graph)) {
      baselines.push_back(std::make_unique<BaselineBack>(*node, machines.level(), machines.max_threads()));
      BaselineBack& baseline = *baselines.back();
      run(machines[0]);
      baseline.run(machines[0].pool);
      require_same({static_cast<const float*>(node->data), static_cast<size_t>(node->elements())},
                   baseline.result(), s.name);
      entries.push_back({&s, work, contenders.size(), true});
      contenders.push_back({[&baseline](Machine& m) { baseline.run(m.pool); }, s.prepare});
    }
    entries.push_back({&s, std::move(work), contenders.size(), false});
    contenders.push_back({run, s.prepare});
  }
  if (contenders.empty()) return;
  const Measured measured = measure(machines, contenders, settings);
  reporter.add_peaks(machines, measured);
  for (size_t e = 0; e < entries.size(); ++e) {
    const Entry& entry = entries[e];
    for (size_t i = 0; i < machines.size(); ++i) {
      const Series& series = measured.series[i][entry.contender];
      std::vector<Work> work = entry.work;
      if (entry.baseline)
        for (Work& w : work) w.precision = Precision::F32;
      BenchLine line = make_line(series, measured.peaks[i], work);
      line.mode = "ops";
      const char* suffix = entry.baseline ? " (baseline)" : "";
      line.name = entry.subject->name + suffix;
      line.label = entry.subject->label + suffix;
      line.precision = entry.baseline ? "f32" : entry.subject->precision;
      line.n_threads = machines[i].pool.n_threads();
      if (e > 0 && entries[e - 1].baseline && !entry.baseline) {
        line.baseline_ratio = median_ratio(measured.series[i][entries[e - 1].contender], series);
      }
      reporter.add(line);
    }
  }
}

void for_shape(const NamedShape& shape, const ShapeSettings& settings, const UseSubjects& use) {
  for (const NamedMatrix& m : shape.matrices()) for_matrix(shape, m, settings, use);
  for_attention(shape, settings, use);
}

}  // namespace tandem
