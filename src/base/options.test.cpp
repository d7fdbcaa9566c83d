#include "base/options.h"

#include <gtest/gtest.h>

#include <map>

#include "base/error.h"

namespace tandem {
namespace {

using Texts = std::vector<std::string>;

struct Given {
  std::map<std::string, std::string> environment{};
  ConfigEntries config{};
};

Options parse(Command command, const Texts& arguments, const Given& given = {}) {
  const OptionSources sources{.environment =
                                  [&](const char* name) {
                                    const auto it = given.environment.find(name);
                                    return it == given.environment.end() ? nullptr : it->second.c_str();
                                  },
                              .read_config = [&](const std::string&) { return given.config; }};
  return parse_options(command, arguments, sources);
}

// The message of the Usage error that these arguments earn.
std::string refusal(Command command, const Texts& arguments, const Given& given = {}) {
  try {
    parse(command, arguments, given);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::Usage);
    return e.what();
  }
  ADD_FAILURE() << "accepted";
  return "";
}

Texts train(const Texts& more = {}) {
  Texts arguments{"-m", "a.gguf", "--train-file", "rows"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

#define EXPECT_SAYS(message, part) EXPECT_NE((message).find(part), std::string::npos) << (message)

TEST(Options, DefaultsAreThoseOfTheSpecification) {
  const Options o = parse(Command::Train, train());
  EXPECT_EQ(o.integer(Opt::Epochs), 3);
  EXPECT_EQ(o.integer(Opt::BatchRows), 8);
  EXPECT_DOUBLE_EQ(o.number(Opt::LearningRate), 2e-4);
  EXPECT_EQ(o.text(Opt::LrScheduler), "cosine");
  EXPECT_DOUBLE_EQ(o.number(Opt::WarmupRatio), 0.03);
  EXPECT_DOUBLE_EQ(o.number(Opt::WeightDecay), 0);
  EXPECT_DOUBLE_EQ(o.number(Opt::MaxGradNorm), 1);
  EXPECT_EQ(o.integer(Opt::LoraRank), 8);
  EXPECT_EQ(o.text(Opt::LoraTargets), "attention");
  EXPECT_EQ(o.integer(Opt::Seed), 42);
  EXPECT_DOUBLE_EQ(o.number(Opt::AdamBeta2), 0.999);
  EXPECT_DOUBLE_EQ(o.number(Opt::AdamEps), 1e-8);
  EXPECT_FALSE(o.on(Opt::Packing));
  EXPECT_FALSE(o.given(Opt::LoraAlpha));
  EXPECT_EQ(o.text(Opt::AdapterPath), "");
}

TEST(Options, FormsAndAliases) {
  const Options o = parse(Command::Train, train({"--rank=4", "-lr", "4e-3", "-ub", "64", "--packing",
                                                 "--lora-out", "x", "-ngl", "99", "--memory-budget=1.5G"}));
  EXPECT_EQ(o.integer(Opt::LoraRank), 4);
  EXPECT_DOUBLE_EQ(o.number(Opt::LearningRate), 4e-3);
  EXPECT_EQ(o.integer(Opt::SegmentTokens), 64);
  EXPECT_TRUE(o.on(Opt::Packing));
  EXPECT_EQ(o.text(Opt::AdapterPath), "x");
  EXPECT_EQ(o.integer(Opt::GpuLayers), 99);
  EXPECT_EQ(o.bytes(Opt::MemoryBudget), size_t{3} << 29);
  EXPECT_EQ(parse(Command::Inspect, {"m.gguf"}).operand(), "m.gguf");
}

TEST(Options, ValuesMayBeginWithADash) {
  const Options o = parse(Command::Generate, {"-m", "a", "-p", "- one\n- two", "-n", "-1"});
  EXPECT_EQ(o.text(Opt::Prompt), "- one\n- two");
  EXPECT_EQ(o.integer(Opt::NPredict), -1);
  EXPECT_EQ(parse(Command::Generate, {"-m", "a", "--prompt="}).text(Opt::Prompt), "");
  EXPECT_SAYS(refusal(Command::Generate, {"-m", "a", "-p", "--temp", "1"}), "-p needs a value");
  EXPECT_SAYS(refusal(Command::Generate, {"-m", "a", "-p"}), "-p needs a value");
}

TEST(Options, ListsRepeatOthersDoNot) {
  const Options o = parse(Command::Generate, {"-m", "a", "-p", "x", "--lora", "1", "--lora", "2"});
  EXPECT_EQ(o.list(Opt::Lora), (Texts{"1", "2"}));
  EXPECT_SAYS(refusal(Command::Train, train({"--lora-rank", "4", "--rank", "8"})), "--rank is given twice");
  EXPECT_SAYS(refusal(Command::Train, train({"--packing", "--no-packing"})), "given twice");
}

TEST(Options, UnknownNamesAreAnsweredWithTheNearest) {
  EXPECT_SAYS(refusal(Command::Train, train({"--lora-rnak", "4"})), "did you mean --lora-rank?");
  EXPECT_SAYS(refusal(Command::Train, train({"--epoch", "4"})), "did you mean --epochs?");
  EXPECT_SAYS(refusal(Command::Train, train({"--zzzzzzzz"})), "unknown flag '--zzzzzzzz'");
  EXPECT_SAYS(refusal(Command::Generate, {"--epochs", "4"}), "tandem generate has no flag --epochs");
  EXPECT_SAYS(refusal(Command::Train, train({"--lora"})), "has no flag --lora");
  EXPECT_THROW(parse_command("trian"), Error);
  EXPECT_EQ(parse_command("train"), Command::Train);
}

TEST(Options, NumbersAreCheckedToTheirLastCharacter) {
  for (const char* bad : {"0", "257", "-1", "8x", "", "8.0", "1e1", " 8", "99999999999999999999"}) {
    EXPECT_SAYS(refusal(Command::Train, train({"--lora-rank", bad})), "--lora-rank");
  }
  for (const char* bad : {"NaN", "nan", "inf", "-inf", "0", "-1e-4", "1e-3,", "", "1e999", "0x1p-4"}) {
    EXPECT_SAYS(refusal(Command::Train, train({std::string("-lr=") + bad})), "-lr");
  }
  for (const char* bad : {"lots", "-1G", "0", "1Q"}) {
    EXPECT_SAYS(refusal(Command::Train, train({"--memory-budget", bad})), "--memory-budget");
  }
  EXPECT_SAYS(refusal(Command::Train, train({"--precision", "f16"})), "f32|bf16|int8");
  EXPECT_SAYS(refusal(Command::Train, train({"--packing=maybe"})), "takes no value");
}

TEST(Options, TheStrongerSourceWins) {
  const Given given{.environment = {{"TANDEM_LORA_RANK", "5"}, {"TANDEM_SEED", "6"}, {"TANDEM_EPOCHS", ""}},
                    .config = {{"lora_rank", "2"}, {"seed", "3"}, {"epochs", "7"}, {"packing", "true"}}};
  const Options o = parse(Command::Train, train({"--config", "c.json", "--seed", "1"}), given);
  EXPECT_EQ(o.integer(Opt::Seed), 1);
  EXPECT_EQ(o.integer(Opt::LoraRank), 5);
  EXPECT_EQ(o.integer(Opt::Epochs), 7);
  EXPECT_TRUE(o.on(Opt::Packing));
}

TEST(Options, EverySourceIsChecked) {
  const Texts config = train({"--config", "c.json"});
  EXPECT_SAYS(refusal(Command::Train, train(), {.environment = {{"TANDEM_LORA_RANK", "many"}}}),
              "TANDEM_LORA_RANK");
  EXPECT_SAYS(refusal(Command::Train, config, {.config = {{"lora-rnk", "2"}}}), "did you mean --lora-rank?");
  EXPECT_SAYS(refusal(Command::Train, config, {.config = {{"lora-rank", "x"}}}), "c.json: lora-rank");
  EXPECT_SAYS(refusal(Command::Train, config, {.config = {{"no-packing", "true"}}}), "is no option");
  EXPECT_SAYS(refusal(Command::Train, config, {.config = {{"seed", "1"}, {"seed", "1"}}}), "given twice");
  // A variable that the command has no use for is not its business.
  EXPECT_NO_THROW(parse(Command::Inspect, {"f"}, {.environment = {{"TANDEM_LORA_RANK", "many"}}}));
}

TEST(Options, ExclusiveOnesAndRequiredOnes) {
  EXPECT_SAYS(refusal(Command::Train, train({"--epochs", "2", "--iters", "9"})), "exclude each other");
  const Options o = parse(Command::Train, train({"--iters", "9"}), {.environment = {{"TANDEM_EPOCHS", "2"}}});
  EXPECT_EQ(o.integer(Opt::Iters), 9);
  EXPECT_FALSE(o.given(Opt::Epochs));
  EXPECT_SAYS(refusal(Command::Train, {"-m", "a"}), "needs --train-file");
  EXPECT_SAYS(refusal(Command::Inspect, {}), "needs a FILE");
  EXPECT_SAYS(refusal(Command::Inspect, {"a", "b"}), "not both 'a' and 'b'");
  EXPECT_SAYS(refusal(Command::Train, train({"stray"})), "flags only");
  EXPECT_TRUE(parse(Command::Train, {"--help"}).on(Opt::Help));
}

TEST(Options, HelpNamesEveryFlagOfACommand) {
  EXPECT_SAYS(help_text(), "generate");
  const std::string help = help_text(Command::Train);
  EXPECT_SAYS(help, "--lora-rank, --rank N");
  EXPECT_SAYS(help, "(default 2e-4)");
  EXPECT_SAYS(help, "(required)");
  EXPECT_EQ(help.find("--top-k"), std::string::npos);
}

// Commands may use one name for different things, each with its own kind.
TEST(Options, ANameMeansWhatItsCommandSays) {
  const Options check = parse(Command::Gradcheck, {"-m", "a", "--layers", "0,2-3"});
  EXPECT_EQ(check.text(Opt::CheckedLayers), "0,2-3");
  EXPECT_EQ(check.integer(Opt::Layers), 2);  // the default: nobody gave synth's
  EXPECT_EQ(parse(Command::Synth, {"qwen3", "-o", "a", "--layers", "7"}).integer(Opt::Layers), 7);
  EXPECT_SAYS(refusal(Command::Synth, {"qwen3", "-o", "a", "--layers", "0,2"}), "takes a whole number");
  EXPECT_SAYS(refusal(Command::Train, train({"--layers", "1"})), "tandem train has no flag --layers");
  const Given variable{.environment = {{"TANDEM_LAYERS", "1-2"}}}, file{.config = {{"layers", "1"}}};
  EXPECT_EQ(parse(Command::Gradcheck, {"-m", "a"}, variable).text(Opt::CheckedLayers), "1-2");
  EXPECT_EQ(parse(Command::Gradcheck, {"-m", "a", "--config", "c"}, file).text(Opt::CheckedLayers), "1");
}

TEST(Options, ValuesAsText) {
  const Options o = parse(Command::Train, train({"-lr", "4e-3", "--packing", "--rank=4"}));
  EXPECT_EQ(o.as_text(Opt::LearningRate), "4e-3");
  EXPECT_EQ(o.as_text(Opt::Packing), "on");
  EXPECT_EQ(o.as_text(Opt::RsLora), "off");
  EXPECT_EQ(o.as_text(Opt::LoraRank), "4");
  EXPECT_EQ(o.as_text(Opt::Seed), "42");
  EXPECT_EQ(o.as_text(Opt::LoraAlpha), "");
  EXPECT_EQ(option_key(Opt::LearningRate), "learning-rate");
  EXPECT_EQ(option_key(Opt::Threads), "threads");
}

TEST(Options, CheckpointsComeFromOnePlace) {
  EXPECT_SAYS(refusal(Command::Train, train({"--resume-from", "c", "--auto-resume"})), "exclude each other");
  EXPECT_SAYS(refusal(Command::Train, train({"--keep-checkpoints", "0"})),
              "--keep-checkpoints must be from 1");
  EXPECT_SAYS(refusal(Command::Check, {"-m", "a", "--train-file", "b", "--auto-resume"}), "has no flag");
}

}  // namespace
}  // namespace tandem
