// Showing a training run while it runs.
#pragma once
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "train/job.h"

namespace tandem {

// Speed and time left, from the steps so far.
class Pace {
 public:
  void add(const StepReport& report);
  double tokens_per_second() const;  // over the last steps
  // From the second step on; the first one reads the weights from disk and tells nothing.
  std::optional<double> seconds_left() const;

 private:
  static constexpr size_t kWindow = 16;  // steps
  std::deque<StepReport> recent_;
  int64_t n_steps_ = 0;
  double seconds_ = 0;  // without the first step
  int64_t n_left_ = 0;
};

// "loss 2.3450  lr 1.0e-04  grad 0.93  1234 tok/s  57.0 MiB  1:23 left".
std::string report_text(const StepReport& report, const Pace& pace);
// "[#####.....] 12/196 " and the same, closer together; fewer than `columns` characters.
std::string bar_text(const StepReport& report, const Pace& pace, size_t columns);

// Writes to stderr: a line redrawn at every step on a terminal, a line now and then elsewhere.
class Progress {
 public:
  enum class Mode { Silent, Lines, Bar };
  Progress(Mode mode, int64_t steps_per_report) : mode_(mode), steps_per_report_(steps_per_report) {}
  ~Progress() { clear(); }
  // Bar if stderr is a terminal that can redraw a line.
  static Mode mode_of_stderr();

  void step(const StepReport& report, const Pace& pace);
  void evaluation(const Evaluation& evaluation, int64_t step);

 private:
  void clear();  // takes the bar away

  Mode mode_;
  int64_t steps_per_report_;
  bool drawn_ = false;
};

}  // namespace tandem
