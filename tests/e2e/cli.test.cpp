// The real binary, as a user or a script calls it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "io/gguf.h"
#include "io/gguf_writer.h"
#include "models/adapter.h"
#include "tests/e2e/process.h"
#include "tests/support/split_gguf.h"

namespace tandem {
namespace {

using nlohmann::json;

std::vector<json> json_lines(const std::string& text) {
  std::vector<json> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(json::parse(line));
  return lines;
}

std::vector<json> of_type(const std::vector<json>& lines, const char* type) {
  std::vector<json> chosen;
  for (const json& line : lines) {
    if (line.at("type") == type) chosen.push_back(line);
  }
  return chosen;
}

// Rows with a pattern that can be learned in a few steps.
std::string rows(int n) {
  std::string text;
  for (int i = 0; i < n; ++i) {
    text += fmt::format("{{\"prompt\": \"say {}\", \"completion\": \"{}\"}}\n", i % 2 ? "yes" : "no",
                        i % 2 ? "aaaa" : "bbbb");
  }
  return text;
}

class Cli : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    for (char** e = environ; *e;) {
      const std::string name(*e, std::strcspn(*e, "="));
      if (name.starts_with("TANDEM_")) {
        unsetenv(name.c_str());
        e = environ;
      } else {
        ++e;
      }
    }
    shared_ = fs::temp_directory_path() / fmt::format("tandem_cli_{}", getpid());
    fs::create_directories(shared_);
    spit(shared_ / "rows.jsonl", rows(24));
    spit(shared_ / "held.jsonl", rows(4));
    const Outcome moe =
        Process(shared_, {"synth",      "qwen3moe",    "--out",     moe_model(),  "--embd",
                          "64",         "--heads",     "2",         "--kv-heads", "1",
                          "--head-dim", "64",          "--experts", "7",          "--experts-used",
                          "3",          "--expert-ff", "32",        "--type",     "q8_0"})
            .wait();
    ASSERT_EQ(moe.status, 0) << moe.err;
    const Outcome dense =
        Process(shared_, {"synth", "qwen3", "--out", dense_model(), "--embd", "64", "--heads", "2",
                          "--head-dim", "48", "--ff", "96", "--type", "f16", "--ctx", "64", "--tied"})
            .wait();
    ASSERT_EQ(dense.status, 0) << dense.err;
  }
  static void TearDownTestSuite() { fs::remove_all(shared_); }

  void SetUp() override {
    here_ = shared_ / testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::create_directories(here_);
  }

  static std::string moe_model() { return shared_ / "moe.gguf"; }
  static std::string dense_model() { return shared_ / "dense.gguf"; }
  static std::string train_rows() { return shared_ / "rows.jsonl"; }
  static std::string held_rows() { return shared_ / "held.jsonl"; }
  // A path in the directory of this test, which nothing else writes to.
  std::string path(const std::string& name) const { return here_ / name; }

  static Outcome run(const Texts& arguments, const std::map<std::string, std::string>& environment = {}) {
    return Process(shared_, arguments, environment).wait();
  }

