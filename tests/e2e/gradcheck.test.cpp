// `tandem gradcheck` as a user calls it, on the model that is shipped and on random ones.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "models/adapter.h"
#include "tests/support/tiny_models.h"

namespace tandem {
namespace {

using nlohmann::json;

const std::string kTale = std::string(TANDEM_SOURCE_DIR) + "/demo/tale-moe-Q4_K_M.gguf";
const std::string kRows = std::string(TANDEM_SOURCE_DIR) + "/demo/animals-train.jsonl";

struct Outcome {
  int status = -1;
  std::string out, err;
};

class GradCheckCli : public testing::Test {
 protected:
  Outcome run(const std::string& arguments) const {
    const std::string call = fmt::format("'{}' gradcheck {} >'{}' 2>'{}' </dev/null", TANDEM_BINARY,
                                         arguments, dir_.file("out"), dir_.file("err"));
    const int status = std::system(call.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128, slurp("out"), slurp("err")};
  }
  json run_json(const std::string& arguments, int status = 0) const {
    const Outcome o = run(arguments + " --json");
    EXPECT_EQ(o.status, status) << o.err;
    return json::parse(o.out);
  }
  std::string slurp(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(dir_.file(name)).rdbuf();
    return text.str();
  }
  static json tensor(const json& report, const std::string& name) {
    for (const json& t : report.at("tensors")) {
      if (t.at("name") == name) return t;
    }
    ADD_FAILURE() << name << " was not checked";
    return {};
  }

