// Training runs that are stopped and taken up again, by the real binary.
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/e2e/process.h"
#include "tests/support/tiny_models.h"

namespace tandem {
namespace {

using nlohmann::json;

class Resume : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"TANDEM_SEED", "TANDEM_AUTO_RESUME", "TANDEM_THREADS"}) unsetenv(name);
    std::string rows;
    for (int i = 0; i < 20; ++i)
      rows += fmt::format("{{\"prompt\": \"say {}\", \"completion\": \"{}\"}}\n", i % 2 ? "yes" : "no",
                          i % 2 ? "aaaa" : "bbbb");
    spit(dir_.file("rows.jsonl"), rows);
    spit(dir_.file("held.jsonl"), rows.substr(0, rows.size() / 5));
  }

  // The same run but for what `more` says; the adapter is DIR/a.gguf.
  Texts call(const std::string& directory, const Texts& more, const std::string& iters = "12") const {
    fs::create_directories(dir_.file(directory));
    Texts all{"train",
              "-m",
              model_.file().path(),
              "--train-file",
              dir_.file("rows.jsonl"),
              "--val-file",
              dir_.file("held.jsonl"),
              "--adapter-path",
              dir_.file(directory + "/a.gguf"),
              "--lora-dropout",
              "0.1",
              "--steps-per-eval",
              "5",
              "--rank",
              "2",
              "--batch-size-seq",
              "4",
              "--json",
              "--iters",
              iters};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  Outcome run(const Texts& arguments) const { return Process(dir_.path(), arguments).wait(); }
  std::string adapter(const std::string& directory) const { return slurp(dir_.file(directory + "/a.gguf")); }
  std::string checkpoints(const std::string& directory) const {
    return dir_.file(directory + "/a.gguf.checkpoints");
  }
  static json last_line(const Outcome& o) {
    const size_t end = o.out.find_last_not_of('\n');
    return json::parse(o.out.substr(o.out.rfind('\n', end) + 1));
  }
  void expect_refusal(const Texts& arguments, int status, const Texts& parts) const {
    const Outcome o = run(arguments);
    EXPECT_EQ(o.status, status) << o.err;
    for (const std::string& part : parts) EXPECT_NE(o.err.find(part), std::string::npos) << o.err;
    EXPECT_EQ(o.out.find("\"step\":"), std::string::npos) << o.out;
  }

  TempDir dir_;
  Model model_ = tiny_model(dir_, "qwen3moe", awkward_sizes(DType::Q8_0));
};

