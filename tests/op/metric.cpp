#include "tests/op/metric.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tandem {
namespace {

Verdict refuse(std::string message) { return {.pass = false, .message = std::move(message)}; }

// What makes a comparison of these meaningless; empty if nothing does.
std::string unfit(std::span<const double> got, std::span<const double> want) {
  if (got.size() != want.size()) return fmt::format("{} elements, wanted {}", got.size(), want.size());
  if (want.empty()) return "nothing to compare: no elements";
  for (size_t i = 0; i < got.size(); ++i) {
    if (!std::isfinite(want[i])) return fmt::format("the wanted element {} is {}", i, want[i]);
    if (!std::isfinite(got[i])) return fmt::format("element {} is {}, wanted {:.9g}", i, got[i], want[i]);
  }
  return "";
}

double largest(std::span<const double> x) {
  double m = 0;
  for (double v : x) m = std::max(m, std::fabs(v));
  return m;
}

Verdict measure(std::span<const double> got, std::span<const double> want, double limit) {
  Verdict v{.limit = limit};
  size_t worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double e = std::fabs(got[i] - want[i]);
    if (e > v.error) v.error = e, worst = i;
  }
  v.pass = v.error <= limit;
  v.message = fmt::format("error {:.3g}, limit {:.3g}", v.error, limit);
  if (!v.pass)
    v.message += fmt::format(": element {} is {:.9g}, wanted {:.9g}", worst, got[worst], want[worst]);
  return v;
}

}  // namespace

Verdict compare(std::span<const double> got, std::span<const double> want, double rtol, double atol) {
  const double scale = largest(want);
  if (std::string why = unfit(got, want); !why.empty()) return refuse(why);
  if (!(scale > 0)) return refuse("all wanted elements are zero, which any dead path would match");
  return measure(got, want, atol + rtol * scale);
}

Verdict compare_scaled(std::span<const double> got, std::span<const double> want, double rtol, double scale) {
  if (std::string why = unfit(got, want); !why.empty()) return refuse(why);
  if (!(largest(want) > 0)) return refuse("all wanted elements are zero, which any dead path would match");
  if (!(std::isfinite(scale) && scale > 0)) return refuse(fmt::format("the scale is {}", scale));
  return measure(got, want, rtol * scale);
}

Verdict compare_slices(std::span<const double> got, std::span<const double> want, int64_t n_slices,
                       double rtol) {
  if (std::string why = unfit(got, want); !why.empty()) return refuse(why);
  if (n_slices < 1 || static_cast<int64_t>(want.size()) % n_slices != 0)
    return refuse(fmt::format("{} elements are not {} slices", want.size(), n_slices));
  if (!(largest(want) > 0)) return refuse("all wanted elements are zero, which any dead path would match");
  const size_t n = want.size() / static_cast<size_t>(n_slices);
  Verdict worst{.pass = true};
  for (int64_t s = 0; s < n_slices; ++s) {
    const size_t at = static_cast<size_t>(s) * n;
    const std::span<const double> g = got.subspan(at, n), w = want.subspan(at, n);
    Verdict v = largest(w) > 0 ? compare(g, w, rtol) : measure(g, w, 0);
    v.message = fmt::format("slice {}: {}", s, v.message);
    if (!v.pass) return v;
    if (worst.message.empty() || v.error * worst.limit > worst.error * v.limit) worst = std::move(v);
  }
  return worst;
}

Verdict compare_sets(const Named& got, const Named& want, double rtol, double atol) {
  if (want.empty()) return refuse("nothing to compare: no tensors are expected");
  std::string missing, foreign;
  for (const auto& [name, values] : want) {
    if (!got.contains(name)) missing += " " + name;
  }
  for (const auto& [name, values] : got) {
    if (!want.contains(name)) foreign += " " + name;
  }
  if (!missing.empty() || !foreign.empty()) {
    return refuse(fmt::format("{} tensors, wanted {}; missing:{}; not expected:{}", got.size(), want.size(),
                              missing.empty() ? " none" : missing, foreign.empty() ? " none" : foreign));
  }
  Verdict worst{.pass = true};
  for (const auto& [name, values] : want) {
    Verdict v = compare(got.at(name), values, rtol, atol);
    v.message = name + ": " + v.message;
    if (!v.pass) return v;
    if (worst.message.empty() || v.error * worst.limit > worst.error * v.limit) worst = std::move(v);
  }
  return worst;
}

Verdict compare_ids(std::span<const int32_t> got, std::span<const int32_t> want) {
  if (got.size() != want.size())
    return refuse(fmt::format("{} elements, wanted {}", got.size(), want.size()));
  if (want.empty()) return refuse("nothing to compare: no elements");
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i] != want[i]) return refuse(fmt::format("element {} is {}, wanted {}", i, got[i], want[i]));
  }
  return {.pass = true, .message = "equal"};
}

}  // namespace tandem