  TempDir dir_;
};

TEST_F(GradCheckCli, TheShippedModelPasses) {
  const Outcome o = run("-m " + kTale + " --train-file " + kRows + " --samples 1");
  EXPECT_EQ(o.status, 0) << o.err << o.out;
  EXPECT_EQ(o.err.find("error"), std::string::npos) << o.err;
  for (const char* part :
       {"qwen3moe, 2 layers", "16 tensors in A and B of 8 weights, random, rank 8", ", the first 2 rows of ",
        "f32 products", "steps h, h/2, h/4", "blk.0.attn_q.weight.lora_a", "blk.1.attn_output.weight.lora_b",
        "2/2  ok", "16 tensors: 16 passed, 0 failed, 0 unresolved"}) {
    EXPECT_NE(o.out.find(part), std::string::npos) << part << "\n" << o.out;
  }
}

TEST_F(GradCheckCli, NumbersForMachinesDoNotDependOnThreads) {
  const std::string call =
      "-m " + kTale + " --lora-targets attn_v,experts --rank 2 --layers 1 --tokens 40 --samples 1";
  json one = run_json(call + " -t 1"), two = run_json(call + " -t 2");
  EXPECT_EQ(one.at("type"), "gradcheck");
  EXPECT_EQ(one.at("precision"), "f32");
  EXPECT_EQ(one.at("tokens"), 40);
  EXPECT_EQ(one.at("passed"), 8);
  EXPECT_EQ(one.at("failed"), 0);
  EXPECT_EQ(one.at("unresolved"), 0);
  EXPECT_GT(one.at("evaluations"), 8 * 20);
  ASSERT_EQ(one.at("tensors").size(), 8u);
  for (const json& t : one.at("tensors")) {
    EXPECT_EQ(t.at("layer"), 1);
    EXPECT_EQ(t.at("verdict"), "passed") << t;
    EXPECT_GT(t.at("gradient_norm"), 0);
    EXPECT_GT(t.at("noise"), 0);
    EXPECT_GT(t.at("loss_noise"), 0);
    ASSERT_EQ(t.at("directions").size(), 2u);
    EXPECT_EQ(t.at("directions")[0].at("direction"), "random");
    EXPECT_EQ(t.at("directions")[1].at("direction"), "gradient");
    for (const json& d : t.at("directions")) {
      EXPECT_NE(d.at("engine"), 0);
      EXPECT_NE(d.at("engine"), d.at("numeric"));  // two ways to the number, not one
      EXPECT_NEAR(d.at("numeric").get<double>(), d.at("engine").get<double>(),
                  5e-3 * d.at("scale").get<double>());
    }
  }
  for (json* report : {&one, &two}) report->erase("seconds");
  EXPECT_EQ(one, two);
}

// Long windows go through in ranges; the check covers what is carried between them.
TEST_F(GradCheckCli, RandomModelsInRanges) {
  tiny_model(dir_, "qwen3moe", awkward_sizes(DType::Q8_0));
  const json r = run_json("-m " + dir_.file("qwen3moe-Q8_0.gguf") +
                          " --lora-targets all --rank 2 --layers 0,2 --tokens 150 -ub 64 --samples 1");
  ASSERT_EQ(r.at("tensors").size(), 2u * 7 * 2);
  EXPECT_EQ(r.at("passed"), 2 * 7 * 2) << r;
}

// An adapter as training begins with it: B is zero, so A has no gradient, and that is said instead of passed
// over.
TEST_F(GradCheckCli, WhatCannotBeToldIsSaid) {
  const Model model = Model::open(kTale);
  const AdapterSet fresh = AdapterSet::create(resolve_targets(model, "attn_q"), 4, 8.f, false, 1);
  write_adapter(dir_.file("fresh.gguf"), fresh, model, "fresh");
  const std::string call = "-m " + kTale + " --lora " + dir_.file("fresh.gguf") + " --tokens 40 --samples 1";
  const json r = run_json(call);
  EXPECT_EQ(r.at("passed"), 2);
  EXPECT_EQ(r.at("unresolved"), 2);
  const json a = tensor(r, "blk.1.attn_q.weight.lora_a");
  EXPECT_EQ(a.at("verdict"), "unresolved");
  EXPECT_EQ(a.at("gradient_norm"), 0);
  EXPECT_NE(a.at("reason").get<std::string>().find("the loss does not depend on it here"), std::string::npos)
      << a;
  EXPECT_EQ(tensor(r, "blk.1.attn_q.weight.lora_b").at("verdict"), "passed");
  EXPECT_NE(run(call + " --layers 0").out.find("2 tensors: 1 passed, 0 failed, 1 unresolved"),
            std::string::npos);
}

TEST_F(GradCheckCli, CoarseProductsAreAllowed) {
  const json r = run_json("-m " + kTale + " --precision bf16 --tokens 60 --samples 1 --lora-targets attn_v");
  EXPECT_EQ(r.at("precision"), "bf16");
  EXPECT_EQ(r.at("failed"), 0);
  EXPECT_GT(r.at("passed"), 0);
  for (const json& t : r.at("tensors")) EXPECT_GT(t.at("loss_noise"), 1e-3);
}

TEST_F(GradCheckCli, HelpNamesItsFlags) {
  const Outcome o = run("--help");
  EXPECT_EQ(o.status, 0);
  for (const char* flag : {"usage: tandem gradcheck", "--lora PATH", "--lora-targets", "--layers LIST",
                           "--samples N", "--tokens N", "--train-file", "--precision", "--seed", "--json"}) {
    EXPECT_NE(o.out.find(flag), std::string::npos) << flag;
  }
  EXPECT_EQ(o.out.find("--epochs"), std::string::npos);
}

TEST_F(GradCheckCli, Refusals) {
  const auto refused = [&](const std::string& arguments, int status, const char* part) {
    const Outcome o = run("-m " + kTale + " " + arguments);
    EXPECT_EQ(o.status, status) << arguments << o.out;
    EXPECT_NE(o.err.find(part), std::string::npos) << arguments << "\n" << o.err;
    EXPECT_EQ(o.out, "");
  };
  refused("--layers 2", 2, "names layer 2, the model's are 0 to 1");
  refused("--layers 1-0", 2, "runs backwards");
  refused("--layers 0,,1", 2, "takes numbers and ranges");
  refused("--layers -- --samples 1", 2, "takes numbers and ranges");
  refused("--samples 0", 2, "--samples must be from 1");
  refused("-ub 65", 2, "multiple of 64");
  refused("--lora-targets ffn_gate_inp", 4, "the router is never trained");
  refused("--lora no.gguf", 1, "no.gguf");
  refused("--lora a.gguf --lora b.gguf", 2, "checks one adapter");
  refused("--lora a.gguf --rank 4", 2, "have no effect with --lora");
  refused("--epochs 3", 2, "tandem gradcheck has no flag --epochs");
}

}  // namespace
}  // namespace tandem
