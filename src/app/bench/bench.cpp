// tandem bench: how fast ops and models run, beside what the machine's loops reach in the same rounds.
#include "app/bench/modes.h"
#include "app/commands.h"
#include "app/engine.h"
#include "base/log.h"

namespace tandem {

int bench_command(const Options& o) {
  const BenchMode mode = parse_bench_mode(o.operand());
  check_bench_flags(o, mode);
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
