#include "tests/op/corruptions.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "graph/op_def.h"
#include "ops/gated_delta_net/gated_delta_net.h"
#include "ops/view/view.h"

namespace tandem {
namespace {

using Values = std::vector<double>;

constexpr double kVisible = 1e-6;  // of the largest value; far above f64 rounding, far below any real mistake

// A node's reference once more, on copies of its sources and parameters that may be changed first.
class Replay {
 public:
  explicit Replay(const RanNode& at) : node_(at.node()), params(node_.params) {
    for (size_t s = 0; s < static_cast<size_t>(node_.n_src); ++s) {
      if (!node_.src[s]) continue;
      const Tensor t{node_.src[s], &at.graph};
      if (t.type() == DType::I32) {
        ids[s] = at.exec.get_ids(t);
      } else {
        const std::span<const double> v = at.exec.get(t);
        numbers[s].assign(v.begin(), v.end());
      }
    }
  }

  const Node& node() const { return node_; }
  const Shape& shape(size_t s) const { return node_.src[s]->ne; }

  // Lets index i of dimension `dim` of source s read what lies at map(i).
  template <class Map>
  void reread(size_t s, int dim, Map map) {
    const Shape& ne = shape(s);
    int64_t stride = 1;
    for (int d = 0; d < dim; ++d) stride *= ne[d];
    const Values old = numbers[s];
    for (int64_t i = 0; i < ne.elements(); ++i) {
      const int64_t at = i / stride % ne[dim];
      numbers[s][static_cast<size_t>(i)] = old[static_cast<size_t>(i + (map(at) - at) * stride)];
    }
  }

  Values run() {
    Values result(static_cast<size_t>(node_.elements()));
    RefArgs<double> args;
    args.dst = tensor(node_.ne, result.data());
    for (size_t s = 0; s < static_cast<size_t>(node_.n_src); ++s) {
      if (!node_.src[s]) continue;
      args.src[s] = tensor(shape(s), numbers[s].data());
      if (!ids[s].empty()) {
        args.src[s].f = nullptr;
        args.src[s].i = ids[s].data();
      }
    }
    args.raw_params = params.data();
    op_def(node_.op).ref_f64(args);
    return result;
  }

 private:
  static RefTensor<double> tensor(const Shape& ne, double* data) {
    RefTensor<double> t;
    t.f = data;
    t.ne = ne.ne;
    t.st = {1, ne[0], ne[0] * ne[1], ne[0] * ne[1] * ne[2]};
    return t;
  }

  const Node& node_;

