// A split model is the same model, and one that shrinks in use is refused instead of ending the process.
#include <gtest/gtest.h>

#include <filesystem>
#include <vector>

#include "base/error.h"
#include "exec/cpu/cpu_backend.h"
#include "tests/support/split_gguf.h"
#include "tests/support/tiny_models.h"

namespace tandem {
namespace {

class SplitModel : public testing::Test {
 protected:
  SplitModel() : whole_(tiny_model(dir_, "qwen3moe", awkward_sizes(DType::Q8_0))) {
    const size_t n = whole_.file().tensors().size();
    first_ =
        write_split(whole_.file(), dir_.path(), plan_split(whole_.file(), "split", {0, n / 2, n - n / 2}));
  }

  std::vector<float> logits(const Model& model) {
    Session session(model, cpu_, {}, 64, 64, Precision::F32);
    session.allocate();
    const std::span<const float> out = session.append(tokens_);
    return {out.begin(), out.end()};
  }

  TempDir dir_;
  Model whole_;
  std::string first_;
  ThreadPool pool_{2};
  CpuBackend cpu_{pool_, best_isa()};
  const std::vector<int32_t> tokens_ = {1, 200, 3, 77, 5, 5, 260};
};

TEST_F(SplitModel, GivesTheSameLogitsBitForBit) {
  const Model split = Model::open(first_);
  EXPECT_EQ(split.file().shards().size(), 3u);
  EXPECT_EQ(split.mapped_bytes(), whole_.mapped_bytes());
  EXPECT_EQ(logits(split), logits(whole_));

  const Window window = random_window(whole_, {30, 20}, 3, 1);
  const auto losses = [&](const Model& model) {
    AdapterSet adapter = random_adapter(model, "all", 2, 7);
    adapter.allocate_gradients();
    for (AdapterPair& p : adapter.pairs()) p.trainable = true;
    WindowRunner runner(model, cpu_, {&adapter}, &adapter, {.window_tokens = 64, .range_tokens = 64});
    runner.allocate();
    const WindowLoss loss = runner.forward_backward(window, 1.f, {});
    return std::make_pair(loss.nll, runner_gradients(adapter));
  };
  EXPECT_EQ(losses(split), losses(whole_));
}

TEST_F(SplitModel, MessagesNameTheShardOfATensor) {
  std::vector<ShardPlan> shards = plan_split(whole_.file(), "bad", {1, whole_.file().tensors().size() - 1});
  const std::string name = shards[1].tensors.back()->name;
  shards[1].tensors.pop_back();
  shards[1].more = [&](GgufWriter& out) {
    static const std::vector<std::byte> zeros(4 * 32);
    out.add_tensor(name, DType::F32, std::vector<int64_t>{32}, zeros);
  };
  try {
    Model::open(write_split(whole_.file(), dir_.path(), shards));
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::BadData);
    const std::string text = e.what();
    EXPECT_NE(text.find(name + " has shape"), std::string::npos) << text;
    EXPECT_NE(text.find("bad-00002-of-00002.gguf)"), std::string::npos) << text;
  }
}

TEST_F(SplitModel, AShardThatShrinksInUseIsAnError) {
  const Model split = Model::open(first_);
  Session session(split, cpu_, {}, 64, 64, Precision::F32);
  session.allocate();
  WindowRunner runner(split, cpu_, {}, nullptr, {.window_tokens = 64, .range_tokens = 64});
  runner.allocate();
  session.append(tokens_);
  const Window window = random_window(whole_, {30}, 3, 1);
  runner.evaluate(window);
  const std::string last = dir_.file("split-00003-of-00003.gguf");
  std::filesystem::resize_file(last, 4096);
  const auto refused = [&](auto&& call) {
    try {
      call();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::Io);
      EXPECT_NE(std::string(e.what()).find(last + ": has shrunk"), std::string::npos) << e.what();
    }
  };
  refused([&] { session.append(tokens_); });
  refused([&] { runner.evaluate(window); });
}

}  // namespace
}  // namespace tandem
