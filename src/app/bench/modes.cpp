#include "app/bench/modes.h"

#include "app/bench/shapes.h"
#include "app/engine.h"
#include "base/error.h"

namespace tandem {

BenchMode parse_bench_mode(const std::string& name) {
  if (name.empty() || name == "ops") return BenchMode::Ops;
  if (name == "train") return BenchMode::Train;
  if (name == "prefill") return BenchMode::Prefill;
  if (name == "decode") return BenchMode::Decode;
  fail(Code::Usage, "tandem bench takes one of ops, train, prefill, decode, not '{}'", name);
}

void check_bench_flags(const Options& o, BenchMode mode) {
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

Precision bench_precision(const Options& o, IsaLevel level) {
  const BenchMode mode = parse_bench_mode(o.operand());
  if (const std::optional<Precision> given = given_precision(o, mode == BenchMode::Train)) return *given;
  if (mode == BenchMode::Prefill || mode == BenchMode::Decode) return Precision::Int8;
  return level == IsaLevel::avx512_bf16 ? Precision::BF16 : Precision::F32;
}

DType bench_type(const Options& o, const NamedShape& shape) {
  if (!o.given(Opt::Type)) return shape.type;
  const std::optional<DType> type = dtype_of_name(o.text(Opt::Type));
  if (!type)
    fail(Code::Usage, "--type '{}' is no tensor type; use one such as q4_k, q8_0 or f16", o.text(Opt::Type));
  return *type;
}

}  // namespace tandem