  Texts train(const Texts& more, const std::string& adapter = "a.gguf") const {
    Texts all{"train",       "-m",      moe_model(), "--train-file", train_rows(), "--adapter-path",
              path(adapter), "--iters", "6",         "-lr",          "1e-2"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  std::map<std::string, std::string> listing() const {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(here_)) {
      files[entry.path().string()] = entry.is_regular_file() ? slurp(entry.path()) : "";
    }
    return files;
  }

  // The call fails with this status and a message that has this part, and leaves every file as it was.
  void expect_refusal(const Texts& arguments, int status, const std::string& part,
                      const std::map<std::string, std::string>& environment = {}) {
    const auto before = listing();
    const Outcome o = run(arguments, environment);
    EXPECT_EQ(o.status, status) << fmt::format("{}", fmt::join(arguments, " ")) << "\n" << o.err;
    EXPECT_NE(o.err.find("tandem: error: "), std::string::npos) << o.err;
    EXPECT_NE(o.err.find(part), std::string::npos) << o.err;
    EXPECT_EQ(o.err.find("step 1/"), std::string::npos) << o.err;
    EXPECT_EQ(listing(), before);
  }

  static fs::path shared_;
  fs::path here_;
};
fs::path Cli::shared_;

TEST_F(Cli, HelpAndVersion) {
  const Outcome version = run({"--version"});
  EXPECT_EQ(version.status, 0);
  EXPECT_TRUE(version.out.starts_with("tandem ")) << version.out;
  EXPECT_NE(run({"--help"}).out.find("generate"), std::string::npos);
  for (const char* command : {"inspect", "synth", "check", "train", "generate"}) {
    const Outcome o = run({command, "--help"});
    EXPECT_EQ(o.status, 0) << o.err;
    EXPECT_NE(o.out.find(fmt::format("usage: tandem {}", command)), std::string::npos) << o.out;
  }
  expect_refusal({}, 2, "no command");
  expect_refusal({"trian"}, 2, "did you mean train?");
}

TEST_F(Cli, InspectTellsWhatCouldBeTrained) {
  const Outcome text = run({"inspect", moe_model()});
  EXPECT_EQ(text.status, 0) << text.err;
  for (const char* part : {"runs here  yes", "blk.1.ffn_down_exps.weight", "qwen3moe.expert_count",
                           "attn_output", "Q8_0", "trained as ffn_down_exps", "frozen"}) {
    EXPECT_NE(text.out.find(part), std::string::npos) << part;
  }
  const json data = json::parse(run({"inspect", moe_model(), "--json"}).out);
  EXPECT_EQ(data.at("runs"), true);
  EXPECT_EQ(data.at("tensors").size(), 27u);
  for (const json& t : data.at("tensors")) {
    const std::string name = t.at("name");
    if (name == "blk.0.attn_q.weight") {
      EXPECT_EQ(t.at("role"), "attn_q");
    } else if (name == "blk.0.ffn_gate_inp.weight" || name == "output_norm.weight") {
      EXPECT_TRUE(t.at("role").is_null()) << name;
    }
    EXPECT_EQ(t.at("unused"), false) << name;
  }
  EXPECT_EQ(data.at("roles").size(), 7u);  // four of attention, three of the experts; not the router
  EXPECT_EQ(data.at("roles")[0].at("role"), "attn_q");
  EXPECT_EQ(data.at("roles")[0].at("numbers_per_rank"), 2 * (64 + 128));
}

TEST_F(Cli, CheckStatesThePlan) {
  const Texts call{"check",     "-m",     moe_model(), "--train-file", train_rows(), "--val-file",
                   held_rows(), "--rank", "2"};
  const Outcome text = run(call);
  EXPECT_EQ(text.status, 0) << text.err;
  for (const char* part : {"24 rows", "mapped", "persistent", "arena", "budget", "blk.0.attn_q.weight",
                           "> aaaa<|im_end|>", ". <|im_start|>user\\nsay yes<|im_end|>", "at least"}) {
    EXPECT_NE(text.out.find(part), std::string::npos) << part << "\n" << text.out;
  }
  Texts as_json = call;
  as_json.push_back("--json");
  const Outcome o = run(as_json);
  const json data = json::parse(o.out);
  EXPECT_EQ(data.at("data").at("rows"), 24);
  EXPECT_EQ(data.at("data").at("trained_tokens"), 24 * 5);  // four letters and the end of the turn
  EXPECT_EQ(data.at("held_out").at("rows"), 4);
  EXPECT_EQ(data.at("total_steps"), 9);  // three epochs of three steps
  EXPECT_EQ(data.at("targets").size(), 8u);
  EXPECT_EQ(data.at("memory").at("fits"), true);
  EXPECT_GT(data.at("memory").at("arena_bytes"), 0);
  EXPECT_EQ(data.at("preview")[0].back().at("text"), "bbbb<|im_end|>");
  EXPECT_EQ(data.at("preview")[0].back().at("trained"), true);
  EXPECT_GT(data.at("estimated_seconds"), 0);
}

TEST_F(Cli, TrainingLearnsAndItsAdapterWorks) {
  const Outcome o =
      run(train({"--val-file", held_rows(), "--iters", "40", "--steps-per-eval", "10", "--json"}, "a.gguf"));
  // --iters is in train() already: a repeated flag is refused.
  EXPECT_EQ(o.status, 2);
  const Outcome trained = run({"train", "-m", moe_model(), "--train-file", train_rows(), "--val-file",
                               held_rows(), "--adapter-path", path("a.gguf"), "--iters", "40", "-lr", "1e-2",
                               "--steps-per-eval", "20", "--json"});
  ASSERT_EQ(trained.status, 0) << trained.err;
  EXPECT_EQ(trained.err, "");  // machines read stdout, nothing is for people
  const std::vector<json> lines = json_lines(trained.out);
  EXPECT_EQ(lines.front().at("type"), "plan");
  EXPECT_EQ(lines.back().at("type"), "done");
  const std::vector<json> steps = of_type(lines, "step");
  ASSERT_EQ(steps.size(), 40u);
  EXPECT_EQ(of_type(lines, "eval").size(), 3u);  // before, after 20, after 40
  EXPECT_LT(steps.back().at("loss").get<double>(), 0.5 * steps.front().at("loss").get<double>());
  EXPECT_TRUE(steps[2].at("seconds_left").is_number());
  EXPECT_GT(steps[5].at("tokens_per_second"), 0);
  const json& done = lines.back();
  EXPECT_LT(done.at("after").at("nll").get<double>(), 0.5 * done.at("before").at("nll").get<double>());
  EXPECT_EQ(done.at("movements").size(), 8u);
  for (const json& m : done.at("movements")) EXPECT_GT(m.at("b_change").get<double>(), 0) << m;
  EXPECT_EQ(listing().size(), 2u);  // the adapter and its receipt, and no temporary file

  const Texts ask{"generate", "-m", moe_model(), "-p",         "say yes", "--chat",
                  "-n",       "8",  "--json",    "--logprobs", "3"};
  const auto answer = [&](const Texts& more) {
    Texts all = ask;
    all.insert(all.end(), more.begin(), more.end());
    const Outcome out = run(all);
    EXPECT_EQ(out.status, 0) << out.err;
    return json::parse(out.out);
  };
  const json tuned = answer({"--lora", path("a.gguf")});
  EXPECT_EQ(tuned.at("text"), "aaaa");
  EXPECT_EQ(tuned.at("stop"), "eos");
  const json base = answer({});
  EXPECT_NE(base.at("text"), "aaaa");
  ASSERT_EQ(base.at("steps")[0].at("top").size(), 3u);
  EXPECT_EQ(base.at("steps")[0].at("top")[0][0], base.at("steps")[0].at("token"));
  // An adapter times zero is the base, also token by token.
  EXPECT_EQ(answer({"--lora-scaled", path("a.gguf") + ":0"}).at("steps"), base.at("steps"));
  EXPECT_EQ(answer({"--lora-scaled", path("a.gguf") + ":1"}).at("steps"), tuned.at("steps"));
}

TEST_F(Cli, GenerateStreamsRepeatsAndStops) {
  const Texts sampled{"generate", "-m",     dense_model(), "-p",     "the", "-n",
                      "20",       "--temp", "1.5",         "--seed", "3"};
  const Outcome a = run(sampled), b = run(sampled);
  EXPECT_EQ(a.status, 0) << a.err;
  EXPECT_EQ(a.out, b.out);
  EXPECT_EQ(a.out.back(), '\n');
  const json full = json::parse(
      run({"generate", "-m", dense_model(), "-p", "the", "-n", "-1", "--temp", "9", "--json"}).out);
  const size_t n = full.at("prompt_tokens").size() + full.at("tokens").size();
  EXPECT_TRUE(full.at("stop") == "eos" || (full.at("stop") == "context" && n == 65))
      << full.at("stop") << " " << n;
  expect_refusal({"generate", "-m", dense_model(), "-p", std::string(200, 'x')}, 2,
                 "the prompt has 200 tokens, the context 64");
  expect_refusal({"generate", "-m", dense_model(), "-p", "x", "-c", "100"}, 2,
                 "beyond the model's context of 64");
  expect_refusal({"generate", "-m", dense_model(), "-p", ""}, 2, "the prompt is empty");
  expect_refusal({"generate", "-m", dense_model(), "-p", "x", "--logprobs", "3"}, 2, "needs --json");
}

TEST_F(Cli, ProgressLinesForPeople) {
  const Outcome o = run(train({"--steps-per-report", "5"}));
  ASSERT_EQ(o.status, 0) << o.err;
  for (const char* part :
       {"step 1/6  loss", "step 2/6", "step 3/6", "step 5/6", "step 6/6", " tok/s", " left", " grad "}) {
    EXPECT_NE(o.err.find(part), std::string::npos) << part << "\n" << o.err;
  }
  EXPECT_EQ(o.err.find("step 4/6"), std::string::npos) << o.err;
  for (const char* part : {"persistent", "moved", "blk.1.attn_output.weight", "read back and compared"}) {
    EXPECT_NE(o.out.find(part), std::string::npos) << part << "\n" << o.out;
  }
  EXPECT_EQ(run(train({"-q"}, "b.gguf")).err, "");
}

TEST_F(Cli, TheAdapterDoesNotDependOnThreads) {
  for (const char* n : {"1", "2", "3"}) {
    const Outcome o = run(train({"-t", n, "--lora-dropout", "0.1"}, std::string(n) + ".gguf"));
    ASSERT_EQ(o.status, 0) << o.err;
  }
  // The name in the file is the file's, so the tensors are compared, not the bytes.
  const auto values = [&](const char* n) {
    const GgufFile file = GgufFile::open(path(std::string(n) + ".gguf"));
    std::string all;
    for (const GgufTensor& t : file.tensors())
      all.append(reinterpret_cast<const char*>(t.data), static_cast<size_t>(t.bytes));
    return all;
  };
  EXPECT_EQ(values("1"), values("2"));
  EXPECT_EQ(values("1"), values("3"));
}

TEST_F(Cli, OptionsComeFromEnvironmentAndConfigToo) {
  spit(path("c.json"), R"({"lora-rank": 3, "seed": 5, "packing": true})");
  const Texts call{"check",    "--train-file", train_rows(), "--json",
                   "--config", path("c.json"), "--seed",     "9"};
  const Outcome o =
      run(call, {{"TANDEM_MODEL", moe_model()}, {"TANDEM_LORA_RANK", "2"}, {"TANDEM_ISA", "base"}});
  ASSERT_EQ(o.status, 0) << o.err;
  const json plan = json::parse(o.out);
  EXPECT_EQ(plan.at("targets")[0].at("rank"), 2);
  EXPECT_EQ(plan.at("seed"), 9);
  EXPECT_EQ(plan.at("precision"), "f32");
  expect_refusal({"inspect", moe_model()}, 2, "TANDEM_ISA takes base|avx2|avx512|avx512_bf16",
                 {{"TANDEM_ISA", "sse9"}});
  spit(path("c.json"), R"({"lora-rnak": 3})");
  expect_refusal(call, 2, "did you mean --lora-rank?");
  spit(path("c.json"), R"({"lora-rank": )");
  expect_refusal(call, 3, "c.json");
}

TEST_F(Cli, ADryRunWritesNothing) {
  const Outcome o = run(train({"--dry-run"}));
  EXPECT_EQ(o.status, 0) << o.err;
  EXPECT_NE(o.out.find("arena"), std::string::npos);
  EXPECT_TRUE(listing().empty());
}

TEST_F(Cli, WrongUsageIsRefused) {
  expect_refusal(train({"--rank", "0"}), 2, "--rank must be from 1 to 256");
  expect_refusal(
      {"train", "-m", moe_model(), "--train-file", train_rows(), "--adapter-path", path("a"), "-lr", "NaN"},
      2, "-lr takes a number");
  expect_refusal(train({"--lora-targets", "attn_z"}), 2, "target 'attn_z' matches no tensor");
  expect_refusal(train({"--lora-targets", "ffn_gate_inp"}), 4, "the router is never trained");
  expect_refusal(train({"--lora-targets", "shared"}), 2, "matches no tensor");
  expect_refusal(train({"--max-seq-length", "100000"}), 2, "beyond the model's context of 512");
  expect_refusal(train({"-ub", "100"}), 2, "multiple of 64");
  expect_refusal(train({"--early-stop", "2"}), 2, "--early-stop needs --val-file");
  expect_refusal(train({"--no-such-flag"}), 2, "unknown flag '--no-such-flag'");
  expect_refusal(train({"--lora-init", path("none"), "--rank", "4"}), 2, "has no effect with --lora-init");
  expect_refusal({"train", "-m", moe_model(), "--train-file", train_rows()}, 2, "needs --adapter-path");
  expect_refusal({"train", "-m", moe_model(), "--train-file", train_rows(), "--adapter-path", path("a.gguf"),
                  "--precision", "int8"},
                 2, "--precision int8 is for generating");
  expect_refusal({"synth", "qwen3", "--out", path("m.gguf"), "--heads", "3"}, 2, "--kv-heads");
  expect_refusal({"synth", "gpt9", "--out", path("m.gguf")}, 4, "architecture 'gpt9' is not built");
  expect_refusal({"synth", "qwen3", "--out", path("m.gguf"), "--type", "q9"}, 2, "is no tensor type");
  expect_refusal({"synth", "qwen3", "--out", path("m.gguf"), "--type", "iq2_xs"}, 4, "cannot be written");
}

TEST_F(Cli, BrokenRowsAreRefusedWithTheirLine) {
  const std::string good = "{\"prompt\": \"a\", \"completion\": \"b\"}\n";
  const auto refused = [&](const std::string& contents, const std::string& part, const Texts& more = {}) {
    spit(path("r.jsonl"), contents);
    Texts call{"train", "-m", moe_model(), "--train-file", path("r.jsonl"), "--adapter-path", path("a.gguf")};
    call.insert(call.end(), more.begin(), more.end());
    expect_refusal(call, 3, part);
  };
  refused(good + "{\"prompt\": \n", "r.jsonl:2");
  refused(good + "\n" + good, "r.jsonl:2");
  refused("", "r.jsonl");
  refused(good + "{\"text\": \"a\"}\n", "r.jsonl:2");
  refused(good + "{\"question\": \"a\"}\n", "r.jsonl:2");
  refused(good + "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}]}\n", "r.jsonl:2");
  refused("{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}]}\n", "r.jsonl:1");  // nothing to train
  refused("{\"prompt\": \"" + std::string(600, 'x') + "\", \"completion\": \"b\"}\n", "--truncate");
  refused("{\"prompt\": \"" + std::string(600, 'x') + "\", \"completion\": \"b\"}\n", "r.jsonl",
          {"--truncate", "drop"});
  expect_refusal({"check", "-m", moe_model(), "--train-file", path("none.jsonl")}, 1, "none.jsonl");
}

TEST_F(Cli, BadModelFilesAreRefused) {
  const std::string good = slurp(moe_model());
  const auto refused = [&](const std::string& contents, int status, const std::string& part) {
    spit(path("m.gguf"), contents);
    expect_refusal({"generate", "-m", path("m.gguf"), "-p", "x"}, status, part);
    expect_refusal(
        {"train", "-m", path("m.gguf"), "--train-file", train_rows(), "--adapter-path", path("a.gguf")},
        status, part);
  };
  expect_refusal({"generate", "-m", path("none.gguf"), "-p", "x"}, 1, "none.gguf");
  expect_refusal({"inspect", here_.string()}, 1, "not a regular file");
  refused("", 3, "m.gguf");
  refused("this is no model, only some text that is long enough to hold a header", 3, "m.gguf");
  for (size_t n : {size_t{3}, size_t{20}, size_t{1000}, good.size() / 2, good.size() - 1})
    refused(good.substr(0, n), 3, "m.gguf");
  std::string hostile = good;
  std::memset(hostile.data() + 8, 0xff, 8);  // the number of tensors
  refused(hostile, 3, "m.gguf");
  std::string retired = good;
  const size_t name = retired.find("token_embd.weight");
  ASSERT_NE(name, std::string::npos);
  retired[name + std::strlen("token_embd.weight") + 4 + 2 * 8] =
      99;  // after n_dims and two dimensions: the type
  refused(retired, 3, "unsupported tensor type 99");
  std::string other = good;
  other.replace(other.find("qwen3moe"), 8, "qwen9moe");  // the value of general.architecture
  refused(other, 4, "architecture 'qwen9moe' is not built");
}

TEST_F(Cli, InspectShowsWhatCannotBeRun) {
  // The same model with a tensor of a type that is known but not decoded.
  const GgufFile good = GgufFile::open(moe_model());
  GgufWriter writer;
  for (const GgufEntry& e : good.entries()) writer.add_value(e.key, e.value);
  const std::vector<std::byte> zeros(1 << 20);
  for (const GgufTensor& t : good.tensors()) {
    const bool swapped = t.name == "token_embd.weight";
    const DType type = swapped ? DType::Q2_0 : t.type;
    const auto bytes = static_cast<size_t>(row_bytes(type, t.ne[0]) * t.ne[1] * t.ne[2]);
    writer.add_tensor(t.name, type, t.ne, swapped ? std::span(zeros).first(bytes) : std::span(t.data, bytes));
  }
  writer.write(path("m.gguf"));
  const Outcome o = run({"inspect", path("m.gguf")});
  EXPECT_EQ(o.status, 0) << o.err;
  EXPECT_NE(o.out.find("runs here  no: tensor token_embd.weight is Q2_0"), std::string::npos) << o.out;
  EXPECT_NE(o.out.find("cannot be decoded here"), std::string::npos) << o.out;
  expect_refusal({"generate", "-m", path("m.gguf"), "-p", "x"}, 4, "token_embd.weight is Q2_0");
}

TEST_F(Cli, SplitModelsAreOneModel) {
  const GgufFile whole = GgufFile::open(moe_model());
  const size_t n = whole.tensors().size();
  const std::string first = write_split(whole, here_, plan_split(whole, "m", {0, 10, n - 10}));
  const std::string second = path("m-00002-of-00003.gguf");

  const Outcome text = run({"inspect", first});
  EXPECT_EQ(text.status, 0) << text.err;
  for (const char* part :
       {"runs here  yes", "shards     3", "m-00001-of-00003.gguf  ", "0 tensors", "10 tensors"})
    EXPECT_NE(text.out.find(part), std::string::npos) << part << "\n" << text.out;
  const json data = json::parse(run({"inspect", first, "--json"}).out);
  EXPECT_EQ(data.at("runs"), true);
  ASSERT_EQ(data.at("shards").size(), 3u);
  EXPECT_EQ(data.at("shards")[1].at("file"), second);
  EXPECT_EQ(data.at("shards")[1].at("tensors"), 10);
  EXPECT_EQ(data.at("tensors").size(), n);
  EXPECT_EQ(data.at("tensors")[10].at("shard"), 2);
  EXPECT_EQ(json::parse(run({"inspect", moe_model(), "--json"}).out).at("shards").size(), 1u);

  const auto answer = [&](const std::string& model) {
    const Outcome o = run({"generate", "-m", model, "-p", "a", "-n", "8", "--temp", "0"});
    EXPECT_EQ(o.status, 0) << o.err;
    return o.out;
  };
  EXPECT_EQ(answer(first), answer(moe_model()));

  expect_refusal({"inspect", second}, 2,
                 "this is shard 2 of 3 of a split model; give the first one, " + first);
  expect_refusal(
      {"train", "-m", first, "--train-file", train_rows(), "--adapter-path", second, "--iters", "1"}, 2,
      "would overwrite an input");
  fs::remove(second);
  expect_refusal({"generate", "-m", first, "-p", "a"}, 1, second + ": cannot be opened");
}

TEST_F(Cli, OutputPlacesAreTriedBeforeTheFirstStep) {
  const auto refused = [&](const std::string& adapter, int status, const std::string& part) {
    expect_refusal(
        {"train", "-m", moe_model(), "--train-file", train_rows(), "--adapter-path", adapter, "--iters", "2"},
        status, part);
  };
  refused(path("no/such/directory/a.gguf"), 1, "no/such/directory");
  refused(here_.string(), 1, here_.string());
  refused("/proc/a.gguf", 1, "/proc");
  refused(train_rows(), 2, "would overwrite an input");
  EXPECT_EQ(slurp(train_rows()), rows(24));
  expect_refusal({"synth", "qwen3", "--out", path("no/m.gguf")}, 1, "no");
}

TEST_F(Cli, ATooSmallBudgetStopsBeforeAnyWeight) {
  expect_refusal(train({"--memory-budget", "1M"}), 5, "the budget is 1.0 MiB");
  expect_refusal(train({"--memory-budget", "1M", "--dry-run"}), 5, "the budget is 1.0 MiB");
  const Texts call{"check", "-m", moe_model(), "--train-file", train_rows(), "--memory-budget", "1M"};
  expect_refusal(call, 5, "the budget is 1.0 MiB");
  EXPECT_NE(run(call).out.find("persistent"), std::string::npos);  // the plan is stated all the same
}

// The plan says what the run will hold: anonymous memory within 10 % of persistent + arena.
TEST_F(Cli, ThePlanIsTheMemory) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers hold memory of their own";
#endif
  ASSERT_EQ(
      run({"synth", "qwen3moe", "--out", path("m.gguf"), "--embd", "512", "--experts", "16", "--ctx", "1024"})
          .status,
      0);
  std::string text;
  for (int i = 0; i < 6; ++i)
    text += fmt::format("{{\"text\": \"{}\"}}\n", std::string(1000, static_cast<char>('a' + i)));
  spit(path("text.jsonl"), text);
  for (const char* window : {"1024", "2048"}) {
    const Outcome o = run({"train", "-m", path("m.gguf"), "--train-file", path("text.jsonl"),
                           "--adapter-path", path("a.gguf"), "--iters", "2", "--max-seq-length", "1024", "-b",
                           window, "--batch-size-seq", "2", "--json"});
    ASSERT_EQ(o.status, 0) << o.err;
    const std::vector<json> lines = json_lines(o.out);
    const json memory = of_type(lines, "plan").at(0).at("memory");
    const double planned =
        memory.at("persistent_bytes").get<double>() + memory.at("arena_bytes").get<double>();
    const double measured = of_type(lines, "step").at(1).at("memory_bytes").get<double>();
    EXPECT_NEAR(measured / planned, 1.0, 0.1)
        << "window " << window << ": planned " << planned << ", measured " << measured;
  }
}

