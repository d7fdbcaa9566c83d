// How a sequence is cut, and what lies beside it, must not matter.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <numeric>

#include "tests/op/case_builder.h"
#include "tests/op/metric.h"
#include "tests/op/run_case.h"

namespace tandem {
namespace {

constexpr int64_t kDk = 20, kDv = 12, kNk = 2, kNv = 4;
constexpr int64_t kStates = kDk * kDv * kNv;

using Floats = std::vector<float>;

std::vector<IsaLevel> levels() {
  std::vector<IsaLevel> supported;
  for (IsaLevel level : compiled_isa_levels())
    if (isa_supported(level)) supported.push_back(level);
  return supported;
}

std::vector<int32_t> counted(int n, int32_t first = 0) {
  std::vector<int32_t> positions(static_cast<size_t>(n));
  std::iota(positions.begin(), positions.end(), first);
  return positions;
}

// What a range gives: the rows of its tokens, and the state after it or the gradient of the state before it.
struct Result {
  std::vector<Floats> rows;
  Floats state;
};

// Tokens one after the other, whose ranges go through the op and its gradient on their own.
class Tokens {
 public:
  explicit Tokens(std::vector<int32_t> positions) : positions_(std::move(positions)) {
    q_ = random("q", kDk * kNk, -0.35, 0.35);
    k_ = random("k", kDk * kNk, -0.35, 0.35);
    v_ = random("v", kDv * kNv, -1, 1);
    g_ = random("g", kNv, -0.4, -0.001);
    beta_ = random("beta", kNv, 0.02, 0.98);
    dout_ = random("dout", kDv * kNv, -1, 1);
  }
  int64_t size() const { return static_cast<int64_t>(positions_.size()); }

  Result forward(int64_t lo, int64_t hi, const Floats& state, IsaLevel level) const {
    Graph g;
    const Sources s = sources(g, lo, hi, state);
    const Tensor packed =
        gated_delta_net(s.q, s.k, s.v, s.g, s.beta, s.state, s.positions, DeltaHeads::Tiled);
    const Floats values = run(g, packed, level);
    Result result;
    const int64_t per_row = kDv * kNv;
    for (int64_t t = 0; t < hi - lo; ++t) result.rows.push_back(cut(values, t * per_row, per_row));
    result.state = cut(values, (hi - lo) * per_row, kStates);
    return result;
  }

  // Rows: dq, dk, dv, dg, dbeta of a token.
  Result backward(int64_t lo, int64_t hi, const Floats& state, const Floats& dstate_after,
                  IsaLevel level) const {
    Graph g;
    const Sources s = sources(g, lo, hi, state);
    Floats dpacked = cut(dout_, lo * kDv * kNv, (hi - lo) * kDv * kNv);
    dpacked.insert(dpacked.end(), dstate_after.begin(), dstate_after.end());
    const Tensor d = g.leaf(DType::F32, {static_cast<int64_t>(dpacked.size())}, Home::Persistent,
                            dpacked.data(), "dpacked");
    const Tensor back =
        gated_delta_net_back(s.q, s.k, s.v, s.g, s.beta, s.state, s.positions, d, DeltaHeads::Tiled);
    const Floats values = run(g, back, level);
    Result result;
    result.rows.resize(static_cast<size_t>(hi - lo));
    int64_t at = 0;
    for (int64_t per_row : {kDk * kNk, kDk * kNk, kDv * kNv, kNv, kNv}) {
      for (Floats& row : result.rows) {
        const Floats part = cut(values, at, per_row);
        row.insert(row.end(), part.begin(), part.end());
        at += per_row;
      }
    }
    result.state = cut(values, at, kStates);
    return result;
  }

  // Both, range after range with the state carried, then with its gradient carried back.
  struct Both {
    Result forward, backward;
  };
  Both in_ranges(std::vector<int64_t> ends, const Floats& state, const Floats& dstate, IsaLevel level) const {
    ends.push_back(size());
    Both all;
    std::vector<Floats> before{state};
    for (size_t i = 0; i < ends.size(); ++i) {
      const Result r = forward(i ? ends[i - 1] : 0, ends[i], before.back(), level);
      all.forward.rows.insert(all.forward.rows.end(), r.rows.begin(), r.rows.end());
      before.push_back(r.state);
    }
    all.forward.state = before.back();
    all.backward.state = dstate;
    for (size_t i = ends.size(); i-- > 0;) {
      const Result r = backward(i ? ends[i - 1] : 0, ends[i], before[i], all.backward.state, level);
      all.backward.rows.insert(all.backward.rows.begin(), r.rows.begin(), r.rows.end());
      all.backward.state = r.state;
    }
    return all;
  }

