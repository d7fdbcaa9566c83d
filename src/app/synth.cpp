#include "models/synth.h"

#include "app/commands.h"
#include "app/engine.h"
#include "app/output.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"

namespace tandem {

int synth_command(const Options& o) {
  const ArchDef& arch = find_arch(o.operand());
  const std::optional<DType> type = dtype_of_name(o.text(Opt::Type));
  if (!type)
    fail(Code::Usage, "--type '{}' is no tensor type; use one such as q4_k, q8_0 or f16", o.text(Opt::Type));
  SynthSettings s;
  s.n_layer = o.integer(Opt::Layers);
  s.n_embd = o.integer(Opt::Embd);
  s.n_head = o.integer(Opt::Heads);
  s.n_head_kv = o.integer(Opt::KvHeads);
  s.d_head = o.integer(Opt::HeadDim);
  s.n_ff = o.integer(Opt::Ff);
  s.n_expert = o.integer(Opt::Experts);
  s.n_expert_used = o.integer(Opt::ExpertsUsed);
  s.n_ff_exp = o.integer(Opt::ExpertFf);
  s.n_vocab = o.integer(Opt::Vocab);
  s.n_ctx = o.integer(Opt::Ctx);
  s.sliding_window = o.integer(Opt::SlidingWindow);
  s.type = *type;
  s.tied = o.on(Opt::Tied);
  s.seed = static_cast<uint64_t>(o.integer(Opt::Seed));
  const std::string& path = o.text(Opt::Out);
  check_writable(path);
  ThreadPool pool(chosen_threads(o));
  write_synthetic(arch, s, pool, path);
  const Model model = Model::open(path);
  double n_weights = 0;
  for (const GgufTensor& t : model.file().tensors()) {
    n_weights += static_cast<double>(t.ne[0]) * static_cast<double>(t.ne[1] * t.ne[2] * t.ne[3]);
  }
  print("{}: {}, {} layers, {} weights, {}\n", path, arch.name, s.n_layer, format_count(n_weights),
        format_bytes(model.file().file_bytes()));
  return 0;
}

}  // namespace tandem
