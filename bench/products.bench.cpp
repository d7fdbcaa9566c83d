// Products with frozen weights, forward and input gradient, at the layer shape of Qwen3-30B-A3B with 16
// experts. Each line gives GFLOP/s and `of_fma`: the share of what an f32 FMA loop reached on as many threads
// in this run.
#include <benchmark/benchmark.h>

#include <chrono>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/memory.h"
#include "base/rng.h"
#include "exec/cpu/cpu_backend.h"
#include "ops/ops.h"

namespace tandem {
namespace {

constexpr int64_t kEmbd = 2048, kFf = 768, kExperts = 16, kUsed = 2, kTokens = 256;  // 32 tokens an expert

#if defined(__x86_64__)
__attribute__((target("avx512f"))) float fma_loop_avx512(int64_t n) {
  __m512 sum[12];
  for (int i = 0; i < 12; ++i) sum[i] = _mm512_set1_ps(static_cast<float>(i));
  const __m512 a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(1e-3f);
  for (int64_t k = 0; k < n; ++k) {
#pragma GCC unroll 12
    for (int i = 0; i < 12; ++i) sum[i] = _mm512_fmadd_ps(sum[i], a, b);
  }
  for (int i = 1; i < 12; ++i) sum[0] = _mm512_add_ps(sum[0], sum[i]);
  return sum[0][0];
}

__attribute__((target("avx2,fma"))) float fma_loop_avx2(int64_t n) {
  __m256 sum[12];
  for (int i = 0; i < 12; ++i) sum[i] = _mm256_set1_ps(static_cast<float>(i));
  const __m256 a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(1e-3f);
  for (int64_t k = 0; k < n; ++k) {
#pragma GCC unroll 12
    for (int i = 0; i < 12; ++i) sum[i] = _mm256_fmadd_ps(sum[i], a, b);
  }
  for (int i = 1; i < 12; ++i) sum[0] = _mm256_add_ps(sum[0], sum[i]);
  return sum[0][0];
}
#endif

// FLOP/s of independent f32 multiply-adds in registers on all threads together; 0 where no loop is written.
double fma_ceiling(int n_threads) {
#if defined(__x86_64__)
  const bool wide = isa_supported(IsaLevel::avx512);
  if (!isa_supported(IsaLevel::avx2)) return 0;
  constexpr int64_t kSteps = 20'000'000;
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::thread> threads;
  for (int t = 0; t < n_threads; ++t) {
    threads.emplace_back(
        [wide] { benchmark::DoNotOptimize(wide ? fma_loop_avx512(kSteps) : fma_loop_avx2(kSteps)); });
  }
  for (std::thread& t : threads) t.join();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return 2.0 * 12 * (wide ? 16 : 8) * static_cast<double>(kSteps) * n_threads / seconds;
#else
  (void)n_threads;
  return 0;
#endif
}

// Random weights, encoded; types without an encoder are not measured here.
std::vector<std::byte> weights(DType type, int64_t n, uint64_t seed) {
  std::vector<float> row(static_cast<size_t>(kEmbd));
  std::vector<std::byte> bytes(static_cast<size_t>(row_bytes(type, n)));
  Rng rng(seed);
  for (int64_t at = 0; at < n; at += kEmbd) {
    for (float& x : row) x = 0.02f * static_cast<float>(2 * rng.next_uniform() - 1);
    type_info(type).codec->encode(row.data(), bytes.data() + row_bytes(type, at), kEmbd);
  }
  return bytes;
}

enum class Product { Forward, Back, ExpertsForward, ExpertsBack };

void run(benchmark::State& state, Product product, DType type, Precision precision) {
  const int n_threads = default_threads();
  ThreadPool pool(n_threads);
  CpuBackend cpu(pool, best_isa());
  const bool experts = product == Product::ExpertsForward || product == Product::ExpertsBack;
  const std::vector<std::byte> w = weights(type, kEmbd * kFf * (experts ? kExperts : 1), 1);
  std::vector<float> x(static_cast<size_t>(kEmbd * kTokens * kUsed));
  std::vector<int32_t> ids;
  Rng rng(2);
  for (float& v : x) v = static_cast<float>(2 * rng.next_uniform() - 1);
  for (int64_t t = 0; t < kTokens; ++t) {
    const int32_t first = static_cast<int32_t>(rng.below(kExperts));
    ids.push_back(first);
    ids.push_back(static_cast<int32_t>((first + 1 + rng.below(kExperts - 1)) % kExperts));
  }
  Graph g;
  const Tensor weight = g.leaf(type, {kEmbd, kFf, experts ? kExperts : 1}, Home::Mapped, w.data(), "w");
  const Tensor routed = g.leaf(DType::I32, {kUsed, kTokens}, Home::Persistent, ids.data(), "ids");
  const auto input = [&](const Shape& ne) { return g.leaf(DType::F32, ne, Home::Persistent, x.data(), "x"); };
  switch (product) {
    case Product::Forward:
      mul_mat(weight, input({kEmbd, kTokens}), precision);
      break;
    case Product::Back:
      mul_mat_back(weight, input({kFf, kTokens}), precision);
      break;
    case Product::ExpertsForward:
      mul_mat_id(weight, input({kEmbd, 1, kTokens}), routed, precision);
      break;
    case Product::ExpertsBack:
      mul_mat_id_back(weight, input({kFf, kUsed, kTokens}), routed, precision);
      break;
  }
  Buffer memory(cpu.plan(g, g.size()).total(), "a benchmark");
  for (auto _ : state) cpu.run(g, g.size(), memory.span(), Priority::Training);
  const double flop = 2.0 * kEmbd * kFf * kTokens * (experts ? kUsed : 1);
  state.counters["GFLOP/s"] = benchmark::Counter(flop * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
  static const double ceiling = fma_ceiling(n_threads);
  if (ceiling > 0) {
    state.counters["of_fma"] =
        benchmark::Counter(flop / ceiling, benchmark::Counter::kIsIterationInvariantRate);
  }
}

}  // namespace

static void register_products() {
  const std::pair<const char*, Product> products[] = {{"MUL_MAT", Product::Forward},
                                                      {"MUL_MAT_BACK", Product::Back},
                                                      {"MUL_MAT_ID", Product::ExpertsForward},
                                                      {"MUL_MAT_ID_BACK", Product::ExpertsBack}};
  for (const auto& [name, product] : products) {
    for (const TypeInfo& info : all_types()) {
      if (!info.codec || !info.codec->encode) continue;
      for (Precision precision : {Precision::F32, Precision::BF16}) {
        const std::string label =
            fmt::format("{}/{}/{}", name, info.name, precision == Precision::BF16 ? "bf16" : "f32");
        benchmark::RegisterBenchmark(label.c_str(), run, product, info.type, precision)->UseRealTime();
      }
    }
  }
}

}  // namespace tandem

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  tandem::register_products();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