TEST_F(Resume, TerminatedAndTakenUpAgainIsTheUninterruptedRun) {
  const std::string iters = "150";
  const Outcome whole = run(call("whole", {"-t", "1"}, iters));
  ASSERT_EQ(whole.status, 0) << whole.err;
  EXPECT_EQ(last_line(whole).at("checkpoint"), nullptr);
  EXPECT_FALSE(fs::exists(checkpoints("whole")));

  fs::create_directories(
      dir_.file("cut"));  // for its output: that of the run before must not be taken for it
  const Process process(dir_.file("cut"), call("cut", {"--auto-resume", "-t", "2"}, iters));
  for (int i = 0; i < 20000 && process.out_so_far().find("\"step\"") == std::string::npos; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  process.signal(SIGTERM);
  const Outcome cut = process.wait();
  ASSERT_EQ(cut.status, 130) << cut.err;
  const auto steps = last_line(cut).at("steps").get<int64_t>();
  ASSERT_LT(steps, 150);
  EXPECT_EQ(last_line(cut).at("checkpoint"),
            fmt::format("{}/checkpoint-{}.tandem", checkpoints("cut"), steps));
  EXPECT_NE(adapter("cut"), adapter("whole"));

  expect_refusal(call("cut", {}, iters), 2, {"holds the checkpoints of a run", "--auto-resume"});
  expect_refusal(call("cut", {"--auto-resume"}, "151"), 2, {"steps in all: 150 in the checkpoint, 151 now"});
  expect_refusal(call("cut", {"--auto-resume", "--seed", "7", "--adam-eps", "1e-6"}, iters), 2,
                 {"seed: 42 in the checkpoint, 7 now", "eps: 1e-08 in the checkpoint, 1e-06 now"});
  const Outcome plan = run(call("cut", {"--auto-resume", "--dry-run"}, iters));
  EXPECT_NE(plan.out.find(fmt::format("\"step\":{},\"type\":\"resume\"", steps)), std::string::npos)
      << plan.out;

  const Outcome resumed = run(call("cut", {"--auto-resume", "-t", "3"}, iters));
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_EQ(adapter("cut"), adapter("whole"));
  for (const char* key : {"steps", "before", "after", "movements"})
    EXPECT_EQ(last_line(resumed).at(key), last_line(whole).at(key)) << key;
}

TEST_F(Resume, CheckpointsOnTheWay) {
  ASSERT_EQ(run(call("whole", {})).status, 0);
  const std::string places = dir_.file("places");
  const Texts saving{"--save-every", "2", "--keep-checkpoints", "2", "--checkpoint-dir", places};
  const Outcome saved = run(call("saved", saving));
  ASSERT_EQ(saved.status, 0) << saved.err;
  EXPECT_EQ(adapter("saved"), adapter("whole"));
  Texts names;
  for (const auto& entry : fs::directory_iterator(places)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (Texts{"checkpoint-10.tandem", "checkpoint-12.tandem"}));
  EXPECT_EQ(last_line(saved).at("checkpoint"), places + "/checkpoint-12.tandem");

  // From a file, into a directory of its own; from the directory, whose newest is damaged.
  const Outcome from_file = run(call("file", {"--resume-from", places + "/checkpoint-10.tandem"}));
  EXPECT_EQ(from_file.status, 0) << from_file.err;
  EXPECT_EQ(adapter("file"), adapter("whole"));
  spit(places + "/checkpoint-12.tandem", slurp(places + "/checkpoint-12.tandem").substr(0, 5000));
  expect_refusal(call("cut", {"--resume-from", places + "/checkpoint-12.tandem"}), 3, {"is damaged"});
  const Outcome from_directory = run(call("directory", {"--resume-from", places}));
  EXPECT_EQ(from_directory.status, 0) << from_directory.err;
  EXPECT_NE(from_directory.err.find("checkpoint-12.tandem: this checkpoint is damaged"), std::string::npos);
  EXPECT_NE(from_directory.err.find("the one before it is used: "), std::string::npos) << from_directory.err;
  EXPECT_EQ(adapter("directory"), adapter("whole"));

  expect_refusal(call("none", {"--resume-from", dir_.file("none/x")}), 1, {"none/x"});
  expect_refusal(call("none", {"--resume-from", dir_.file("none")}), 2, {"no checkpoint in this directory"});
  expect_refusal(call("none", {"--resume-from", dir_.file("rows.jsonl")}), 3, {"no checkpoint"});
  expect_refusal(call("none", {"--resume-from", places, "--auto-resume"}), 2, {"exclude each other"});
  expect_refusal(call("none", {"--resume-from", dir_.file("none"), "--checkpoint-dir", places}), 2,
                 {"no checkpoint in this directory"});
  expect_refusal(call("none", {"--checkpoint-dir", places}), 2, {"holds the checkpoints of a run"});
  expect_refusal(call("none", {"--checkpoint-dir", dir_.file("no/such/place")}), 1, {"no/such/place"});
  EXPECT_TRUE(fs::is_empty(dir_.file("none")));
}

// Checkpoints go to a file system with room for two and a half.
TEST_F(Resume, AFullDiskEndsTheRunWithOneError) {
  ASSERT_EQ(run(call("whole", {"--save-every", "12"})).status, 0);
  const auto n_bytes = fs::file_size(checkpoints("whole") + "/checkpoint-12.tandem");
  const std::string disk = dir_.file("disk");
  fs::create_directory(disk);
  if (mount("tandem-test", disk.c_str(), "tmpfs", 0, fmt::format("size={}", 5 * n_bytes / 2).c_str()) != 0)
    GTEST_SKIP() << "no tmpfs of our own can be mounted here: " << std::strerror(errno);
  struct Unmount {
    const std::string& disk;
    ~Unmount() { umount2(disk.c_str(), MNT_DETACH); }
  } const unmount{disk};
  const Outcome full = run(call("cut", {"--save-every", "1", "--checkpoint-dir", disk + "/run"}));
  EXPECT_EQ(full.status, 1) << full.err;
  EXPECT_TRUE(full.err.starts_with("tandem: error: ")) << full.err;
  EXPECT_EQ(std::count(full.err.begin(), full.err.end(), '\n'), 1) << full.err;
  for (const char* part :
       {"run/checkpoint-3.tandem", "No space left on device", "the checkpoint takes ",
        "the last whole one is ", "run/checkpoint-2.tandem (--resume-from)", "cut/a.gguf.last-good.gguf"})
    EXPECT_NE(full.err.find(part), std::string::npos) << full.err;
  EXPECT_FALSE(fs::exists(dir_.file("cut/a.gguf")));
  EXPECT_TRUE(fs::exists(dir_.file("cut/a.gguf.last-good.gguf")));
  const Outcome resumed = run(call("cut", {"--resume-from", disk + "/run"}));
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_EQ(adapter("cut"), adapter("whole"));
}

class Receipts : public Resume {
 protected:
  std::string receipt(const std::string& directory) const { return dir_.file(directory + "/a.receipt.json"); }
  Texts again(const std::string& receipt_path, const Texts& more = {}) const {
    Texts all{"reproduce",    receipt_path,
              "-m",           model_.file().path(),
              "--train-file", dir_.file("rows.jsonl"),
              "--val-file",   dir_.file("held.jsonl"),
              "--json"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  // The receipt with a change, as another file.
  std::string changed(const std::string& directory, const std::function<void(json&)>& change) const {
    json document = json::parse(slurp(receipt(directory)));
    change(document);
    const std::string path = dir_.file("changed.json");
    spit(path, document.dump());
    return path;
  }
};

TEST_F(Receipts, TheRunIsDoneAgainBitForBit) {
  const Outcome trained = run(call("r", {"-t", "1", "--packing", "--adam-beta2", "0.99"}));
  ASSERT_EQ(trained.status, 0) << trained.err;
  EXPECT_EQ(last_line(trained).at("receipt"), receipt("r"));
  const json said = json::parse(slurp(receipt("r")));
  EXPECT_EQ(said.at("loss_curve").size(), 12u);
  EXPECT_EQ(said.at("held_out").size(), 4u);  // before, after 5, 10, 12
  EXPECT_EQ(said.at("steps"), 12);
  EXPECT_EQ(said.at("reason"), "finished");
  EXPECT_EQ(said.at("before"), last_line(trained).at("before"));
  EXPECT_EQ(said.at("after"), last_line(trained).at("after"));
  EXPECT_EQ(said.at("movements"), last_line(trained).at("movements"));
  EXPECT_EQ(said.at("model").at("base_hash"), model_.base_hash());
  const HParams& h = model_.hparams();
  ASSERT_EQ(said.at("experts").size(), static_cast<size_t>(h.n_layer));
  for (const json& layer : said.at("experts")) {
    EXPECT_EQ(layer.at("reached").get<size_t>() + layer.at("not_reached").size(),
              static_cast<size_t>(h.n_expert));
    EXPECT_GT(layer.at("most_tokens").get<int64_t>(), 0);
  }
  EXPECT_EQ(said.at("data").at("rows"), 20);
  EXPECT_EQ(said.at("settings").at("adam-beta2"), "0.99");
  EXPECT_EQ(said.at("settings").at("packing"), "on");

  const Outcome same = run(again(receipt("r"), {"-t", "2"}));
  EXPECT_EQ(same.status, 0) << same.err << same.out;
  EXPECT_EQ(last_line(same).at("identical"), true);
  EXPECT_EQ(last_line(same).at("hash"), said.at("adapter").at("hash"));
  // Paths in a receipt are not followed.
  const std::string moved = changed("r", [](json& d) {
    d["model"]["file"] = d["data"]["file"] = d["held_out_data"]["file"] = d["adapter"]["file"] = "/none";
  });
  EXPECT_EQ(run(again(moved)).status, 0);

  const Outcome other =
      run(again(changed("r", [](json& d) { d["adapter"]["hash"] = "00000000000000000000000000000000"; })));
  EXPECT_EQ(other.status, 1) << other.err;
  EXPECT_EQ(last_line(other).at("identical"), false);
  const Outcome shorter = run(again(changed("r", [](json& d) { d["steps"] = 11; })));
  EXPECT_EQ(shorter.status, 1) << shorter.err;
}

TEST_F(Receipts, OfAResumedAndOfAnInterruptedRun) {
  const Outcome whole = run(call("whole", {"--save-every", "5"}));
  ASSERT_EQ(whole.status, 0) << whole.err;
  fs::remove(checkpoints("whole") + "/checkpoint-10.tandem");
  const json before = json::parse(slurp(receipt("whole")));
  ASSERT_EQ(run(call("whole", {"--auto-resume"})).status, 0);
  json after = json::parse(slurp(receipt("whole")));
  after["seconds"] = before.at("seconds");
  EXPECT_EQ(after, before);

  fs::create_directories(dir_.file("cut"));
  const Process process(dir_.file("cut"), call("cut", {}, "100000"));
  for (int i = 0; i < 20000 && process.out_so_far().find("\"step\"") == std::string::npos; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  process.signal(SIGINT);
  const Outcome cut = process.wait();
  ASSERT_EQ(cut.status, 130) << cut.err;
  const Outcome same = run(again(receipt("cut")));
  EXPECT_EQ(same.status, 0) << same.err << same.out;
  EXPECT_EQ(last_line(same).at("steps"), last_line(cut).at("steps"));
}

TEST_F(Receipts, OtherInputsAndBrokenReceiptsAreRefused) {
  ASSERT_EQ(run(call("r", {})).status, 0);
  Texts other_rows = again(receipt("r"));
  other_rows[5] = dir_.file("held.jsonl");
  expect_refusal(other_rows, 2,
                 {"another run than that of the receipt", "training rows: 20 rows", "order of"});
  Texts none = again(receipt("r"));
  none.erase(none.begin() + 6, none.begin() + 8);
  expect_refusal(none, 2, {"that run had held-out rows; give --val-file"});
  expect_refusal(again(receipt("r"), {"--lora-init", "x"}), 2, {"had no adapter to start from; leave out"});
  expect_refusal(again(dir_.file("none.json")), 1, {"none.json"});
  const auto broken = [&](const std::string& part, const std::function<void(json&)>& change) {
    expect_refusal(again(changed("r", change)), 3, {"changed.json", part});
  };
  broken("'out' is no setting", [](json& d) { d["settings"]["out"] = "x"; });
  broken("must be from 1 to 256", [](json& d) { d["settings"]["lora-rank"] = "0"; });
  broken("no receipt", [](json& d) { d["settings"]["lora-rank"] = 2; });
  broken("no receipt", [](json& d) { d.erase("facts"); });
  broken("no receipt", [](json& d) { d["type"] = "plan"; });
  broken("no receipt", [](json& d) { d["format"] = 2; });
  broken("no receipt", [](json& d) { d = json::array(); });
  const std::string seed = changed("r", [](json& d) { d["settings"]["seed"] = "5"; });
  expect_refusal(again(seed), 2, {"seed: 42 in the receipt, 5 now"});
}

}  // namespace
}  // namespace tandem
