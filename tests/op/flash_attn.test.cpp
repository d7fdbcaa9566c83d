#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tests/op/case_builder.h"
#include "tests/op/run_case.h"

namespace tandem {
namespace {

// The first key of each token of sequences packed one after the other.
std::vector<int32_t> packed(std::initializer_list<int> lengths) {
  std::vector<int32_t> first_key;
  for (int n : lengths)
    first_key.insert(first_key.end(), static_cast<size_t>(n), static_cast<int32_t>(first_key.size()));
  return first_key;
}

// A sequence, and attention over any range of it, with the keys before the range as the past.
class Sequence {
 public:
  static constexpr int64_t kD = 20, kDv = 12, kHeads = 6, kHeadsKv = 2, kTokens = 150;

  explicit Sequence(std::vector<int32_t> first_key) : first_key_(std::move(first_key)) {
    q_ = random("q", kD * kHeads);
    k_ = random("k", kD * kHeadsKv);
    v_ = random("v", kDv * kHeadsKv);
    dout_ = random("dout", kDv * kHeads);
  }

  // {out, lse and dq of each token}: one row per token.
  using Rows = std::vector<std::vector<float>>;

  void attend(int64_t begin, int64_t end, IsaLevel level, Rows& rows) const {
    Graph g;
    const int64_t n = end - begin;
    const auto part = [&](const std::vector<float>& x, int64_t d, int64_t heads, int64_t from, int64_t to) {
      return g.leaf(DType::F32, {d, heads, to - from}, Home::Persistent, x.data() + from * d * heads, "x");
    };
    const Tensor q = part(q_, kD, kHeads, begin, end), k = part(k_, kD, kHeadsKv, begin, end);
    const Tensor v = part(v_, kDv, kHeadsKv, begin, end);
    const Tensor k_past = begin ? part(k_, kD, kHeadsKv, 0, begin) : Tensor{};
    const Tensor v_past = begin ? part(v_, kDv, kHeadsKv, 0, begin) : Tensor{};
    const Tensor first = g.leaf(DType::I32, {n}, Home::Persistent, first_key_.data() + begin, "first_key");
    const Tensor packed = flash_attn(q, k, v, k_past, v_past, first, 0.4f);
    std::vector<float> dpacked(static_cast<size_t>((kDv + 1) * kHeads * n));
    std::copy_n(dout_.data() + begin * kDv * kHeads, n * kDv * kHeads, dpacked.data());
    const Tensor d = g.leaf(DType::F32, packed.shape(), Home::Persistent, dpacked.data(), "dpacked");
    const Tensor back = flash_attn_back(q, k, v, k_past, v_past, first, packed, d, 0.4f);
    const CaseRun run = run_on_cpu(g, {.level = level, .n_threads = 2, .share = false});
    ASSERT_EQ(run.complaint, "");
    const auto values = [&](Tensor t) {
      return reinterpret_cast<const float*>(run.values[static_cast<size_t>(t.node->index)].data());
    };
    for (int64_t i = 0; i < n; ++i) {
      std::vector<float> row(values(packed) + i * kDv * kHeads, values(packed) + (i + 1) * kDv * kHeads);
      const float* lse = values(packed) + kDv * kHeads * n + i * kHeads;
      row.insert(row.end(), lse, lse + kHeads);
      row.insert(row.end(), values(back) + i * kD * kHeads, values(back) + (i + 1) * kD * kHeads);
      rows.push_back(std::move(row));
    }
  }

 private:
  static std::vector<float> random(const char* name, int64_t per_token) {
    KeyedRandom random(name);
    std::vector<float> x(static_cast<size_t>(per_token * kTokens));
    for (float& e : x) e = static_cast<float>(random.uniform(-2, 2));
    return x;
  }

