#include "train/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace tandem {
namespace {

// A case of the golden vectors (tests/golden/vectors/training.json).  Source: gradients.md 12, 16.
class Golden : public testing::Test {
 protected:
  void SetUp() override {
    std::ifstream in(std::string(TANDEM_SOURCE_DIR) + "/tests/golden/vectors/training.json");
    ASSERT_TRUE(in) << "training.json is missing";
    document_ = nlohmann::json::parse(in);
  }
  const nlohmann::json& find(const std::string& name) const {
    for (const nlohmann::json& c : document_["cases"]) {
      if (c["name"] == name) return c;
    }
    ADD_FAILURE() << "no case " << name;
    return document_;
  }
  static std::vector<float> data(const nlohmann::json& tensor) {
    return tensor["data"].get<std::vector<float>>();
  }

 private:
  nlohmann::json document_;
};

TEST_F(Golden, AdamW) {
  const nlohmann::json& c = find("adamw_4_steps");
  std::vector<float> w = data(c["inputs"]["w"]);
  const std::vector<float> gradients = data(c["inputs"]["grads"]), want = data(c["outputs"]["w_after"]);
  AdamWSettings s;
  s.weight_decay = c["params"]["weight_decay"];
  AdamW optimizer(w.size(), s);
  const FlatRange all{0, w.size()};
  ASSERT_EQ(want.size(), 4 * w.size());
  for (size_t step = 0; step < 4; ++step) {
    optimizer.step(w, std::span(gradients).subspan(step * w.size(), w.size()), {&all, 1}, c["params"]["lr"]);
    for (size_t i = 0; i < w.size(); ++i)
      EXPECT_NEAR(w[i], want[step * w.size() + i], 1e-6 * std::abs(want[step * w.size() + i]) + 1e-9);
  }
}

TEST_F(Golden, ClipByGlobalNorm) {
  const nlohmann::json& c = find("clip_global_norm");
  std::vector<float> g = data(c["inputs"]["a"]);
  const size_t n_a = g.size();
  for (float x : data(c["inputs"]["b"])) g.push_back(x);
  const double norm = global_norm(g);
  EXPECT_NEAR(norm, c["outputs"]["norm"]["data"][0].get<double>(), 1e-7 * norm);
  clip_to_norm(g, norm, c["params"]["max_norm"]);
  std::vector<float> want = data(c["outputs"]["a_clipped"]);
  EXPECT_EQ(want.size(), n_a);
  for (float x : data(c["outputs"]["b_clipped"])) want.push_back(x);
  for (size_t i = 0; i < g.size(); ++i) EXPECT_NEAR(g[i], want[i], 1e-6 * std::abs(want[i]));
}

TEST_F(Golden, Schedules) {
  const nlohmann::json& c = find("lr_schedules");
  const int64_t total = c["params"]["total_steps"];
  for (const char* name : {"constant", "linear", "cosine"}) {
    ScheduleSettings s{.kind = parse_schedule(name),
                       .peak = c["params"]["peak"],
                       .floor = c["params"]["floor"],
                       .warmup_steps = c["params"]["warmup_steps"]};
    const std::vector<double> want = c["outputs"][name]["data"].get<std::vector<double>>();
    ASSERT_EQ(want.size(), static_cast<size_t>(total));
    for (int64_t i = 0; i < total; ++i) {
      EXPECT_NEAR(learning_rate_at(s, i, total), want[static_cast<size_t>(i)],
                  1e-8 * want[static_cast<size_t>(i)])
          << name << " step " << i;
    }
  }
}

TEST(Optimizer, SchedulesWithoutRoomDoNotDivideByZero) {
  for (ScheduleKind kind : {ScheduleKind::Constant, ScheduleKind::Linear, ScheduleKind::Cosine}) {
    EXPECT_DOUBLE_EQ(learning_rate_at({kind, 1.0, 0.0, 0}, 0, 4), 1.0);       // no warm-up
    EXPECT_DOUBLE_EQ(learning_rate_at({kind, 1.0, 0.0, 4}, 3, 4), 1.0);       // nothing but warm-up
    EXPECT_TRUE(std::isfinite(learning_rate_at({kind, 1.0, 0.5, 4}, 9, 4)));  // beyond the end
  }
}

TEST(Optimizer, OnlyTheRangesMove) {
  AdamWSettings s;
  s.weight_decay = 0.5f;
  AdamW optimizer(4, s);
  std::vector<float> w(4, 1.f), g(4, 1.f);
  const FlatRange range{1, 2};
  optimizer.step(w, g, {&range, 1}, 0.1);
  EXPECT_EQ(w[0], 1.f);
  EXPECT_EQ(w[3], 1.f);
  EXPECT_LT(w[1], 0.9f);
  EXPECT_LT(w[2], 0.9f);
}

TEST(Optimizer, NoClippingBelowTheNorm) {
  std::vector<float> g{0.3f, -0.4f};
  clip_to_norm(g, global_norm(g), 1.0);
  EXPECT_EQ(g, (std::vector<float>{0.3f, -0.4f}));
}

TEST(Optimizer, UnknownScheduleIsRefused) {
  try {
    parse_schedule("polynomial");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::Usage);
  }
}

}  // namespace
}  // namespace tandem
