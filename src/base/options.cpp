#include "base/options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <iterator>
#include <numeric>
#include <optional>

#include "base/error.h"
#include "base/memory.h"

namespace tandem {
namespace {

enum class Kind : uint8_t { Switch, Int, Float, Text, Choice, Bytes, List };

constexpr unsigned bit(Command c) { return 1u << static_cast<unsigned>(c); }
constexpr unsigned kInspect = bit(Command::Inspect), kSynth = bit(Command::Synth),
                   kTrain = bit(Command::Train), kGradcheck = bit(Command::Gradcheck),
                   kGenerate = bit(Command::Generate), kExport = bit(Command::Export),
                   kImport = bit(Command::Import), kMerge = bit(Command::Merge), kOps = bit(Command::Ops),
                   kBench = bit(Command::Bench), kReproduce = bit(Command::Reproduce);
constexpr unsigned kTrainers = bit(Command::Check) | kTrain;
constexpr unsigned kRowUsers = kTrainers | kGradcheck;
constexpr unsigned kRowReaders = kRowUsers | kMerge;
constexpr unsigned kAdapterUsers = kTrainers | kGradcheck | kGenerate | kExport | kImport | kMerge;
constexpr unsigned kModelUsers = kRowUsers | kAdapterUsers;
constexpr unsigned kAll = kInspect | kSynth | kModelUsers | kOps | kBench | kReproduce;

struct OptionDef {
  std::string_view names;
  Kind kind;
  std::string_view value;
  double lo, hi;
  std::string_view fallback;
  unsigned commands;
  std::string_view help;
};

constexpr OptionDef kTable[] = {
#define OPTION(id, names, kind, value, lo, hi, fallback, commands, help) \
  {names, Kind::kind, value, static_cast<double>(lo), static_cast<double>(hi), fallback, commands, help},
#include "base/options.def"
#undef OPTION
};

struct CommandDef {
  std::string_view name, operand, summary;  // an operand in brackets may be left out
};
constexpr CommandDef kCommandTable[kCommands] = {
    {"inspect", "FILE", "what is in a GGUF file, and what in it could be trained"},
    {"synth", "ARCH", "write a model of random weights, tiny or of a real shape"},
    {"check", "", "rows, loss mask, memory and time of a training run, without training"},
    {"train", "", "train a LoRA adapter through a quantized model"},
    {"gradcheck", "", "prove the gradient of a model's adapters against its own loss"},
    {"generate", "", "continue a prompt, with or without adapters"},
    {"export", "", "write an adapter for other programs: a PEFT directory or a GGUF LoRA"},
    {"import", "ADAPTER", "make a GGUF LoRA of a PEFT directory, or of another GGUF LoRA"},
    {"merge", "", "write a model whose weights have adapters added in"},
    {"ops", "MODE", "prove the ops: MODE is support, eval, grad, gauge, plan or perf"},
    {"bench", "[MODE]", "measure beside what the machine can do: MODE is ops, train, prefill or decode"},
    {"reproduce", "RECEIPT", "train again as a receipt says, and compare the adapters bit for bit"},
};

constexpr std::pair<Opt, unsigned> kRequired[] = {{Opt::Model, kModelUsers},
                                                  {Opt::TrainFile, kTrainers},
                                                  {Opt::Prompt, kGenerate},
                                                  {Opt::Out, kSynth | kExport | kImport | kMerge},
                                                  {Opt::ExportAs, kExport}};
constexpr std::pair<Opt, Opt> kExclusive[] = {{Opt::Epochs, Opt::Iters},
                                              {Opt::WarmupRatio, Opt::WarmupSteps},
                                              {Opt::ResumeFrom, Opt::AutoResume},
                                              {Opt::Verbose, Opt::Quiet}};

const OptionDef& def(Opt o) { return kTable[static_cast<size_t>(o)]; }
const CommandDef& def(Command c) { return kCommandTable[static_cast<size_t>(c)]; }
bool takes(Command c, const OptionDef& d) { return d.commands & bit(c); }

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(at, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// The first long name without its dashes: "lora-rank".
std::string_view key_of_option(const OptionDef& d) {
  for (std::string_view name : split(d.names, ' ')) {
    if (name.starts_with("--")) return name.substr(2);
  }
  return {};
}

std::string environment_name(const OptionDef& d) {
  std::string name = "TANDEM_";
  for (char c : key_of_option(d))
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

// Insertions, deletions, substitutions and swaps of neighbours that turn one text into the other.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), row(b.size() + 1), next(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    next[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      next[j] = std::min({row[j] + 1, next[j - 1] + 1, row[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        next[j] = std::min(next[j], before[j - 2] + 1);
    }
    before.swap(row);
    row.swap(next);
  }
  return row[b.size()];
}

// The nearest of `names`, as a question to end a message with; empty when none is near.
std::string nearest(std::string_view given, std::span<const std::string> names) {
  size_t best = std::max<size_t>(2, given.size() / 3) + 1;
  std::string_view found;
  for (const std::string& name : names) {
    const size_t distance = edit_distance(given, name);
    if (distance < best) {
      best = distance;
      found = name;
    }
  }
  return found.empty() ? "" : fmt::format("; did you mean {}?", found);
}

// A flag as written, resolved: which option, and whether it stands negated (--no-x).
struct Flag {
  Opt option;
  bool negated = false;
};

// Commands may give a name different meanings: the one that this command knows, else any.
std::optional<Flag> find_flag(Command command, std::string_view name) {
  std::optional<Flag> foreign;
  for (size_t i = 0; i < kOptions; ++i) {
    const OptionDef& d = kTable[i];
    for (std::string_view known : split(d.names, ' ')) {
      const bool negatable = d.kind == Kind::Switch && known.starts_with("--");
      const bool negated = negatable && name.starts_with("--no-") && name.substr(5) == known.substr(2);
      if (known != name && !negated) continue;
      const Flag flag{static_cast<Opt>(i), negated};
      if (takes(command, d)) return flag;
      foreign = flag;
    }
  }
  return foreign;
}

std::string nearest_flag(Command command, std::string_view given) {
  std::vector<std::string> names;
  for (const OptionDef& d : kTable) {
    if (!takes(command, d)) continue;
    for (std::string_view name : split(d.names, ' ')) names.emplace_back(name);
  }
  return nearest(given, names);
}

std::string shown(std::string_view text) {
  return text.size() <= 60 ? fmt::format("'{}'", text) : fmt::format("'{}...'", text.substr(0, 57));
}

}  // namespace