  std::vector<float> q_, k_, v_, dout_;
  std::vector<int32_t> first_key_;
};

std::vector<IsaLevel> levels() {
  std::vector<IsaLevel> supported;
  for (IsaLevel level : compiled_isa_levels())
    if (isa_supported(level)) supported.push_back(level);
  return supported;
}

// A token's attention is the same, bit for bit, in a prefill, in pieces of one, and token by token.
TEST(FlashAttn, ATokenDoesNotFeelHowItsSequenceIsCut) {
  const std::vector<std::vector<int64_t>> cuts = {{64, 128}, {1, 38, 117, 118}, {149}};
  std::vector<int64_t> everywhere;
  for (int64_t i = 1; i < Sequence::kTokens; ++i) everywhere.push_back(i);
  std::vector<int32_t> window;  // of 100 keys
  for (int32_t i = 0; i < Sequence::kTokens; ++i) window.push_back(std::max(0, i - 99));
  for (const std::vector<int32_t>& first_key :
       {std::vector<int32_t>(Sequence::kTokens), packed({70, 3, 77}), window}) {
    const Sequence sequence(first_key);
    for (IsaLevel level : levels()) {
      Sequence::Rows whole;
      sequence.attend(0, Sequence::kTokens, level, whole);
      for (const std::vector<int64_t>& cut : {cuts[0], cuts[1], cuts[2], everywhere}) {
        Sequence::Rows pieces;
        int64_t begin = 0;
        for (int64_t end : cut) {
          sequence.attend(begin, end, level, pieces);
          begin = end;
        }
        sequence.attend(begin, Sequence::kTokens, level, pieces);
        ASSERT_EQ(pieces.size(), whole.size());
        for (size_t i = 0; i < whole.size(); ++i) {
          ASSERT_EQ(std::memcmp(pieces[i].data(), whole[i].data(), whole[i].size() * sizeof(float)), 0)
              << isa_name(level) << ", token " << i << ", cut in " << cut.size() + 1;
        }
      }
    }
  }
}

TEST(FlashAttn, AQueryWithoutKeysGivesZerosAndTakesNoPartInTheGradient) {
  for (IsaLevel level : levels()) {
    HarnessBuilder harness("no keys");
    CaseBuilder& c = harness;
    const Tensor q = c.input("q", {4, 2, 3}), k = c.input("k", {4, 1, 3}), v = c.input("v", {4, 1, 3});
    const Tensor first_key = c.ids_of("first_key", {3}, {0, 9, 1});
    const Tensor result = flash_attn(q, k, v, {}, {}, first_key, 0.35f);
    const Tensor back =
        flash_attn_back(q, k, v, {}, {}, first_key, result, c.constant("dpacked", result.shape()), 0.35f);
    const CaseRun run = run_on_cpu(c.graph(), {.level = level, .share = false});
    ASSERT_EQ(run.complaint, "");
    const auto* y =
        reinterpret_cast<const float*>(run.values[static_cast<size_t>(result.node->index)].data());
    const auto* dq = reinterpret_cast<const float*>(run.values[static_cast<size_t>(back.node->index)].data());
    for (int e = 8; e < 16; ++e) EXPECT_EQ(y[e], 0) << isa_name(level);
    for (int e = 8; e < 16; ++e) EXPECT_EQ(dq[e], 0) << isa_name(level);
    for (int e : {24 + 2, 24 + 3})
      EXPECT_EQ(y[e], -std::numeric_limits<float>::infinity()) << isa_name(level);
    for (int64_t e = 0; e < back.ne(0); ++e) EXPECT_TRUE(std::isfinite(dq[e])) << isa_name(level) << " " << e;
  }
}

TEST(FlashAttn, RefusesShapesThatDoNotFit) {
  HarnessBuilder harness("misfits");
  CaseBuilder& c = harness;
  const Tensor q = c.input("q", {8, 4, 3}), k = c.input("k", {8, 2, 3}), v = c.input("v", {6, 2, 3});
  const Tensor k_past = c.input("k_past", {8, 2, 5}), v_past = c.input("v_past", {6, 2, 5});
  const Tensor ids = c.ids_of("first_key", {3}, {0, 0, 0}),
               packed = flash_attn(q, k, v, k_past, v_past, ids, 1);
  EXPECT_THROW(flash_attn(q, c.input("k3", {8, 3, 3}), c.input("v3", {6, 3, 3}), {}, {}, ids, 1), Error);
  EXPECT_THROW(flash_attn(q, c.input("k narrow", {7, 2, 3}), v, {}, {}, ids, 1), Error);
  EXPECT_THROW(flash_attn(q, k, c.input("v short", {6, 2, 2}), {}, {}, ids, 1), Error);
  EXPECT_THROW(flash_attn(q, k, v, k_past, {}, ids, 1), Error);
  EXPECT_THROW(flash_attn(q, k, v, v_past, k_past, ids, 1), Error);
  EXPECT_THROW(flash_attn(q, k, v, {}, {}, c.ids_of("four", {4}, {0, 0, 0, 0}), 1), Error);
  EXPECT_THROW(flash_attn(q, k, v, {}, {}, {}, 1), Error);
  EXPECT_THROW(flash_attn(q, k, v, {}, {}, c.input("not ids", {3}), 1), Error);
  EXPECT_THROW(flash_attn_back(q, k, v, {}, {}, ids, packed, attn_out(packed, q, v), 1), Error);
  EXPECT_THROW(flash_attn_back(q, k, v, {}, {}, ids, packed, {}, 1), Error);
}

}  // namespace
}  // namespace tandem