  Floats random(const char* name, int64_t per_token, double lo, double hi) const {
    return random_floats(name, per_token * size(), lo, hi);
  }
  static Floats random_floats(const char* name, int64_t n, double lo, double hi) {
    KeyedRandom random(name);
    Floats x(static_cast<size_t>(n));
    for (float& e : x) e = static_cast<float>(random.uniform(lo, hi));
    return x;
  }

 private:
  struct Sources {
    Tensor q, k, v, g, beta, state, positions;
  };

  static Floats cut(const Floats& x, int64_t from, int64_t n) {
    return {x.begin() + from, x.begin() + from + n};
  }

  Sources sources(Graph& g, int64_t lo, int64_t hi, const Floats& state) const {
    const int64_t n = hi - lo;
    const auto part = [&](const Floats& x, const Shape& ne) {
      return g.leaf(DType::F32, ne, Home::Persistent, x.data() + lo * ne.elements() / n, "x");
    };
    return {part(q_, {kDk, kNk, n}),
            part(k_, {kDk, kNk, n}),
            part(v_, {kDv, kNv, n}),
            part(g_, {kNv, n}),
            part(beta_, {kNv, n}),
            g.leaf(DType::F32, {kDk, kDv, kNv}, Home::Persistent, state.data(), "state"),
            g.leaf(DType::I32, {n}, Home::Persistent, positions_.data() + lo, "positions")};
  }

  static Floats run(Graph& g, Tensor result, IsaLevel level) {
    const CaseRun run = run_on_cpu(g, {.level = level, .n_threads = 2, .share = false});
    EXPECT_EQ(run.complaint, "");
    const auto* x =
        reinterpret_cast<const float*>(run.values[static_cast<size_t>(result.node->index)].data());
    return {x, x + result.shape().elements()};
  }