// Fills an Options object, source by source.
class OptionParser {
 public:
  OptionParser(Command command, const OptionSources& sources) : sources_(sources) { out_.command_ = command; }

  Options run(std::span<const std::string> arguments) {
    read_arguments(arguments);
    read_environment();
    if (out_.given(Opt::Config)) read_config(out_.text(Opt::Config));
    resolve_exclusive();
    fill_defaults();
    if (!out_.on(Opt::Help)) require();
    return std::move(out_);
  }

 private:
  void read_arguments(std::span<const std::string> arguments) {
    for (size_t i = 0; i < arguments.size(); ++i) {
      const std::string& argument = arguments[i];
      if (argument.size() < 2 || argument[0] != '-') {
        take_operand(argument);
        continue;
      }
      const size_t equals = argument.find('=');
      const std::string name = argument.substr(0, equals);
      const Flag flag = resolve(name);
      const bool is_switch = def(flag.option).kind == Kind::Switch;
      if (equals != std::string::npos) {
        if (is_switch) {
          fail(Code::Usage, "{} takes no value; write {} or --no-{}", name, name,
               key_of_option(def(flag.option)));
        }
        set(flag.option, argument.substr(equals + 1), Source::CommandLine, name);
      } else if (is_switch) {
        set(flag.option, flag.negated ? "off" : "on", Source::CommandLine, name);
      } else {
        // A known flag is no value: the value was forgotten.  Others may begin with a dash: -1, "- a list".
        const bool missing = i + 1 == arguments.size() ||
                             find_flag(out_.command_, arguments[i + 1].substr(0, arguments[i + 1].find('=')));
        if (missing) fail(Code::Usage, "{} needs a value: {} {}", name, name, def(flag.option).value);
        set(flag.option, arguments[++i], Source::CommandLine, name);
      }
    }
  }

  void take_operand(const std::string& argument) {
    const CommandDef& c = def(out_.command_);
    if (c.operand.empty()) fail(Code::Usage, "tandem {} takes flags only, not {}", c.name, shown(argument));
    if (!out_.operand_.empty()) {
      fail(Code::Usage, "tandem {} takes one {}, not both {} and {}", c.name, c.operand, shown(out_.operand_),
           shown(argument));
    }
    if (argument.empty()) fail(Code::Usage, "the {} of tandem {} is empty", c.operand, c.name);
    out_.operand_ = argument;
  }

  Flag resolve(const std::string& name) const {
    const std::optional<Flag> flag = find_flag(out_.command_, name);
    if (!flag) {
      fail(Code::Usage, "unknown flag {}{}", shown(name), nearest_flag(out_.command_, name));
    }
    if (!takes(out_.command_, def(flag->option))) {
      fail(Code::Usage, "tandem {} has no flag {}{}", def(out_.command_).name, name,
           nearest_flag(out_.command_, name));
    }
    return *flag;
  }

