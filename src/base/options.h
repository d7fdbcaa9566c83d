// The options of the command line: one table (options.def), read from arguments, environment and a
// configuration file, checked, and explained.  Source: api.md 10.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tandem {

enum class Command : uint8_t {
  Inspect,
  Synth,
  Check,
  Train,
  Gradcheck,
  Generate,
  Export,
  Import,
  Merge,
  Ops,
  Bench,
  Reproduce
};
constexpr size_t kCommands = 12;

enum class Opt : uint8_t {
#define OPTION(id, names, kind, value, lo, hi, fallback, commands, help) id,
#include "base/options.def"
#undef OPTION
};
constexpr size_t kOptions = 0
#define OPTION(id, names, kind, value, lo, hi, fallback, commands, help) +1
#include "base/options.def"
#undef OPTION
    ;

// Who gave a value, weakest first.
enum class Source : uint8_t { Default, Config, Environment, CommandLine };

// Keys and values of a configuration file, as texts; a list is the key several times.
using ConfigEntries = std::vector<std::pair<std::string, std::string>>;

// Where options come from besides the arguments.
struct OptionSources {
  std::function<const char*(const char* name)> environment;           // like getenv
  std::function<ConfigEntries(const std::string& path)> read_config;  // of --config; may throw
};

// The values of one call, all of them checked.
class Options {
 public:
  Command command() const { return command_; }
  // The argument without a flag (FILE, ARCH); empty for commands that take none, and where it may be left
  // out.
  const std::string& operand() const { return operand_; }
  // Whether somebody gave it.
  bool given(Opt o) const { return at(o).source != Source::Default; }
  // The value or its default; the kind must be the option's.  A number without a default is 0, a text empty.
  bool on(Opt o) const;
  int64_t integer(Opt o) const;
  double number(Opt o) const;
  size_t bytes(Opt o) const;
  const std::string& text(Opt o) const;  // Text and Choice
  const std::vector<std::string>& list(Opt o) const;
  // The value of an option that is no list, as one would write it: "8", "on"; empty if there is none.
  std::string as_text(Opt o) const;

 private:
  friend class OptionParser;
  struct Value {
    Source source = Source::Default;
    std::vector<std::string> texts;  // as given; one, except of a list
    int64_t integer = 0;             // Int, Bytes, Switch
    double number = 0;               // Float
  };
  const Value& at(Opt o) const { return values_[static_cast<size_t>(o)]; }

  Command command_ = Command::Inspect;
  std::string operand_;
  std::array<Value, kOptions> values_;
};

// The command with this name.  Throws: Usage, with the nearest name.
Command parse_command(std::string_view name);
const char* command_name(Command command);
// The name of an option in a configuration file: "lora-rank".
std::string option_key(Opt option);

// Reads what follows the command.  The command line wins, then the environment (TANDEM_<NAME>), then the file
// of
// --config.  Of options that exclude each other the stronger source wins.  Required ones are not asked for
// when --help is on.  Throws: Usage, naming the flag, the variable or the key; what read_config throws.
Options parse_options(Command command, std::span<const std::string> arguments, const OptionSources& sources);

// What `tandem --help` and `tandem COMMAND --help` print.
std::string help_text();
std::string help_text(Command command);

}  // namespace tandem
