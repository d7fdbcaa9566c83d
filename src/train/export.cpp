#include "train/export.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/rng.h"
#include "models/runner.h"

namespace tandem {
namespace {

constexpr size_t kRandomTokens = 24;
constexpr int kProbes = 3;
// Of B A x against its largest number: two roundings of B to f32 apart where a factor was multiplied in.
constexpr double kProbeTolerance = 1e-5;
// Of logits against their largest: the same difference through the layers.
constexpr double kLogitTolerance = 1e-3;

// scale B A x for expert e.
std::vector<double> delta(const AdapterSet& set, const AdapterPair& p, int64_t e,
                          const std::vector<double>& x) {
  const int64_t n_in = p.a_shape[0], n_out = p.b_shape[1];
  const float *a = set.a(p) + e * n_in * p.rank, *b = set.b(p) + e * n_out * p.rank;
  std::vector<double> low(static_cast<size_t>(p.rank)), y(static_cast<size_t>(n_out));
  for (size_t k = 0; k < low.size(); ++k) {
    for (size_t i = 0; i < x.size(); ++i) low[k] += static_cast<double>(a[k * x.size() + i]) * x[i];
  }
  for (size_t o = 0; o < y.size(); ++o) {
    for (size_t k = 0; k < low.size(); ++k) y[o] += static_cast<double>(b[o * low.size() + k]) * low[k];
    y[o] *= p.scale;
  }
  return y;
}

// The largest difference of the two deltas on random vectors, as a share of the largest number in them.
double difference(const AdapterSet& one, const AdapterPair& p, const AdapterSet& two, const AdapterPair& q) {
  double worst = 0;
  Rng rng(random_bits({key_of("export probe"), key_of(p.weight->name)}));
  std::vector<double> x(static_cast<size_t>(p.a_shape[0]));
  for (int probe = 0; probe < kProbes; ++probe) {
    for (double& v : x) v = rng.next_normal();
    for (int64_t e = 0; e < p.a_shape[2]; ++e) {
      const std::vector<double> y = delta(one, p, e, x), z = delta(two, q, e, x);
      double largest = 0, apart = 0;
      for (size_t o = 0; o < y.size(); ++o) {
        if (!std::isfinite(y[o]) || !std::isfinite(z[o])) return std::numeric_limits<double>::infinity();
        largest = std::max({largest, std::abs(y[o]), std::abs(z[o])});
        apart = std::max(apart, std::abs(y[o] - z[o]));
      }
      if (largest > 0) worst = std::max(worst, apart / largest);
    }
  }
  return worst;
}

bool same_numbers(const AdapterSet& one, const AdapterPair& p, const AdapterSet& two, const AdapterPair& q) {
  const auto same = [](const float* x, const float* y, int64_t n) {
    return std::memcmp(x, y, static_cast<size_t>(n) * sizeof(float)) == 0;
  };
  return p.rank == q.rank && p.scale == q.scale && same(one.a(p), two.a(q), p.a_shape.elements()) &&
         same(one.b(p), two.b(q), p.b_shape.elements());
}

std::vector<float> logits_of(const AdapterSet& set, const Model& model, const ExportProof& proof) {
  const auto n = static_cast<int64_t>(proof.tokens.size());
  Session session(model, proof.backend, {&set}, n, n, Precision::F32);
  session.allocate();
  const std::span<const float> logits = session.append(proof.tokens);
  return {logits.begin(), logits.end()};
}

bool adds_nothing(const AdapterSet& set, const AdapterPair& p) {
  const float* b = set.b(p);
  return std::all_of(b, b + p.b_shape.elements(), [](float x) { return x == 0; });
}

}  // namespace

std::vector<int32_t> random_tokens(const Model& model, uint64_t seed) {
  Rng rng(random_bits({seed, key_of("export tokens")}));
  const auto n = std::min(kRandomTokens, static_cast<size_t>(model.hparams().n_ctx_train));
  std::vector<int32_t> tokens(n);
  for (int32_t& t : tokens)
    t = static_cast<int32_t>(rng.below(static_cast<uint64_t>(model.hparams().n_vocab)));
  return tokens;
}

void require_same_effect(const AdapterSet& want, const AdapterSet& got, const Model& model,
                         const ExportProof& proof, const std::string& where) {
  TANDEM_CHECK(!proof.tokens.empty());
  bool all_same = true;
  for (const AdapterPair& q : got.pairs()) {
    if (!want.find(*q.weight) && !adds_nothing(got, q))
      fail(Code::Internal, "{}: reads back with an adapter of {}, which was not written", where,
           q.weight->name);
  }
  for (const AdapterPair& p : want.pairs()) {
    const AdapterPair* q = got.find(*p.weight);
    if (!q) {
      if (!adds_nothing(want, p))
        fail(Code::Internal, "{}: the adapter of {} is missing when it is read back", where, p.weight->name);
      continue;
    }
    if (same_numbers(want, p, got, *q)) continue;
    all_same = false;
    const double apart = difference(want, p, got, *q);
    if (!(apart <= kProbeTolerance)) {
      fail(Code::Internal,
           "{}: the adapter of {} reads back with another effect: {:.2e} of its largest number apart", where,
           p.weight->name, apart);
    }
  }
  const std::vector<float> one = logits_of(want, model, proof), two = logits_of(got, model, proof);
  double largest = 0, apart = 0;
  for (size_t i = 0; i < one.size(); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(one[i])));
    apart = std::max(apart, std::abs(static_cast<double>(one[i]) - two[i]));
  }
  const double bound = all_same && want.pairs().size() == got.pairs().size() ? 0 : kLogitTolerance * largest;
  if (!(apart <= bound)) {
    fail(Code::Internal,
         "{}: the logits of {} tokens are {:.3g} apart when it is read back, {:.3g} are allowed", where,
         proof.tokens.size(), apart, bound);
  }
}

void export_gguf(const AdapterSet& set, const Model& model, const ExportProof& proof, const std::string& path,
                 const std::string& name) {
  write_adapter(path, set, model, name, [&](const std::string& temporary) {
    require_same_effect(set, AdapterSet::load(temporary, model, 1.f), model, proof, path);
  });
}

void export_peft(const AdapterSet& set, const Model& model, const ExportProof& proof, const std::string& path,
                 PeftExperts experts) {
  write_peft(path, set, model, experts, [&](const std::string& temporary) {
    require_same_effect(set, read_peft(temporary, model, 1.f), model, proof, path);
  });
}

}  // namespace tandem
