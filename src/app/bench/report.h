// The lines of `tandem bench`: as a table, as JSON, and against those of an earlier run.
#pragma once
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "app/bench/rounds.h"

namespace tandem {

// One thing measured with one number of threads.  Mode, name, precision and threads tell it from all others.
struct BenchLine {
  std::string mode;       // "ops", "train", "prefill", "decode"
  std::string name;       // what, with its shapes and type
  std::string label;      // the same in a table whose title says the rest
  std::string precision;  // of products with weights
  int n_threads = 1;
  int64_t n_rounds = 0, n_runs = 0;  // runs of a round
  Spread ms;                         // of one run
  double operations_per_second = 0;  // of products; 0 where there are none
  double bytes_per_second = 0;       // that must be touched
  double share = 0;                  // of the speed that the machine's loops allow, in the same round; median
  std::string bound;                 // the loop that this is most a share of
  std::optional<double> baseline_ratio;  // time of the baseline / time of this, in the same round; median
  std::optional<double> tokens_per_second;
  std::optional<size_t> memory_bytes;  // anonymous, beside the mapped weights
};

// Speeds and shares from the times of one contender: `nodes` is the work of one run.
BenchLine make_line(const Series& series, std::span<const Peaks> peaks, std::span<const Work> nodes);
// The median over the rounds of other / mine.
double median_ratio(const Series& other, const Series& mine);

// The lines of an earlier run, by what they measured.
class EarlierRun {
 public:
  // Throws: Io, BadData for a file that is not the output of `tandem bench --json` or has no line of it.
  static EarlierRun read(const std::string& path);
  struct Ratio {
    double speed;  // earlier time / time now
    double share;  // share now / share then: the same, less what the machine itself did meanwhile
  };
  // Nothing if that run did not measure this.
  std::optional<Ratio> compare(const BenchLine& line) const;

 private:
  struct Figures {
    double ms, share;
  };
  std::map<std::string, Figures> lines_;
};

nlohmann::json as_json(const BenchLine& line, const std::optional<EarlierRun::Ratio>& ratio);
nlohmann::json as_json(const Peaks& peaks, int n_threads, IsaLevel level);

// "65 GFLOP/s", "1.2 TFLOP/s".
std::string format_rate(double per_second, const char* unit);

// Prints lines as they come: JSON at once, a table in groups.
class Reporter {
 public:
  Reporter(bool lines_of_json, std::optional<EarlierRun> earlier)
      : json_(lines_of_json), earlier_(std::move(earlier)) {}

  void add(const BenchLine& line);
  // The machine's loops, as measured in the rounds of these lines.
  void add_peaks(const Machines& machines, const Measured& measured);
  // Ends a group: prints its table under `title`.
  void flush(const std::string& title);
  // The peaks over everything, and what the earlier run did not have.  Throws: BadData if it had no line of
  // this run at all.
  void finish(const Machines& machines);
  bool lines_of_json() const { return json_; }

 private:
  bool json_;
  std::optional<EarlierRun> earlier_;
  std::vector<BenchLine> group_;
  std::vector<std::vector<Peaks>> peaks_;  // [machine][...]
  int64_t n_lines_ = 0, n_compared_ = 0;
};

}  // namespace tandem
