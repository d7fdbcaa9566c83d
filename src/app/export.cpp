// tandem export and tandem import: adapters between GGUF and PEFT.
#include "train/export.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/adapters.h"
#include "app/commands.h"
#include "app/engine.h"
#include "app/output.h"
#include "base/error.h"
#include "base/file.h"
#include "io/quote.h"

namespace tandem {
namespace {

using nlohmann::json;

// A model, an adapter for it, and what its export is proved with.
int convert(const Options& o, const std::string& from, bool to_peft) {
  const std::string& out = o.text(Opt::Out);
  refuse_overwriting("--out", out, {o.text(Opt::Model), from});
  if (to_peft) {
    check_peft_writable(out);
  } else {
    check_writable(out);
  }
  Engine engine(o);
  const Model model = Model::open(o.text(Opt::Model));
  const AdapterSet set = load_adapter(o, from, model);
  const ExportProof proof{engine.backend, random_tokens(model, static_cast<uint64_t>(o.integer(Opt::Seed)))};
  if (to_peft) {
    const bool fused = o.text(Opt::PeftExpertsAs) == "fused";
    export_peft(set, model, proof, out, fused ? PeftExperts::Fused : PeftExperts::Modules);
  } else {
    export_gguf(set, model, proof, out, std::filesystem::path(out).stem().string());
  }
  if (o.on(Opt::Json)) {
    print_json({{"type", command_name(o.command())},
                {"from", from},
                {"out", out},
                {"format", to_peft ? "peft" : "gguf"},
                {"tensors", set.pairs().size()},
                {"numbers", set.values().size()},
                {"alpha", set.alpha()},
                {"base_hash", set.base_hash().empty() ? model.base_hash() : set.base_hash()},
                {"proof_tokens", proof.tokens.size()}});
    return 0;
  }
  print(
      "{}: {} adapted tensors, {} numbers, as {}; read back: B A of each, and the logits of {} tokens, "
      "agree\n",
      printable(out), set.pairs().size(), format_count(static_cast<double>(set.values().size())),
      to_peft ? "a PEFT directory" : "a GGUF LoRA", proof.tokens.size());
  return 0;
}

}  // namespace

int export_command(const Options& o) {
  const std::vector<std::string>& adapters = o.list(Opt::Lora);
  if (adapters.size() != 1)
    fail(Code::Usage, "tandem export writes one adapter, --lora is given {} times", adapters.size());
  return convert(o, adapters[0], o.text(Opt::ExportAs) == "peft");
}

int import_command(const Options& o) { return convert(o, o.operand(), false); }

}  // namespace tandem
