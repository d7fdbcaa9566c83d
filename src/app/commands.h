// The commands of the binary, one file (bench: one folder) each.
#pragma once
#include "base/options.h"

namespace tandem {

// Each gives the exit status of a run that came to an orderly end, and throws Error otherwise.
int inspect_command(const Options& options);
int synth_command(const Options& options);
int check_command(const Options& options);
int train_command(const Options& options);
int gradcheck_command(const Options& options);
int generate_command(const Options& options);
int export_command(const Options& options);
int import_command(const Options& options);
int merge_command(const Options& options);
int ops_command(const Options& options);
int bench_command(const Options& options);
int reproduce_command(const Options& options);

}  // namespace tandem
