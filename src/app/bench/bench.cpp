// tandem bench: how fast ops and models run, beside what the machine's loops reach in the same rounds.
#include "app/bench/modes.h"
#include "app/bench/shapes.h"
#include "app/commands.h"
#include "app/engine.h"
#include "base/error.h"
#include "base/log.h"

namespace tandem {
namespace {

enum class BenchMode { Ops, Train, Prefill, Decode };

BenchMode parse_mode(const std::string& name) {
  if (name.empty() || name == "ops") return BenchMode::Ops;
  if (name == "train") return BenchMode::Train;
  if (name == "prefill") return BenchMode::Prefill;
  if (name == "decode") return BenchMode::Decode;
  fail(Code::Usage, "tandem bench takes one of ops, train, prefill, decode, not '{}'", name);
}

// A flag that would have no effect is a misunderstanding.
void check_flags(const Options& o, BenchMode mode) {
  struct Rule {
    Opt option;
    const char* name;
    bool takes;
  };
  const bool ops = mode == BenchMode::Ops, shape = o.given(Opt::BenchSynth), file = o.given(Opt::Model),
             train = mode == BenchMode::Train, decode = mode == BenchMode::Decode;
  const Rule rules[] = {
      {Opt::OpName, "--op", ops},
      {Opt::OpCaseText, "--case", ops},
      {Opt::BenchBy, "--by", !ops},
      {Opt::LoraRank, "--lora-rank", train},
      {Opt::LoraTargets, "--lora-targets", train},
      {Opt::BenchGen, "--n-gen", decode},
      {Opt::BenchDepth, "--n-depth", decode || mode == BenchMode::Prefill},
      {Opt::BenchPrompt, "--n-prompt", !decode && (shape || file)},
      {Opt::SegmentTokens, "--ubatch-size", !ops},
      {Opt::Precision, "--precision", shape || file},
      {Opt::Type, "--type", shape},
      {Opt::Layers, "--layers", shape && !ops},
      {Opt::Vocab, "--vocab", shape && !ops},
      {Opt::Compare, "--compare", !o.on(Opt::Why)},
  };
  for (const Rule& r : rules) {
    if (o.given(r.option) && !r.takes)
      fail(Code::Usage, "{} has no effect in this call of tandem bench{}", r.name,
           r.option == Opt::Type || r.option == Opt::Precision ? ": it goes with --synth" : "");
  }
  if (!ops && shape == file) {
    fail(Code::Usage, "tandem bench {} needs {}: -m FILE or --synth SHAPE", o.operand(),
         shape ? "one of these, not both" : "a model");
  }
}

}  // namespace

Precision bench_precision(const Options& o, IsaLevel level) {
  const std::string& name = o.text(Opt::Precision);
  if (!name.empty()) return name == "bf16" ? Precision::BF16 : Precision::F32;
  const BenchMode mode = parse_mode(o.operand());
  const bool training = mode == BenchMode::Ops || mode == BenchMode::Train;
  return training && level == IsaLevel::avx512_bf16 ? Precision::BF16 : Precision::F32;
}

DType bench_type(const Options& o, const NamedShape& shape) {
  if (!o.given(Opt::Type)) return shape.type;
  const std::optional<DType> type = dtype_of_name(o.text(Opt::Type));
  if (!type)
    fail(Code::Usage, "--type '{}' is no tensor type; use one such as q4_k, q8_0 or f16", o.text(Opt::Type));
  return *type;
}

int bench_command(const Options& o) {
  const BenchMode mode = parse_mode(o.operand());
  check_flags(o, mode);
  const std::vector<int> threads = parse_thread_counts(o.text(Opt::BenchThreads));
  std::optional<EarlierRun> earlier;
  if (o.given(Opt::Compare)) earlier = EarlierRun::read(o.text(Opt::Compare));
#if defined(TANDEM_DEBUG)
  log_warn("this build has checks inside; figures to be quoted come from the release build");
#endif
  const Machines machines(threads, chosen_isa(o));
  Reporter reporter(o.on(Opt::Json), std::move(earlier));
  if (mode == BenchMode::Ops) {
    bench_ops(o, machines, reporter);
  } else {
    bench_model(o, machines, reporter);
  }
  if (!o.on(Opt::Why)) reporter.finish(machines);
  return 0;
}

}  // namespace tandem
