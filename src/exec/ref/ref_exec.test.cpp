#include "exec/ref/ref_exec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>

#include "graph/op_def.h"
#include "ops/ops.h"

namespace tandem {
namespace {

std::vector<float> counting(int n) {
  std::vector<float> v(static_cast<size_t>(n));
  for (int i = 0; i < n; ++i) v[static_cast<size_t>(i)] = static_cast<float>(i);
  return v;
}

template <class T>
std::vector<T> values(RefExec<T>& exec, Tensor t) {
  const std::span<const T> v = exec.get(t);
  return {v.begin(), v.end()};
}

TEST(RefExec, RunsInEveryNumberType) {
  Graph g;
  std::vector<float> x{3, 4};
  Tensor y = rms_norm(g.leaf(DType::F32, {2}, Home::Persistent, x.data(), "x"), 0);
  RefExec<float> f(g);
  RefExec<double> d(g);
  RefExec<std::complex<double>> c(g);
  f.run();
  d.run();
  c.run();
  const double want = 3 / std::sqrt(12.5);
  EXPECT_NEAR(f.get(y)[0], want, 1e-6);
  EXPECT_NEAR(d.get(y)[0], want, 1e-15);
  EXPECT_NEAR(c.get(y)[0].real(), want, 1e-15);
  EXPECT_EQ(c.get(y)[0].imag(), 0);
}

TEST(RefExec, SetReplacesALeafAndItsDataStays) {
  Graph g;
  std::vector<float> x{1, 2};
  Tensor l = g.leaf(DType::F32, {2}, Home::Persistent, x.data(), "x");
  Tensor y = scale(l, 2);
  RefExec<std::complex<double>> exec(g);
  exec.run();
  EXPECT_EQ(exec.get(y)[1], std::complex<double>(4));
  const std::vector<std::complex<double>> other{{5, 1e-30}, {6, 0}};
  exec.set(l, other);
  exec.run();
  EXPECT_EQ(exec.get(y)[0], std::complex<double>(10, 2e-30));
  EXPECT_EQ(x, (std::vector<float>{1, 2}));
  EXPECT_THROW(exec.set(y, other), Error);
  EXPECT_THROW(exec.set(l, std::span(other).first(1)), Error);
}

TEST(RefExec, ViewsAliasTheirRootWithStridesAndOffset) {
  Graph g;
  std::vector<float> x = counting(24);
  Tensor l = g.leaf(DType::F32, {6, 4}, Home::Persistent, x.data(), "x");
  Tensor a = scale(l, 1);
  Tensor v = view_strided(a, {2, 4}, {4, 24, 96, 96}, 8);
  Tensor w = view(v, {1}, 24);
  Tensor of_leaf = view_strided(l, {3, 2}, {4, 48, 96, 96}, 4);
  Tensor y = scale(v, 10);
  RefExec<double> exec(g);
  exec.run();
  EXPECT_EQ(values(exec, v), (std::vector<double>{2, 3, 8, 9, 14, 15, 20, 21}));
  EXPECT_EQ(values(exec, w), (std::vector<double>{8}));
  EXPECT_EQ(values(exec, of_leaf), (std::vector<double>{1, 2, 3, 13, 14, 15}));
  EXPECT_EQ(values(exec, y), (std::vector<double>{20, 30, 80, 90, 140, 150, 200, 210}));
}

TEST(RefExec, DecodesWeightsAndTheirViews) {
  Graph g;
  std::vector<float> x(96);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 7) - 3;
  std::vector<std::byte> blocks(static_cast<size_t>(row_bytes(DType::Q8_0, 96)));
  const Codec& codec = *type_info(DType::Q8_0).codec;
  codec.encode(x.data(), blocks.data(), 96);
  std::vector<float> want(96);
  codec.decode(blocks.data(), want.data(), 96);
  Tensor w = g.leaf(DType::Q8_0, {32, 3}, Home::Mapped, blocks.data(), "w");
  Tensor last = view(w, {32}, 68);
  RefExec<double> exec(g);
  exec.run();
  EXPECT_EQ(values(exec, w), (std::vector<double>(want.begin(), want.end())));
  EXPECT_EQ(values(exec, last), (std::vector<double>(want.begin() + 64, want.end())));
}

TEST(RefExec, IdsAreComputedAndReadInPlace) {
  Graph g;
  std::vector<float> x{1, 7, 3, 5, 9, 2, 8, 4};
  std::vector<int32_t> fixed{2, 0};
  Tensor l = g.leaf(DType::F32, {4, 2}, Home::Persistent, x.data(), "x");
  Tensor given = g.leaf(DType::I32, {1, 2}, Home::Persistent, fixed.data(), "ids");
  Tensor ids = top_k(l, 2);
  Tensor rows = get_rows(reshape(l, {1, 4, 2}), ids);
  Tensor picked = get_rows(reshape(l, {1, 4, 2}), given);
  RefExec<double> exec(g);
  exec.poison = true;
  exec.run();
  EXPECT_EQ(exec.get_ids(ids), (std::vector<int32_t>{1, 3, 0, 2}));
  EXPECT_EQ(values(exec, rows), (std::vector<double>{7, 5, 9, 8}));
  EXPECT_EQ(values(exec, picked), (std::vector<double>{3, 9}));
  fixed = {3, 3};
  exec.run();
  EXPECT_EQ(values(exec, picked), (std::vector<double>{5, 4}));
}

TEST(RefExec, RunsPartsAndLetsResultsBeChanged) {
  Graph g;
  std::vector<float> x{1, 2};
  Tensor a = scale(g.leaf(DType::F32, {2}, Home::Persistent, x.data(), "x"), 2);
  Tensor b = scale(a, 10);
  RefExec<double> exec(g);
  exec.run();
  exec.storage(a)[0] = 7;
  exec.run(b.node->index, b.node->index + 1);
  EXPECT_EQ(values(exec, b), (std::vector<double>{70, 40}));
  RefExec<double> prefix(g, b.node->index);
  prefix.run();
  EXPECT_EQ(values(prefix, a), (std::vector<double>{2, 4}));
  EXPECT_THROW(prefix.get(b), Error);
}

TEST(RefExec, ALeafWithoutValuesIsAnError) {
  Graph g;
  Tensor l = g.leaf(DType::F32, {2}, Home::Persistent, static_cast<void*>(nullptr), "the missing one");
  Tensor y = scale(l, 2);
  RefExec<double> exec(g);
  try {
    exec.run();
    ADD_FAILURE() << "ran without values";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("the missing one"), std::string::npos) << e.what();
  }
  const std::vector<double> values_of_l{1, 2};
  exec.set(l, values_of_l);
  exec.run();
  EXPECT_EQ(values(exec, y), (std::vector<double>{2, 4}));
}

}  // namespace
}  // namespace tandem