 public:
  std::array<Values, kMaxSrc> numbers;
  std::array<std::vector<int32_t>, kMaxSrc> ids;
  alignas(8) std::array<std::byte, kMaxParamsBytes> params;
};

bool any(const Node&) { return true; }

Values scaled(const RanNode& at, double by) {
  Values v(at.values().begin(), at.values().end());
  for (double& x : v) x *= by;
  return v;
}

// --- experts
// -------------------------------------------------------------------------------------------------------
bool routed(const Node& n) { return n.op == Op::MUL_MAT_ID_BACK || n.op == Op::OUT_PROD_ID; }

int64_t n_experts(const Node& n) { return n.op == Op::OUT_PROD_ID ? n.ne[2] : n.src[0]->ne[2]; }

// The rows of the expert that has the fewest slots, but some, are left out.
Values drop_expert(const RanNode& at) {
  const Node& n = at.node();
  const std::vector<int32_t> ids = at.exec.get_ids({n.src[2], &at.graph});
  std::vector<int64_t> slots(static_cast<size_t>(n_experts(n)));
  for (int32_t id : ids) ++slots[static_cast<size_t>(id)];
  int32_t dropped = ids.at(0);
  for (int32_t id : ids) {
    if (slots[static_cast<size_t>(id)] < slots[static_cast<size_t>(dropped)]) dropped = id;
  }
  Values v(at.values().begin(), at.values().end());
  if (n.op == Op::OUT_PROD_ID) {
    const int64_t per_expert = n.ne[0] * n.ne[1];
    std::fill_n(v.begin() + dropped * per_expert, per_expert, 0.0);
    return v;
  }
  for (size_t slot = 0; slot < ids.size(); ++slot) {
    if (ids[slot] == dropped) std::fill_n(v.begin() + static_cast<int64_t>(slot) * n.ne[0], n.ne[0], 0.0);
  }
  return v;
}

// Slot i of a token lands in (or is read from) slot 0: the last one written stays, the others are never
// reached.
Values slot_zero(const RanNode& at) {
  if (at.node().op == Op::OUT_PROD_ID) {
    Replay r(at);
    r.reread(1, 1, [](int64_t) { return 0; });
    return r.run();
  }
  const Shape& ne = at.node().ne;
  Values v(at.values().size(), 0.0);
  for (int64_t t = 0; t < ne[2]; ++t) {
    const auto last = at.values().begin() + (t * ne[1] + ne[1] - 1) * ne[0];
    std::copy_n(last, ne[0], v.begin() + t * ne[1] * ne[0]);
  }
  return v;
}

// --- tiles: index i beyond the first tile reads what the first tile has at its place.  Tiles of any size are
// wrong in the same way; the largest power of two below the extent leaves something beyond it in every case.
// ---
struct Tiled {
  Op op;
  size_t src;
  int dim;
};

constexpr Tiled kColumns[] = {{Op::MUL_MAT_BACK, 0, 0},
                              {Op::MUL_MAT_ID_BACK, 0, 0},
                              {Op::OUT_PROD, 0, 0},
                              {Op::OUT_PROD_ID, 0, 0},
                              {Op::FLASH_ATTN_BACK, 1, 2},
                              {Op::GATED_DELTA_NET_BACK, 1, 2},
                              {Op::CROSS_ENTROPY_LOSS_BACK, 0, 0}};
constexpr Tiled kRows[] = {{Op::MUL_MAT_BACK, 0, 1},    {Op::MUL_MAT_ID_BACK, 0, 1},
                           {Op::OUT_PROD, 1, 0},        {Op::OUT_PROD_ID, 1, 0},
                           {Op::FLASH_ATTN_BACK, 2, 2}, {Op::GATED_DELTA_NET_BACK, 2, 2}};

const Tiled* find(std::span<const Tiled> table, Op op) {
  for (const Tiled& t : table) {
    if (t.op == op) return &t;
  }
  return nullptr;
}

Values drop_tile_offset(std::span<const Tiled> table, const RanNode& at) {
  const Tiled& t = *find(table, at.node().op);
  Replay r(at);
  int64_t tile = 1;
  while (2 * tile < r.shape(t.src)[t.dim]) tile *= 2;
  r.reread(t.src, t.dim, [tile](int64_t i) { return i % tile; });
  return r.run();
}

// --- batches and ids
// -----------------------------------------------------------------------------------------------
bool batched(const Node& n) {
  if (n.op == Op::GET_ROWS_BACK) return n.ne[2] > 1;
  return n.op == Op::MUL_MAT_BACK && n.ne[2] * n.ne[3] > 1;
}

// Every batch uses the ids (or, without ids, the rows) of batch 0.
Values drop_batch(const RanNode& at) {
  Replay r(at);
  if (at.node().op == Op::MUL_MAT_BACK) {
    for (int dim : {2, 3}) r.reread(1, dim, [](int64_t) { return 0; });
    return r.run();
  }
  const size_t k = static_cast<size_t>(r.shape(1)[0]);
  for (size_t i = k; i < r.ids[1].size(); ++i) r.ids[1][i] = r.ids[1][i % k];
  return r.run();
}

// Which source holds ids, and how many different ones there are (0: no bound).
struct IdSource {
  int src = -1;
  int64_t n = 0;
};

IdSource id_source(const Node& n) {
  switch (n.op) {
    case Op::MUL_MAT_ID_BACK:
    case Op::OUT_PROD_ID:
      return {2, n_experts(n)};
    case Op::GET_ROWS_BACK:
      return {1, n.ne[1]};
    case Op::ROPE_BACK:
      return {1, 0};
    case Op::SSM_CONV_BACK:
      return {2, 0};
    case Op::GATED_DELTA_NET_BACK:
      return {6, 0};
    case Op::CROSS_ENTROPY_LOSS_BACK:
      return {1, n.src[0]->ne[0]};
    default:
      return {};
  }
}

Values shift_ids(const RanNode& at) {
  const IdSource source = id_source(at.node());
  Replay r(at);
  for (int32_t& id : r.ids[static_cast<size_t>(source.src)]) {
    if (id < 0) continue;  // a masked label
    id = source.n ? static_cast<int32_t>((id + 1) % source.n) : id + 1;
  }
  return r.run();
}

// Rows that are gathered more than once keep the last gradient instead of the sum.
Values overwrite_duplicates(const RanNode& at) {
  Replay r(at);
  const Shape &dy = r.shape(0), &dx = at.node().ne;
  Values v(static_cast<size_t>(dx.elements()), 0.0);
  for (int64_t j = 0; j < dy[2]; ++j)
    for (int64_t i = 0; i < dy[1]; ++i) {
      const int64_t to = r.ids[1][static_cast<size_t>(j * dy[1] + i)] + j * dx[1], from = i + j * dy[1];
      std::copy_n(r.numbers[0].begin() + from * dy[0], dy[0], v.begin() + to * dx[0]);
    }
  return v;
}

bool gathers_router(const Node& n) { return n.op == Op::GET_ROWS_BACK && n.ne[0] == 1; }

// --- folds and views
// ----------------------------------------------------------------------------------------------- Neighbours
// are summed instead of those with the same i % n.
Values fold_neighbours(const RanNode& at) {
  Replay r(at);
  const Shape &x = r.shape(0), &y = at.node().ne;
  Values v(static_cast<size_t>(y.elements()), 0.0);
  size_t from = 0;
  for (int64_t d = 0; d < x[3]; ++d)
    for (int64_t c = 0; c < x[2]; ++c)
      for (int64_t b = 0; b < x[1]; ++b)
        for (int64_t a = 0; a < x[0]; ++a) {
          const auto part = [&](int64_t i, int dim) { return i / (x[dim] / y[dim]); };
          const int64_t to = part(a, 0) + y[0] * (part(b, 1) + y[1] * (part(c, 2) + y[2] * part(d, 3)));
          v[static_cast<size_t>(to)] += r.numbers[0][from++];
        }
  return v;
}

// --- recurrent layers
// ------------------------------------------------------------------------------------------------
bool shares_key_heads(const Node& n) {
  return n.op == Op::GATED_DELTA_NET_BACK && n.src[0]->ne[1] > 1 && n.src[0]->ne[1] < n.src[2]->ne[1];
}

// Value heads read the key heads of the other order.
Values other_key_heads(const RanNode& at) {
  Replay r(at);
  auto* params = reinterpret_cast<GatedDeltaNetParams*>(r.params.data());
  params->grouped = !params->grouped;
  return r.run();
}

// The gradient that enters through the state after the last token is left out.
Values drop_state_gradient(const RanNode& at) {
  Replay r(at);
  std::fill(r.numbers[7].begin() + r.shape(2).elements(), r.numbers[7].end(), 0.0);
  return r.run();
}

Values drop_view_offset(const RanNode& at) {
  Replay r(at);
  reinterpret_cast<ViewParams*>(r.params.data())->offset_bytes = 0;
  return r.run();
}

constexpr Corruption kCorruptions[] = {
    {"scaled by 1.0001", false, 1e-4, any, [](const RanNode& at) { return scaled(at, 1.0001); }},
    {"negated", false, 2, any, [](const RanNode& at) { return scaled(at, -1); }},
    {"zeroed", false, 1, any, [](const RanNode& at) { return scaled(at, 0); }},
    {"one expert's rows dropped", true, 0, routed, drop_expert},
    {"every slot written to slot 0", true, 0, routed, slot_zero},
    {"tile offset dropped, columns", true, 0, [](const Node& n) { return find(kColumns, n.op) != nullptr; },
     [](const RanNode& at) { return drop_tile_offset(kColumns, at); }},
    {"tile offset dropped, rows", true, 0, [](const Node& n) { return find(kRows, n.op) != nullptr; },
     [](const RanNode& at) { return drop_tile_offset(kRows, at); }},
    {"batch index dropped", true, 0, batched, drop_batch},
    {"ids shifted by one", true, 0, [](const Node& n) { return id_source(n).src >= 0; }, shift_ids},
    {"routing gradient zeroed", true, 0, gathers_router, [](const RanNode& at) { return scaled(at, 0); }},
    {"duplicates overwritten", true, 0, [](const Node& n) { return n.op == Op::GET_ROWS_BACK; },
     overwrite_duplicates},
    {"neighbours folded", true, 0, [](const Node& n) { return n.op == Op::REPEAT_BACK; }, fold_neighbours},
    {"key heads in the other order", true, 0, shares_key_heads, other_key_heads},
    {"gradient of the state after dropped", true, 0,
     [](const Node& n) { return n.op == Op::GATED_DELTA_NET_BACK; }, drop_state_gradient},
    {"view offset dropped", true, 0, [](const Node& n) { return n.op == Op::VIEW_BACK; }, drop_view_offset},
};

}  // namespace

std::span<const Corruption> corruptions() { return kCorruptions; }

std::optional<std::vector<double>> corrupted(const Corruption& corruption, const RanNode& at) {
  std::vector<double> bad = corruption.apply(at);
  const std::span<const double> good = at.values();
  TANDEM_CHECK(bad.size() == good.size());
  double largest = 0, moved = 0;
  for (size_t i = 0; i < bad.size(); ++i) {
    largest = std::max(largest, std::fabs(good[i]));
    moved = std::max(moved, std::fabs(bad[i] - good[i]));
  }
  if (!(moved > kVisible * largest)) return std::nullopt;
  return bad;
}

}  // namespace tandem
