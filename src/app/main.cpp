// The command line: finds the command, reads its options, runs it, and turns failures into exit codes.
#include <cstdlib>
#include <exception>
#include <new>
#include <nlohmann/json.hpp>

#include "app/commands.h"
#include "app/engine.h"
#include "app/output.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "io/json.h"

namespace tandem {
namespace {

constexpr size_t kMaxConfigBytes = size_t{1} << 20;

// The options of a JSON file as texts.
ConfigEntries read_config(const std::string& path) {
  const nlohmann::json document = parse_json(read_file(path, kMaxConfigBytes), path);
  if (!document.is_object()) fail(Code::BadData, "{}: a JSON object of options is needed", path);
  ConfigEntries entries;
  const auto add = [&](const std::string& key, const nlohmann::json& value) {
    if (value.is_structured() || value.is_null()) {
      fail(Code::BadData, "{}: '{}' must be a string, a number, a boolean, or a list of them", path, key);
    }
    entries.emplace_back(key, value.is_string() ? value.get<std::string>() : value.dump());
  };
  for (const auto& [key, value] : document.items()) {
    if (!value.is_array()) {
      add(key, value);
      continue;
    }
    for (const nlohmann::json& element : value) add(key, element);
  }
  return entries;
}

int run_command(const Options& options) {
  switch (options.command()) {
    case Command::Inspect:
      return inspect_command(options);
    case Command::Synth:
      return synth_command(options);
    case Command::Check:
      return check_command(options);
    case Command::Train:
      return train_command(options);
    case Command::Gradcheck:
      return gradcheck_command(options);
    case Command::Generate:
      return generate_command(options);
    case Command::Export:
      return export_command(options);
    case Command::Import:
      return import_command(options);
    case Command::Merge:
      return merge_command(options);
    case Command::Ops:
      return ops_command(options);
    case Command::Bench:
      return bench_command(options);
    case Command::Reproduce:
      return reproduce_command(options);
  }
  return 1;
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.empty()) fail(Code::Usage, "no command\n\n{}", help_text());
  const std::string& first = arguments[0];
  if (first == "--version") {
    print("tandem {}\n", TANDEM_VERSION);
    return 0;
  }
  if (first == "--help" || first == "-h" || first == "help") {
    print_text(help_text());
    return 0;
  }
  const Command command = parse_command(first);
  const Options options =
      parse_options(command, std::span(arguments).subspan(1),
                    {.environment = [](const char* name) -> const char* { return std::getenv(name); },
                     .read_config = read_config});
  if (options.on(Opt::Help)) {
    print_text(help_text(command));
    return 0;
  }
  set_verbosity(options.on(Opt::Quiet) ? 0 : options.on(Opt::Verbose) ? 2 : 1);
  chosen_isa(options);  // a wrong level is refused by every command
  return run_command(options);
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  using namespace tandem;
  try {
    const int status = run(std::vector<std::string>(argv + 1, argv + argc));
    finish_output();
    return status;
  } catch (const Error& e) {
    log_error("{}", e.what());
    return exit_status(e.code());
  } catch (const std::bad_alloc&) {
    log_error("the system has no more memory");
    return exit_status(Code::OutOfMemory);
  } catch (const std::exception& e) {
    log_error("internal error: {}", e.what());
    return exit_status(Code::Internal);
  }
}