TEST_F(Cli, AdaptersOfAnotherModelAreRefused) {
  ASSERT_EQ(run(train({})).status, 0);
  expect_refusal({"generate", "-m", dense_model(), "-p", "x", "--lora", path("a.gguf")}, 3,
                 "general.architecture");
  expect_refusal({"generate", "-m", moe_model(), "-p", "x", "--lora", moe_model()}, 3, "general.type");
  expect_refusal({"generate", "-m", path("a.gguf"), "-p", "x"}, 3, "not a model");
  expect_refusal({"generate", "-m", moe_model(), "-p", "x", "--lora-scaled", path("a.gguf") + ":lots"}, 2,
                 "FILE:SCALE");
  const Outcome o = run({"inspect", path("a.gguf")});
  EXPECT_EQ(o.status, 0);
  EXPECT_NE(o.out.find("this is an adapter"), std::string::npos) << o.out;
}

TEST_F(Cli, AnInterruptFinishesTheStepAndSaves) {
  for (int which : {SIGINT, SIGTERM}) {
    const std::string adapter = path(fmt::format("{}.gguf", which));
    const Process process(shared_, {"train", "-m", moe_model(), "--train-file", train_rows(),
                                    "--adapter-path", adapter, "--iters", "1000000", "--json"});
    for (int i = 0; i < 20000 && process.out_so_far().find("\"step\"") == std::string::npos; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    process.signal(which);
    const Outcome o = process.wait();
    EXPECT_EQ(o.status, 130) << o.err;
    const std::vector<json> lines = json_lines(o.out);
    EXPECT_EQ(lines.back().at("reason"), "interrupted");
    EXPECT_EQ(lines.back().at("steps"), of_type(lines, "step").size());
    EXPECT_EQ(run({"generate", "-m", moe_model(), "-p", "x", "-n", "2", "--lora", adapter}).status, 0);
    const std::string checkpoint =
        fmt::format("{}.checkpoints/checkpoint-{}.tandem", adapter, lines.back().at("steps").get<int64_t>());
    EXPECT_EQ(lines.back().at("checkpoint"), checkpoint);
    EXPECT_TRUE(fs::exists(checkpoint));
  }
  EXPECT_EQ(listing().size(), 8u);  // of each an adapter, a receipt, a directory, a checkpoint
}

// Adapters whose numbers overflow: at once, or by the first step.
TEST_F(Cli, NonFiniteNumbersStopTheRun) {
  const Model model = Model::open(moe_model());
  const auto write = [&](const std::string& name, float a, float b) {
    AdapterSet set = AdapterSet::create(resolve_targets(model, "attn_v"), 8, 8.f, false, 1);
    for (const AdapterPair& p : set.pairs()) {
      for (int64_t i = 0; i < p.a_shape.elements(); ++i) set.a(p)[i] *= a;
      for (int64_t i = 0; i < p.b_shape.elements(); ++i) set.b(p)[i] = b;
    }
    write_adapter(path(name), set, model, name);
  };
  const auto call = [&](const std::string& init) {
    return Texts{"train",
                 "-m",
                 moe_model(),
                 "--train-file",
                 train_rows(),
                 "--adapter-path",
                 path("out.gguf"),
                 "--lora-init",
                 path(init),
                 "--iters",
                 "4",
                 "--lora-targets",
                 "attn_v",
                 "--lr-scheduler",
                 "constant",
                 "-lr",
                 "10"};
  };
  write("huge", 1e38f, 1e38f);
  expect_refusal(call("huge"), 6, "the loss is");

  write("large", 1e36f, 0.f);
  const Outcome o = run(call("large"));
  EXPECT_EQ(o.status, 6) << o.err << o.out;
  EXPECT_NE(o.err.find("out.gguf.last-good.gguf"), std::string::npos) << o.err;
  EXPECT_FALSE(fs::exists(path("out.gguf")));
  EXPECT_NO_THROW(AdapterSet::load(path("out.gguf.last-good.gguf"), model, 1.f));
}

}  // namespace
}  // namespace tandem