  void read_environment() {
    for (size_t i = 0; i < kOptions; ++i) {
      const auto option = static_cast<Opt>(i);
      if (option == Opt::Help || !takes(out_.command_, kTable[i])) continue;
      const std::string name = environment_name(kTable[i]);
      const char* value = sources_.environment ? sources_.environment(name.c_str()) : nullptr;
      if (value && *value) set(option, value, Source::Environment, name);
    }
  }

  void read_config(const std::string& path) {
    TANDEM_CHECK(sources_.read_config);
    for (auto [key, value] : sources_.read_config(path)) {
      const std::string where = fmt::format("{}: {}", path, key);
      std::replace(key.begin(), key.end(), '_', '-');
      const std::optional<Flag> flag = find_flag(out_.command_, "--" + key);
      if (!flag || flag->negated || !takes(out_.command_, def(flag->option))) {
        fail(Code::Usage, "{}: '{}' is no option of tandem {}{}", path, key, def(out_.command_).name,
             nearest_flag(out_.command_, "--" + key));
      }
      if (flag->option == Opt::Config || flag->option == Opt::Help) {
        fail(Code::Usage, "{}: '{}' belongs on the command line", path, key);
      }
      set(flag->option, value, Source::Config, where);
    }
  }

  // `name` is what the caller wrote: a flag, a variable, a key.
  void set(Opt option, const std::string& text, Source source, const std::string& name) {
    Options::Value& v = out_.values_[static_cast<size_t>(option)];
    const OptionDef& d = def(option);
    if (v.source > source) return;
    if (v.source == source && d.kind != Kind::List) {
      fail(Code::Usage, "{} is given twice (--{} takes one value)", name, key_of_option(d));
    }
    v.source = source;
    read_value(d, text, name, v);
    v.texts.push_back(text);
  }

  static void read_value(const OptionDef& d, const std::string& text, const std::string& name,
                         Options::Value& v) {
    switch (d.kind) {
      case Kind::Switch:
        v.integer = read_switch(text, name);
        break;
      case Kind::Int:
        v.integer = read_int(d, text, name);
        break;
      case Kind::Float:
        v.number = read_float(d, text, name);
        break;
      case Kind::Bytes:
        v.integer = static_cast<int64_t>(parse_bytes(text, name.c_str()));
        break;
      case Kind::Choice: {
        const std::vector<std::string_view> choices = split(d.value, '|');
        if (std::find(choices.begin(), choices.end(), text) == choices.end()) {
          const std::vector<std::string> names(choices.begin(), choices.end());
          fail(Code::Usage, "{} takes {}, not {}{}", name, d.value, shown(text), nearest(text, names));
        }
        break;
      }
      case Kind::Text:
      case Kind::List:
        if (text.empty() && d.value != "TEXT") fail(Code::Usage, "{} is empty, wanted {}", name, d.value);
        break;
    }
  }

  static bool read_switch(const std::string& text, const std::string& name) {
    for (const char* yes : {"on", "true", "1"}) {
      if (text == yes) return true;
    }
    for (const char* no : {"off", "false", "0"}) {
      if (text == no) return false;
    }
    fail(Code::Usage, "{} is on or off, not {}", name, shown(text));
  }

  static int64_t read_int(const OptionDef& d, const std::string& text, const std::string& name) {
    const auto lo = static_cast<int64_t>(d.lo), hi = static_cast<int64_t>(d.hi);
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc::invalid_argument || end != text.data() + text.size()) {
      fail(Code::Usage, "{} takes a whole number, not {}", name, shown(text));
    }
    if (error != std::errc() || value < lo || value > hi) {
      fail(Code::Usage, "{} must be from {} to {}, not {}", name, lo, hi, shown(text));
    }
    return value;
  }

  static double read_float(const OptionDef& d, const std::string& text, const std::string& name) {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc::invalid_argument || end != text.data() + text.size() || std::isnan(value)) {
      fail(Code::Usage, "{} takes a number, not {}", name, shown(text));
    }
    if (error != std::errc() || !(value >= d.lo && value <= d.hi)) {
      fail(Code::Usage, "{} must be from {} to {}, not {}", name, d.lo, d.hi, shown(text));
    }
    return value;
  }

  void resolve_exclusive() {
    for (const auto& [a, b] : kExclusive) {
      Options::Value &va = out_.values_[static_cast<size_t>(a)], &vb = out_.values_[static_cast<size_t>(b)];
      if (va.source == Source::Default || vb.source == Source::Default) continue;
      if (va.source == vb.source) {
        fail(Code::Usage, "--{} and --{} exclude each other", key_of_option(def(a)), key_of_option(def(b)));
      }
      (va.source < vb.source ? va : vb) = {};
    }
  }

  void fill_defaults() {
    for (size_t i = 0; i < kOptions; ++i) {
      Options::Value& v = out_.values_[i];
      if (v.source != Source::Default || kTable[i].fallback.empty()) continue;
      const std::string text(kTable[i].fallback);
      read_value(kTable[i], text, std::string(key_of_option(kTable[i])), v);
      v.texts = {text};
    }
  }

  void require() const {
    const CommandDef& c = def(out_.command_);
    if (!c.operand.empty() && c.operand[0] != '[' && out_.operand_.empty()) {
      fail(Code::Usage, "tandem {} needs a {}: tandem {} {}", c.name, c.operand, c.name, c.operand);
    }
    for (const auto& [option, commands] : kRequired) {
      if (!(commands & bit(out_.command_)) || out_.given(option)) continue;
      fail(Code::Usage, "tandem {} needs --{} {}", c.name, key_of_option(def(option)), def(option).value);
    }
  }

  const OptionSources& sources_;
  Options out_;
};

