// `tandem export`, `import`, `merge`, and adapters of other bases, as a user calls them.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "io/safetensors.h"
#include "models/adapter.h"
#include "tests/support/tiny_models.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const std::string kSource = TANDEM_SOURCE_DIR;
const std::string kTale = kSource + "/demo/tale-moe-Q4_K_M.gguf";
const std::string kAnimals = kSource + "/tests/golden/tale-moe/animals-lora.gguf";

struct Outcome {
  int status = -1;
  std::string out, err;
};

std::string slurp(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

SynthSettings small(DType type, uint64_t seed = 42) {
  SynthSettings s;
  s.n_layer = 2;
  s.n_embd = 64;
  s.n_head = 4;
  s.n_head_kv = 2;
  s.d_head = 32;
  s.n_ff = 96;
  s.n_expert = 5;
  s.n_ff_exp = 32;
  s.type = type;
  s.seed = seed;
  return s;
}

class Adapters : public testing::Test {
 protected:
  Outcome shell(const std::string& call) const {
    const int status = std::system(
        fmt::format("{} >'{}' 2>'{}' </dev/null", call, log_.file("out"), log_.file("err")).c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128, slurp(log_.file("out")), slurp(log_.file("err"))};
  }
  Outcome run(const std::string& arguments) const {
    return shell(fmt::format("'{}' {}", TANDEM_BINARY, arguments));
  }
  // The last line of its output.
  json run_json(const std::string& arguments) const {
    const Outcome o = run(arguments + " --json");
    EXPECT_EQ(o.status, 0) << o.err;
    if (o.status != 0) return {};
    const size_t last = o.out.rfind('\n', o.out.size() - 2);
    return json::parse(last == std::string::npos ? o.out : o.out.substr(last + 1));
  }
  // It fails so, and leaves what was there as it was.
  void refused(const std::string& arguments, int status, const std::string& part) const {
    const auto listing = [&] {
      std::map<std::string, std::string> files;
      for (const auto& e : fs::recursive_directory_iterator(dir_.path()))
        files[e.path()] = e.is_regular_file() ? slurp(e.path()) : "";
      return files;
    };
    const auto before = listing();
    const Outcome o = run(arguments);
    EXPECT_EQ(o.status, status) << arguments << "\n" << o.err;
    EXPECT_NE(o.err.find(part), std::string::npos) << arguments << "\n" << o.err;
    EXPECT_EQ(listing(), before) << arguments;
  }
  std::string at(const std::string& name) const { return dir_.file(name); }
  // A model and a random adapter of it, with A and B.
  Model model(const std::string& name, const char* arch, const SynthSettings& s) const {
    ThreadPool pool(1);
    write_synthetic(find_arch(arch), s, pool, at(name));
    return Model::open(at(name));
  }
  std::string rows() const {
    std::ofstream out(at("rows.jsonl"));
    for (int i = 0; i < 8; ++i)
      out << R"({"prompt": "say )" << i << R"(", "completion": "aaaa"})"
          << "\n";
    return at("rows.jsonl");
  }

  TempDir dir_, log_;
};

TEST_F(Adapters, RoundTripsThroughPeft) {
  for (const char* arch : {"qwen3", "qwen3moe"}) {
    const Model m = model("m.gguf", arch, small(DType::F16));
    write_adapter(at("a.gguf"), random_adapter(m, "all", 3, 1), m, "a");
    for (const char* experts : {"modules", "fused"}) {
      const Outcome o = run(fmt::format("export -m {} --lora {} --export peft --peft-experts {} --out {}",
                                        at("m.gguf"), at("a.gguf"), experts, at("p")));
      ASSERT_EQ(o.status, 0) << o.err;
      EXPECT_NE(o.out.find("read back"), std::string::npos) << o.out;
      fs::create_directories(at("b"));
      const json imported =
          run_json(fmt::format("import {} -m {} --out {}", at("p"), at("m.gguf"), at("b/a.gguf")));
      EXPECT_EQ(imported.at("base_hash"), m.base_hash());
      EXPECT_EQ(slurp(at("b/a.gguf")), slurp(at("a.gguf"))) << arch << " " << experts;
      // Either form has the same effect, to the last bit.
      const std::string call = fmt::format("generate -m {} -p hello -n 4 --logprobs 5 --lora ", at("m.gguf"));
      json one = run_json(call + at("a.gguf")), two = run_json(call + at("p"));
      EXPECT_EQ(one.at("steps"), two.at("steps"));
      EXPECT_NE(one.at("steps"),
                run_json(fmt::format("generate -m {} -p hello -n 4 --logprobs 5", at("m.gguf"))).at("steps"));
    }
    // GGUF to GGUF, which keeps numbers and alpha.
    ASSERT_EQ(run(fmt::format("export -m {} --lora {} --export gguf --out {}", at("m.gguf"), at("p"),
                              at("b/a.gguf")))
                  .status,
              0);
    EXPECT_EQ(slurp(at("b/a.gguf")), slurp(at("a.gguf")));
  }
}

// An adapter of other hands, on the shipped model: no base hash, so no word about it.
TEST_F(Adapters, AForeignAdapterKeepsItsEffect) {
  const Outcome o = run(
      fmt::format("export -m {} --lora {} --export peft --out {} --strict-base", kTale, kAnimals, at("p")));
  ASSERT_EQ(o.status, 0) << o.err;
  EXPECT_EQ(o.err.find("warning"), std::string::npos) << o.err;
  const std::string call = fmt::format(
      "generate -m {} --chat -p 'Which animal? The hen laid an egg.' -n 6 --logprobs 5 --lora ", kTale);
  EXPECT_EQ(run_json(call + kAnimals).at("steps"), run_json(call + at("p")).at("steps"));
}

TEST_F(Adapters, TrainingExportsBothAndGoesOnFromPeft) {
  model("m.gguf", "qwen3moe", small(DType::Q8_0));
  const std::string train =
      fmt::format("train -m {} --train-file {} --iters 2 -lr 1e-2 ", at("m.gguf"), rows());
  const json done =
      run_json(train + "--export gguf,peft --lora-targets attention,experts --adapter-path " + at("a.gguf"));
  EXPECT_EQ(done.at("peft"), at("a.peft"));
  ASSERT_EQ(run(fmt::format("import {} -m {} --out {}", at("a.peft"), at("m.gguf"), at("b.gguf"))).status, 0);
  const Model m = Model::open(at("m.gguf"));
  const AdapterSet a = AdapterSet::load(at("a.gguf"), m, 1.f), b = AdapterSet::load(at("b.gguf"), m, 1.f);
  EXPECT_TRUE(std::equal(a.values().begin(), a.values().end(), b.values().begin(), b.values().end()));
  EXPECT_EQ(a.base_hash(), m.base_hash());

  const json on = run_json(train + fmt::format("--strict-base --export peft --lora-init {} --adapter-path {}",
                                               at("a.peft"), at("c.gguf")));
  EXPECT_EQ(on.at("adapter"), nullptr);
  EXPECT_FALSE(fs::exists(at("c.gguf")));
  EXPECT_TRUE(fs::exists(at("c.peft/adapter_model.safetensors")));
  refused(train + "--export gguf,xml --adapter-path " + at("d.gguf"), 2,
          "--export takes gguf, peft or gguf,peft");
  fs::create_directory(at("e.peft"));
  std::ofstream(at("e.peft/notes")) << "mine";
  refused(train + "--export peft --adapter-path " + at("e.gguf"), 2, "holds notes");
}

TEST_F(Adapters, OtherWeightsWarnOrAreRefused) {
  const Model m = model("m.gguf", "qwen3", small(DType::F16));
  const Model other = model("o.gguf", "qwen3", small(DType::F16, 7));
  ASSERT_NE(m.base_hash(), other.base_hash());
  write_adapter(at("a.gguf"), random_adapter(m, "attention", 2, 1), m, "a");
  ASSERT_EQ(
      run(fmt::format("export -m {} --lora {} --export peft --out {}", at("m.gguf"), at("a.gguf"), at("p")))
          .status,
      0);
  rows();
  for (const std::string& adapter : {at("a.gguf"), at("p")}) {
    const std::string with = fmt::format(" -m {} ", at("o.gguf"));
    for (const std::string& call :
         {"generate -p x -n 1 --lora " + adapter,
          "gradcheck --samples 1 --tokens 16 --layers 0 --lora " + adapter,
          "train --iters 1 --train-file " + at("rows.jsonl") + " --adapter-path " + log_.file("t.gguf") +
              " --lora-init " + adapter,
          "export --export gguf --out " + log_.file("e.gguf") + " --lora " + adapter,
          "import " + adapter + " --out " + log_.file("i.gguf"),
          "merge --out " + log_.file("g.gguf") + " --lora " + adapter}) {
      refused(call + with + "--strict-base", 3, "was made for other weights");
      const Outcome o = run(call + with);
      EXPECT_EQ(o.status, 0) << call << o.err;
      EXPECT_NE(o.err.find("warning: " + adapter + ": this adapter was made for other weights"),
                std::string::npos)
          << o.err;
      EXPECT_EQ(run(call + fmt::format(" -m {}", at("m.gguf"))).err.find("other weights"), std::string::npos);
    }
  }
  // What is trained on from it is for the new base, what is only rewritten stays what it was.
  EXPECT_EQ(AdapterSet::load(log_.file("t.gguf"), m, 1.f).base_hash(), m.base_hash());
  ASSERT_EQ(run(fmt::format("export -m {} --export gguf --lora {} --out {}", at("o.gguf"), at("a.gguf"),
                            at("e.gguf")))
                .status,
            0);
  EXPECT_EQ(AdapterSet::load(at("e.gguf"), m, 1.f).base_hash(), m.base_hash());
}

TEST_F(Adapters, MergedModelsRunAlone) {
  const Model m = model("m.gguf", "qwen3moe", small(DType::F32));
  write_adapter(at("a.gguf"), random_adapter(m, "all", 2, 1), m, "a");
  const std::string merge =
      fmt::format("merge -m {} --lora {} --out {} ", at("m.gguf"), at("a.gguf"), at("w.gguf"));
  const json data = run_json(merge + "--train-file " + rows());
  EXPECT_EQ(data.at("merged").size(), 2u * 7);
  EXPECT_NE(data.at("loss_text").get<std::string>().find("the first 8 rows of"), std::string::npos);
  EXPECT_NEAR(data.at("loss_unmerged").get<double>(), data.at("loss_merged").get<double>(), 1e-4);
  const std::string call = "generate --precision f32 -p hello -n 4 --logprobs 5 -m ";
  const json apart = run_json(call + at("m.gguf") + " --lora " + at("a.gguf")),
             merged = run_json(call + at("w.gguf"));
  EXPECT_EQ(apart.at("tokens"), merged.at("tokens"));
  for (size_t i = 0; i < merged.at("steps").size(); ++i) {
    const json &one = apart.at("steps")[i].at("top"), &two = merged.at("steps")[i].at("top");
    for (size_t j = 0; j < two.size(); ++j)
      EXPECT_NEAR(one[j][1].get<double>(), two[j][1].get<double>(), 1e-3);
  }
  EXPECT_EQ(slurp(at("m.gguf")).substr(0, 4), "GGUF");

  refused(fmt::format("merge -m {0} --lora {1} --out {0}", at("m.gguf"), at("a.gguf")), 2,
          "would overwrite an input");
  refused(fmt::format("merge -m {0} --lora {1} --out {1}", at("m.gguf"), at("a.gguf")), 2,
          "would overwrite an input");
  refused(fmt::format("merge -m {0} --out {1}", at("m.gguf"), at("x.gguf")), 2, "needs --lora");
  refused(fmt::format("merge -m {0} --lora {1} --out {2} --outtype q3_k", at("m.gguf"), at("a.gguf"),
                      at("x.gguf")),
          4, "give all merged tensors another with --outtype");
  refused(fmt::format("merge -m {0} --lora {1} --out {2} --outtype lots", at("m.gguf"), at("a.gguf"),
                      at("x.gguf")),
          2, "is no tensor type");
}

TEST_F(Adapters, MergingIntoFewBitsTellsWhatItCost) {
  const Outcome o = run(fmt::format("merge -m {} --lora {} --out {} --train-file {}/demo/animals-test.jsonl",
                                    kTale, kAnimals, at("w.gguf"), kSource));
  EXPECT_EQ(o.status, 0) << o.err;
  EXPECT_NE(o.err.find("part of what was learned is lost: loss "), std::string::npos) << o.err;
  EXPECT_NE(o.out.find("with the adapter beside the base"), std::string::npos) << o.out;
  const Model base = Model::open(kTale), merged = Model::open(at("w.gguf"));
  for (const Weight* w : base.adaptable()) EXPECT_EQ(merged.find(w->name)->type, w->type);
  const Outcome wide =
      run(fmt::format("merge -m {} --lora {} --out {} --outtype f16", kTale, kAnimals, at("w16.gguf")));
  EXPECT_EQ(wide.status, 0) << wide.err;
  EXPECT_EQ(wide.err.find("lost"), std::string::npos) << wide.err;
  EXPECT_NE(wide.out.find("that the adapted model draws itself"), std::string::npos) << wide.out;
}

TEST_F(Adapters, BadCallsAndBadDirectories) {
  const Model m = model("m.gguf", "qwen3", small(DType::F16));
  write_adapter(at("a.gguf"), random_adapter(m, "attn_q", 2, 1), m, "a");
  const std::string with = fmt::format(" -m {} ", at("m.gguf")), lora = "--lora " + at("a.gguf") + " ";
  refused("export" + with + "--export peft --out " + at("p"), 2, "--lora is given 0 times");
  refused("export" + with + lora + lora + "--export peft --out " + at("p"), 2, "--lora is given 2 times");
  refused("export" + with + lora + "--out " + at("p"), 2, "needs --export peft|gguf");
  refused("export" + with + lora + "--export peft --out " + at("m.gguf"), 2, "would overwrite an input");
  refused("export" + with + lora + "--export gguf --out " + at("a.gguf"), 2, "would overwrite an input");
  refused("export" + with + lora + "--export peft --out " + at("no/p"), 1, "temporary directory");
  refused("import" + with + "--out " + at("b.gguf"), 2, "needs a ADAPTER");
  refused("import " + at("none") + with + "--out " + at("b.gguf"), 1, "none");
  fs::create_directory(at("p"));
  std::ofstream(at("p/adapter_config.json")) << R"({"peft_type": "LORA", "use_dora": true, "bias": "all"})";
  std::ofstream(at("p/adapter_model.bin")) << "PK";
  refused("import " + at("p") + with + "--out " + at("b.gguf"), 4, "is a pickle");
  refused("export" + with + lora + "--export peft --out " + at("p"), 2, "holds adapter_model.bin");
  fs::remove(at("p/adapter_model.bin"));
  SafetensorsWriter none;
  none.write(at("p/adapter_model.safetensors"));
  refused("import " + at("p") + with + "--out " + at("b.gguf"), 3, "use_dora is true");
  refused("import " + at("p") + with + "--out " + at("b.gguf"), 3, "bias is \"all\"");
  // The input directory is not replaced by its own import.
  refused("import " + at("p/adapter_config.json") + with + "--out " + at("p"), 2, "would overwrite an input");
  // A whole adapter, for another architecture.
  model("moe.gguf", "qwen3moe", small(DType::F16));
  ASSERT_EQ(run("export" + with + lora + "--export peft --out " + at("q")).status, 0);
  ASSERT_EQ(run(fmt::format("import {} -m {} --out {}", at("q"), at("moe.gguf"), log_.file("x.gguf"))).status,
            0);
  write_adapter(at("ffn.gguf"), random_adapter(m, "dense", 2, 1), m, "a");
  ASSERT_EQ(run("export" + with + "--lora " + at("ffn.gguf") + " --export peft --out " + at("f")).status, 0);
  refused(fmt::format("import {} -m {} --out {}", at("f"), at("moe.gguf"), at("b.gguf")), 3,
          "model.layers.0.mlp.gate_proj is no module of a qwen3moe model");
}

// A reader that shares nothing with tandem sees the same weights and computes the same logits.
TEST_F(Adapters, AnIndependentReaderAgrees) {
  std::string python;
  for (const char* candidate : {"python3", "/usr/bin/python3"}) {
    if (python.empty() && shell(fmt::format("{} -c 'import numpy'", candidate)).status == 0)
      python = candidate;
  }
  if (python.empty()) {
    fmt::print(stderr,
               "tests/interop/peft_reader.py: not run: python3-numpy is not installed (./dev setup all)\n");
    GTEST_SKIP() << "python3-numpy is not installed";
  }
  for (const char* arch : {"qwen3", "qwen3moe"}) {
    SynthSettings s = small(DType::F32);
    s.n_head_kv = 2;
    const Model m = model("m.gguf", arch, s);
    write_adapter(at("a.gguf"), random_adapter(m, "all", 3, 1), m, "a");
    const std::string with = fmt::format(" -m {} --lora {} ", at("m.gguf"), at("a.gguf"));
    ASSERT_EQ(run("merge" + with + "--out " + at("w.gguf")).status, 0);
    for (const char* experts : {"modules", "fused"}) {
      ASSERT_EQ(
          run("export" + with + fmt::format("--export peft --peft-experts {} --out {}", experts, at("p")))
              .status,
          0);
      const Outcome generated =
          run(fmt::format("generate --precision f32 -m {} --lora {} -p 'the thing' -n 6 --json --logprobs {}",
                          at("m.gguf"), at("p"), m.hparams().n_vocab));
      ASSERT_EQ(generated.status, 0) << generated.err;
      std::ofstream(at("out.json")) << generated.out;
      const Outcome o =
          shell(fmt::format("{} {}/tests/interop/peft_reader.py {} {} --merged {} --generated {}", python,
                            kSource, at("m.gguf"), at("p"), at("w.gguf"), at("out.json")));
      EXPECT_EQ(o.status, 0) << arch << " " << experts << "\n" << o.out << o.err;
      EXPECT_NE(o.out.find("agree within"), std::string::npos) << o.out;
      RecordProperty(fmt::format("{}_{}", arch, experts), o.out);
    }
    // And it notices: the logits of the base are not those of the adapter.
    const Outcome base =
        run(fmt::format("generate --precision f32 -m {} -p 'the thing' -n 6 --json --logprobs {}",
                        at("m.gguf"), m.hparams().n_vocab));
    std::ofstream(at("out.json")) << base.out;
    EXPECT_EQ(shell(fmt::format("{} {}/tests/interop/peft_reader.py {} {} --generated {}", python, kSource,
                                at("m.gguf"), at("p"), at("out.json")))
                  .status,
              1);
    EXPECT_EQ(shell(fmt::format("{} {}/tests/interop/peft_reader.py {} {} --merged {}", python, kSource,
                                at("m.gguf"), at("p"), at("m.gguf")))
                  .status,
              1);
  }
}

}  // namespace
}  // namespace tandem