  std::vector<int32_t> positions_;
  Floats q_, k_, v_, g_, beta_, dout_;
};

std::vector<double> all_of(const Result& r) {
  std::vector<double> x(r.state.begin(), r.state.end());
  for (const Floats& row : r.rows) x.insert(x.end(), row.begin(), row.end());
  return x;
}

void expect_close(const Result& got, const Result& want, const std::string& what) {
  ASSERT_EQ(got.rows.size(), want.rows.size());
  const Verdict v = compare(all_of(got), all_of(want), 2e-6);
  EXPECT_TRUE(v.pass) << what << ": " << v.message;
}

void expect_same(const Result& got, const Result& want, const std::string& what) {
  ASSERT_EQ(got.rows.size(), want.rows.size());
  EXPECT_EQ(std::memcmp(got.state.data(), want.state.data(), want.state.size() * 4), 0) << what;
  for (size_t t = 0; t < want.rows.size(); ++t)
    ASSERT_EQ(std::memcmp(got.rows[t].data(), want.rows[t].data(), want.rows[t].size() * 4), 0)
        << what << ", token " << t;
}

// Token by token is the recurrence; all at once goes through chunks.
TEST(GatedDeltaNet, ChunksAgreeWithTheRecurrence) {
  for (int32_t first : {0, 37, 64}) {
    const Tokens tokens(counted(150, first));
    const Floats state = Tokens::random_floats("state", kStates, -1, 1),
                 dstate = Tokens::random_floats("dstate", kStates, -1, 1);
    std::vector<int64_t> everywhere;
    for (int64_t t = 1; t < tokens.size(); ++t) everywhere.push_back(t);
    for (IsaLevel level : levels()) {
      const auto whole = tokens.in_ranges({}, state, dstate, level),
                 single = tokens.in_ranges(everywhere, state, dstate, level);
      expect_close(single.forward, whole.forward, isa_name(level));
      expect_close(single.backward, whole.backward, isa_name(level));
    }
  }
}

// Ranges that end at multiples of 64 of a sample's positions: the same chunks, and so the same bits.
TEST(GatedDeltaNet, RangesOfWholeChunksChangeNothing) {
  std::vector<int32_t> positions = counted(30, 98);  // 98 .. 127, 0 .. 199
  const std::vector<int32_t> second = counted(200);
  positions.insert(positions.end(), second.begin(), second.end());
  const Tokens tokens(positions);
  const Floats state = Tokens::random_floats("state", kStates, -1, 1),
               dstate = Tokens::random_floats("dstate", kStates, -1, 1);
  for (IsaLevel level : levels()) {
    const auto whole = tokens.in_ranges({}, state, dstate, level);
    for (const std::vector<int64_t>& cut :
         {std::vector<int64_t>{30 + 64}, {30}, {30, 30 + 64, 30 + 128}, {222}}) {
      const auto parts = tokens.in_ranges(cut, state, dstate, level);
      if (cut[0] == 222) {  // inside a chunk: another order of sums
        expect_close(parts.forward, whole.forward, isa_name(level));
        expect_close(parts.backward, whole.backward, isa_name(level));
      } else {
        expect_same(parts.forward, whole.forward, isa_name(level));
        expect_same(parts.backward, whole.backward, isa_name(level));
      }
    }
  }
}

// A sample in the company of others is the sample alone, bit for bit, and takes nothing from the state
// before.
TEST(GatedDeltaNet, ASampleDoesNotFeelItsNeighbours) {
  std::vector<int32_t> positions = counted(21, 3);
  const std::vector<int32_t> second = counted(90);
  positions.insert(positions.end(), second.begin(), second.end());
  const Tokens tokens(positions);
  const Floats state = Tokens::random_floats("state", kStates, -1, 1),
               dstate = Tokens::random_floats("dstate", kStates, -1, 1);
  const Floats nothing(static_cast<size_t>(kStates), std::numeric_limits<float>::quiet_NaN());
  for (IsaLevel level : levels()) {
    Result out = tokens.forward(0, 111, state, level), alone = tokens.forward(21, 111, nothing, level);
    out.rows.erase(out.rows.begin(), out.rows.begin() + 21);
    expect_same(out, alone, isa_name(level));
    Result back = tokens.backward(0, 111, state, dstate, level);
    Result back_alone = tokens.backward(21, 111, nothing, dstate, level);
    for (float d : back_alone.state) ASSERT_EQ(d, 0) << isa_name(level);
    const Result first = tokens.backward(0, 21, state, Floats(static_cast<size_t>(kStates)), level);
    EXPECT_EQ(first.state, back.state) << isa_name(level);
    back_alone.state = back.state;
    back.rows.erase(back.rows.begin(), back.rows.begin() + 21);
    expect_same(back, back_alone, isa_name(level));
  }
}

TEST(GatedDeltaNet, RefusesShapesThatDoNotFit) {
  HarnessBuilder harness("misfits");
  CaseBuilder& c = harness;
  const Tensor q = c.input("q", {8, 2, 3}), v = c.input("v", {6, 4, 3}), gates = c.input("gates", {4, 3}),
               state = c.input("state", {8, 6, 4});
  const Tensor ids = c.ids_of("positions", {3}, {0, 1, 2}), three = c.input("three", {8, 3, 3});
  const DeltaHeads heads = DeltaHeads::Tiled;
  const Tensor packed = gated_delta_net(q, q, v, gates, gates, state, ids, heads);
  EXPECT_THROW(gated_delta_net(three, three, v, gates, gates, state, ids, heads), Error);
  EXPECT_THROW(gated_delta_net(q, three, v, gates, gates, state, ids, heads), Error);
  EXPECT_THROW(gated_delta_net(q, q, c.input("v2", {6, 4, 2}), gates, gates, state, ids, heads), Error);
  const Tensor narrow = c.input("narrow", {2, 3}), turned = c.input("turned", {6, 8, 4});
  EXPECT_THROW(gated_delta_net(q, q, v, narrow, gates, state, ids, heads), Error);
  EXPECT_THROW(gated_delta_net(q, q, v, gates, narrow, state, ids, heads), Error);
  EXPECT_THROW(gated_delta_net(q, q, v, gates, gates, turned, ids, heads), Error);
  EXPECT_THROW(gated_delta_net(q, q, v, gates, gates, state, c.ids_of("two", {2}, {0, 1}), heads), Error);
  EXPECT_THROW(gated_delta_net(q, q, v, gates, gates, state, c.input("not ids", {3}), heads), Error);
  const Tensor out = delta_out(packed, v);
  EXPECT_THROW(gated_delta_net_back(q, q, v, gates, gates, state, ids, out, heads), Error);
  EXPECT_EQ(out.shape(), v.shape());
  EXPECT_EQ(delta_state(packed, v, state).shape(), state.shape());
}

}  // namespace
}  // namespace tandem
