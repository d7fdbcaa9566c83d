#include "app/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "app/output.h"
#include "base/memory.h"

namespace tandem {
namespace {

constexpr int64_t kFirstSteps = 3;  // always shown, with the time left.  Source: api.md 10
constexpr size_t kMinBar = 4, kMaxBar = 30, kDefaultColumns = 80;

size_t terminal_columns() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kDefaultColumns;
}

}  // namespace

void Pace::add(const StepReport& report) {
  recent_.push_back(report);
  if (recent_.size() > kWindow) recent_.pop_front();
  if (n_steps_++ > 0) seconds_ += report.seconds;
  n_left_ = report.total_steps - report.step;
}

double Pace::tokens_per_second() const {
  double tokens = 0, seconds = 0;
  for (const StepReport& r : recent_) {
    tokens += static_cast<double>(r.n_tokens);
    seconds += r.seconds;
  }
  return seconds > 0 ? tokens / seconds : 0;
}

std::optional<double> Pace::seconds_left() const {
  if (n_steps_ < 2) return std::nullopt;
  return seconds_ / static_cast<double>(n_steps_ - 1) * static_cast<double>(n_left_);
}

std::string report_text(const StepReport& r, const Pace& pace) {
  std::string text =
      fmt::format("loss {:.4f}  lr {:.1e}  grad {:.3g}  {:.0f} tok/s  {}", r.loss, r.learning_rate,
                  r.grad_norm, pace.tokens_per_second(), format_bytes(anonymous_memory_bytes()));
  if (const std::optional<double> left = pace.seconds_left())
    text += fmt::format("  {} left", format_duration(*left));
  return text;
}

std::string bar_text(const StepReport& r, const Pace& pace, size_t columns) {
  std::string text = fmt::format("{}/{} loss {:.3f} lr {:.1e} grad {:.3g} {:.0f} tok/s {}", r.step,
                                 r.total_steps, r.loss, r.learning_rate, r.grad_norm,
                                 pace.tokens_per_second(), format_bytes(anonymous_memory_bytes()));
  if (const std::optional<double> left = pace.seconds_left())
    text += fmt::format(" {} left", format_duration(*left));
  constexpr size_t kAround = 3;  // brackets and a blank
  if (text.size() + kAround + kMinBar < columns) {
    const size_t width = std::min(kMaxBar, columns - 1 - text.size() - kAround);
    const size_t done =
        r.total_steps > 0 ? width * static_cast<size_t>(r.step) / static_cast<size_t>(r.total_steps) : width;
    text = fmt::format("[{}{}] {}", std::string(done, '#'), std::string(width - done, '.'), text);
  }
  if (text.size() >= columns) text.resize(columns - 1);  // a wrapped line could not be redrawn
  return text;
}

Progress::Mode Progress::mode_of_stderr() {
  const char* kind = std::getenv("TERM");
  const bool dumb = !kind || std::strcmp(kind, "dumb") == 0;
  return isatty(STDERR_FILENO) && !dumb ? Mode::Bar : Mode::Lines;
}

void Progress::step(const StepReport& report, const Pace& pace) {
  if (mode_ == Mode::Bar) {
    fmt::print(stderr, "\r{}\x1b[K", bar_text(report, pace, terminal_columns()));
    std::fflush(stderr);
    drawn_ = true;
  } else if (mode_ == Mode::Lines) {
    const bool due = report.step <= kFirstSteps || report.step % steps_per_report_ == 0 ||
                     report.step == report.total_steps;
    if (due)
      fmt::print(stderr, "step {}/{}  {}\n", report.step, report.total_steps, report_text(report, pace));
  }
}

void Progress::evaluation(const Evaluation& e, int64_t step) {
  if (mode_ == Mode::Silent) return;
  clear();
  fmt::print(stderr, "held out after step {}: nll {:.4f}, {} of {} rows exact\n", step, e.nll, e.n_exact,
             e.n_rows);
}

void Progress::clear() {
  if (!drawn_) return;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
  drawn_ = false;
}

}  // namespace tandem
