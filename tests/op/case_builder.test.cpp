#include "tests/op/case_builder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace tandem {
namespace {

std::vector<float> decoded(Tensor t) {
  std::vector<float> v(static_cast<size_t>(t.node->elements()));
  type_info(t.type()).codec->decode(t.node->data, v.data(), t.node->elements());
  return v;
}

double root_mean_square(const std::vector<float>& v) {
  double sum = 0;
  for (float x : v) sum += static_cast<double>(x) * x;
  return std::sqrt(sum / static_cast<double>(v.size()));
}

TEST(CaseBuilder, ValuesDependOnCaseAndNameOnly) {
  HarnessBuilder a("op/case"), b("op/case", GradWanted::Inputs), other("op/other case");
  CaseBuilder &ca = a, &cb = b, &co = other;
  cb.constant("something else", {3});
  Tensor x = ca.input("x", {40, 3}, -2, 5), y = cb.input("x", {40, 3}, -2, 5);
  EXPECT_EQ(decoded(x), decoded(y));
  EXPECT_NE(decoded(x), decoded(ca.input("x2", {40, 3}, -2, 5)));
  EXPECT_NE(decoded(x), decoded(co.input("x", {40, 3}, -2, 5)));
  for (float v : decoded(x)) EXPECT_TRUE(v >= -2 && v < 5) << v;
}

TEST(CaseBuilder, MarksWhatIsWanted) {
  const auto marked = [](GradWanted wanted) {
    HarnessBuilder b("k", wanted);
    CaseBuilder& c = b;
    const Tensor x = c.input("x", {4}), y = c.constant("y", {4}), w = c.weight("w", DType::F32, {4});
    const Tensor q = c.weight("q", DType::F16, {4}), i = c.ids("i", {4}, 9);
    EXPECT_FALSE(q.node->wants_grad || i.node->wants_grad);
    EXPECT_EQ(b.inputs().size(), 1u);
    return std::vector<bool>{x.node->wants_grad, y.node->wants_grad, w.node->wants_grad};
  };
  EXPECT_EQ(marked(GradWanted::None), (std::vector<bool>{false, false, false}));
  EXPECT_EQ(marked(GradWanted::Inputs), (std::vector<bool>{true, false, false}));
  EXPECT_EQ(marked(GradWanted::AllF32), (std::vector<bool>{true, true, true}));
}

TEST(CaseBuilder, IdsStayInRangeAndDifferWhereAsked) {
  HarnessBuilder b("k");
  CaseBuilder& c = b;
  Tensor ids = c.ids("ids", {6, 50}, 8, true);
  const auto* id = static_cast<const int32_t*>(ids.node->data);
  std::set<int32_t> seen;
  for (int t = 0; t < 50; ++t) {
    const std::set<int32_t> column(id + 6 * t, id + 6 * t + 6);
    EXPECT_EQ(column.size(), 6u);
    seen.insert(column.begin(), column.end());
  }
  EXPECT_EQ(seen, (std::set<int32_t>{0, 1, 2, 3, 4, 5, 6, 7}));
  Tensor any = c.ids("any", {100}, 3);
  const auto* a = static_cast<const int32_t*>(any.node->data);
  EXPECT_EQ(std::set<int32_t>(a, a + 100), (std::set<int32_t>{0, 1, 2}));
}

TEST(CaseBuilder, WeightsOfEveryDecodableTypeAreFiniteAndOfTheAskedSize) {
  HarnessBuilder b("k");
  CaseBuilder& c = b;
  int types = 0;
  for (const TypeInfo& info : all_types()) {
    if (!info.codec) continue;
    ++types;
    // 128 of the largest blocks: a random one alone may have 0.7 to 1.42 of what is asked.
    const double rms = root_mean_square(decoded(c.weight(info.name, info.type, {512, 64}, 0.25)));
    EXPECT_NEAR(rms, 0.25, 0.05) << info.name;
  }
  EXPECT_GE(types, 27);
}

TEST(CaseBuilder, RandomBlocksAreFiniteForEveryQuantizedType) {
  for (const TypeInfo& info : all_types()) {
    if (!info.codec || info.block_elements == 1) continue;
    KeyedRandom random(info.name);
    std::vector<std::byte> blocks(static_cast<size_t>(info.block_bytes) * 4);
    std::vector<float> values(static_cast<size_t>(info.block_elements) * 4);
    random_blocks(random, info.type, 0.5, blocks.data(), info.block_elements * 4);
    info.codec->decode(blocks.data(), values.data(), info.block_elements * 4);
    const double rms = root_mean_square(values);
    EXPECT_TRUE(rms >= 0.35 && rms <= 0.71) << info.name << " " << rms;
  }
}

}  // namespace
}  // namespace tandem
