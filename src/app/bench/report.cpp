#include "app/bench/report.h"

#include <nlohmann/json.hpp>

#include "app/output.h"
#include "base/error.h"
#include "base/memory.h"
#include "io/jsonl.h"

namespace tandem {
namespace {

using nlohmann::json;

std::string key_of(const std::string& mode, const std::string& name, const std::string& precision,
                   int64_t n_threads) {
  return fmt::format("{}\n{}\n{}\n{}", mode, name, precision, n_threads);
}

std::string percent(double share) { return fmt::format("{:.0f} %", 100 * share); }

std::string speed_text(const BenchLine& l) {
  return l.bound == "copy" ? format_rate(l.bytes_per_second, "B/s")
                           : format_rate(l.operations_per_second, "FLOP/s");
}

std::string ms_text(double ms) { return ms < 1 ? fmt::format("{:.4f}", ms) : fmt::format("{:.2f}", ms); }

template <class T>
T member(const json& line, const char* name, const std::string& where) {
  try {
    return line.at(name).get<T>();
  } catch (const json::exception&) {
    fail(Code::BadData, "{}: this line of a benchmark has no {}", where, name);
  }
}

}  // namespace

BenchLine make_line(const Series& series, std::span<const Peaks> peaks, std::span<const Work> nodes) {
  TANDEM_CHECK(series.seconds.size() == peaks.size());
  BenchLine line;
  line.n_rounds = static_cast<int64_t>(series.seconds.size());
  line.n_runs = series.n_runs;
  const Spread seconds = spread_of(series.seconds);
  line.ms = {1e3 * seconds.median, 1e3 * seconds.lo, 1e3 * seconds.hi};
  Work sum;
  for (const Work& w : nodes) sum += w;
  line.operations_per_second = sum.operations / seconds.median;
  line.bytes_per_second = sum.bytes / seconds.median;
  std::vector<double> shares;
  for (size_t round = 0; round < peaks.size(); ++round)
    shares.push_back(bound_of(nodes, peaks[round]).seconds / series.seconds[round]);
  line.share = spread_of(shares).median;
  line.bound = bound_of(nodes, median_peaks(peaks)).by;
  return line;
}

double median_ratio(const Series& other, const Series& mine) {
  std::vector<double> ratios;
  for (size_t i = 0; i < mine.seconds.size(); ++i) ratios.push_back(other.seconds[i] / mine.seconds[i]);
  return spread_of(std::move(ratios)).median;
}

EarlierRun EarlierRun::read(const std::string& path) {
  EarlierRun run;
  read_jsonl(path, [&](size_t n, const json& line) {
    const std::string where = fmt::format("{}:{}", path, n);
    if (member<std::string>(line, "type", where) != "bench") return;
    const Figures figures{member<double>(line, "ms", where), member<double>(line, "share", where)};
    if (!(figures.ms > 0) || !(figures.share > 0)) {
      fail(Code::BadData, "{}: time and share of a line must be above 0", where);
    }
    run.lines_[key_of(member<std::string>(line, "mode", where), member<std::string>(line, "name", where),
                      member<std::string>(line, "precision", where),
                      member<int64_t>(line, "threads", where))] = figures;
  });
  if (run.lines_.empty()) fail(Code::BadData, "{}: no line of `tandem bench --json` in it", path);
  return run;
}

std::optional<EarlierRun::Ratio> EarlierRun::compare(const BenchLine& l) const {
  const auto it = lines_.find(key_of(l.mode, l.name, l.precision, l.n_threads));
  if (it == lines_.end()) return std::nullopt;
  return Ratio{it->second.ms / l.ms.median, l.share / it->second.share};
}

json as_json(const BenchLine& l, const std::optional<EarlierRun::Ratio>& ratio) {
  json out{{"type", "bench"},
           {"mode", l.mode},
           {"name", l.name},
           {"precision", l.precision},
           {"threads", l.n_threads},
           {"rounds", l.n_rounds},
           {"runs_per_round", l.n_runs},
           {"ms", l.ms.median},
           {"ms_min", l.ms.lo},
           {"ms_max", l.ms.hi},
           {"gbytes_per_second", l.bytes_per_second / 1e9},
           {"share", l.share},
           {"bound", l.bound}};
  if (l.operations_per_second > 0) out["gflops"] = l.operations_per_second / 1e9;
  if (l.baseline_ratio) out["baseline_ratio"] = *l.baseline_ratio;
  if (l.tokens_per_second) out["tokens_per_second"] = *l.tokens_per_second;
  if (l.memory_bytes) out["memory_bytes"] = *l.memory_bytes;
  if (ratio) out["compared"] = {{"speed", ratio->speed}, {"share", ratio->share}};
  return out;
}

json as_json(const Peaks& p, int n_threads, IsaLevel level) {
  json out{{"type", "peaks"},
           {"isa", isa_name(level)},
           {"threads", n_threads},
           {"fma_f32_gflops", p.fma_f32 / 1e9},
           {"copy_gbytes_per_second", p.copy / 1e9}};
  if (p.dot_bf16 > 0) out["dot_bf16_gflops"] = p.dot_bf16 / 1e9;
  if (p.dot_int8 > 0) out["dot_int8_gops"] = p.dot_int8 / 1e9;
  return out;
}

std::string format_rate(double x, const char* unit) {
  if (x >= 1e12) return fmt::format("{:.2f} T{}", x / 1e12, unit);
  if (x >= 1e9) return fmt::format("{:.1f} G{}", x / 1e9, unit);
  return fmt::format("{:.1f} M{}", x / 1e6, unit);
}

void Reporter::add(const BenchLine& line) {
  ++n_lines_;
  if (!json_) {
    group_.push_back(line);
    return;
  }
  const auto ratio = earlier_ ? earlier_->compare(line) : std::nullopt;
  n_compared_ += ratio.has_value();
  print_json(as_json(line, ratio));
}

void Reporter::add_peaks(const Machines& machines, const Measured& measured) {
  peaks_.resize(machines.size());
  for (size_t i = 0; i < machines.size(); ++i)
    peaks_[i].insert(peaks_[i].end(), measured.peaks[i].begin(), measured.peaks[i].end());
}

void Reporter::flush(const std::string& title) {
  if (json_ || group_.empty()) return;
  const auto any = [&](auto has) { return std::any_of(group_.begin(), group_.end(), has); };
  const bool baseline = any([](const BenchLine&l) { return l.baseline_ratio.has_value(); }),
             tokens = any([](const BenchLine&l) { return l.tokens_per_second.has_value(); }),
             memory = any([](const BenchLine&l) { return l.memory_bytes.has_value(); });
  Table table("  ", {0, 6});
  std::vector<std::string> head{"", "threads", "ms", "min .. max", "speed", "share", "of"};
  if (tokens) head.push_back("tokens/s");
  if (memory) head.push_back("memory");
  if (baseline) head.push_back("baseline/this");
  if (earlier_) head.insert(head.end(), {"earlier/this", "by share"});
  table.add(head);
  for (const BenchLine& l : group_) {
    std::vector<std::string> row{l.label,
                                 fmt::format("{}", l.n_threads),
                                 ms_text(l.ms.median),
                                 ms_text(l.ms.lo) + " .. " + ms_text(l.ms.hi),
                                 speed_text(l),
                                 percent(l.share),
                                 l.bound};
    if (tokens) row.push_back(l.tokens_per_second ? fmt::format("{:.1f}", *l.tokens_per_second) : "");
    if (memory) row.push_back(l.memory_bytes ? format_bytes(*l.memory_bytes) : "");
    if (baseline) row.push_back(l.baseline_ratio ? fmt::format("{:.2f}x", *l.baseline_ratio) : "");
    if (earlier_) {
      const auto ratio = earlier_->compare(l);
      n_compared_ += ratio.has_value();
      row.push_back(ratio ? fmt::format("{:.2f}x", ratio->speed) : "-");
      row.push_back(ratio ? fmt::format("{:.2f}x", ratio->share) : "-");
    }
    table.add(row);
  }
  print("{}\n{}\n", title, table.text());
  group_.clear();
}

void Reporter::finish(const Machines& machines) {
  if (!json_ && !peaks_.empty()) print("the machine in these rounds ({})\n", isa_name(machines.level()));
  Table table("  ");
  table.add({"threads", "f32 FMA", "bf16 dot", "int8 dot", "copy"});
  for (size_t i = 0; i < peaks_.size(); ++i) {
    const Peaks p = median_peaks(peaks_[i]);
    const int n = machines[i].pool.n_threads();
    if (json_) {
      print_json(as_json(p, n, machines.level()));
      continue;
    }
    table.add({fmt::format("{}", n), format_rate(p.fma_f32, "FLOP/s"),
               p.dot_bf16 > 0 ? format_rate(p.dot_bf16, "FLOP/s") : "-",
               p.dot_int8 > 0 ? format_rate(p.dot_int8, "OP/s") : "-", format_rate(p.copy, "B/s")});
  }
  if (!json_ && !peaks_.empty()) print_text(table.text());
  if (!earlier_) return;
  if (n_compared_ == 0) fail(Code::BadData, "the earlier run measured nothing of what this one did");
  if (n_compared_ < n_lines_ && !json_)
    print("{} of {} lines were not in the earlier run\n", n_lines_ - n_compared_, n_lines_);
}

}  // namespace tandem