bool Options::on(Opt o) const {
  TANDEM_CHECK(def(o).kind == Kind::Switch);
  return at(o).integer != 0;
}

int64_t Options::integer(Opt o) const {
  TANDEM_CHECK(def(o).kind == Kind::Int);
  return at(o).integer;
}

double Options::number(Opt o) const {
  TANDEM_CHECK(def(o).kind == Kind::Float);
  return at(o).number;
}

size_t Options::bytes(Opt o) const {
  TANDEM_CHECK(def(o).kind == Kind::Bytes);
  return static_cast<size_t>(at(o).integer);
}

const std::string& Options::text(Opt o) const {
  TANDEM_CHECK(def(o).kind == Kind::Text || def(o).kind == Kind::Choice);
  static const std::string empty;
  return at(o).texts.empty() ? empty : at(o).texts.front();
}

const std::vector<std::string>& Options::list(Opt o) const {
  TANDEM_CHECK(def(o).kind == Kind::List);
  return at(o).texts;
}

std::string Options::as_text(Opt o) const {
  TANDEM_CHECK(def(o).kind != Kind::List);
  if (def(o).kind == Kind::Switch) return on(o) ? "on" : "off";
  return at(o).texts.empty() ? "" : at(o).texts.front();
}

std::string option_key(Opt option) { return std::string(key_of_option(def(option))); }

Command parse_command(std::string_view name) {
  std::vector<std::string> names;
  for (size_t i = 0; i < kCommands; ++i) {
    if (kCommandTable[i].name == name) return static_cast<Command>(i);
    names.emplace_back(kCommandTable[i].name);
  }
  const std::string hint = nearest(name, names);
  fail(Code::Usage, "unknown command {}{}{}", shown(name), hint,
       hint.empty() ? fmt::format("; there are {}", fmt::join(names, ", ")) : "");
}

const char* command_name(Command command) { return def(command).name.data(); }

Options parse_options(Command command, std::span<const std::string> arguments, const OptionSources& sources) {
  return OptionParser(command, sources).run(arguments);
}

std::string help_text() {
  std::string out = "usage: tandem COMMAND [FLAGS]\n\n";
  for (const CommandDef& c : kCommandTable) {
    fmt::format_to(std::back_inserter(out), "  {:<10} {:<7} {}\n", c.name, c.operand, c.summary);
  }
  out += "\ntandem COMMAND --help lists the flags of a command; tandem --version prints the version.\n";
  return out;
}

std::string help_text(Command command) {
  const CommandDef& c = def(command);
  std::string out = fmt::format("usage: tandem {} {}[FLAGS]\n\n{}\n\n", c.name,
                                c.operand.empty() ? "" : fmt::format("{} ", c.operand), c.summary);
  for (size_t i = 0; i < kOptions; ++i) {
    const OptionDef& d = kTable[i];
    if (!takes(command, d)) continue;
    std::string names;
    for (std::string_view name : split(d.names, ' '))
      names += fmt::format("{}{}", names.empty() ? "" : ", ", name);
    if (!d.value.empty()) names += fmt::format(" {}", d.value);
    const bool required = std::any_of(std::begin(kRequired), std::end(kRequired), [&](const auto& r) {
      return static_cast<size_t>(r.first) == i && (r.second & bit(command));
    });
    std::string note;
    if (required)
      note = " (required)";
    else if (d.kind == Kind::Switch && d.fallback == "on")
      note = " (on; --no-... switches it off)";
    else if (d.kind != Kind::Switch && !d.fallback.empty())
      note = fmt::format(" (default {})", d.fallback);
    fmt::format_to(std::back_inserter(out), "  {}\n      {}{}\n", names, d.help, note);
  }
  fmt::format_to(
      std::back_inserter(out),
      "\nFlags are written --flag value or --flag=value, switches --x or --no-x.  Each can also come from\n"
      "the environment (TANDEM_SEED for --seed) or from the JSON file of --config; the command line wins,\n"
      "then the environment.\n");
  return out;
}

}  // namespace tandem
