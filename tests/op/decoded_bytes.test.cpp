// How much of the weights the products decode, counted by the decoders: a panel is decoded once for all the
// tokens of an expert, so a pass reads little more than what it touches.
#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <vector>

#include "base/isa.h"
#include "base/rng.h"
#include "exec/cpu/kernel_table.h"
#include "formats/format_kernels.h"
#include "graph/graph.h"
#include "graph/op_def.h"
#include "ops/mul_mat/mul_mat.h"

namespace tandem {
namespace {

int64_t n_decoded = 0;  // elements
const FormatKernels* inner = nullptr;

void count_f32(const void* blocks, float* dst, int64_t n) {
  n_decoded += n;
  inner->to_f32(blocks, dst, n);
}

void count_bf16(const void* blocks, uint16_t* dst, int64_t n) {
  n_decoded += n;
  inner->to_bf16(blocks, dst, n);
}

// A contiguous tensor.
NodeView view(DType type, std::vector<int64_t> ne, void* data, const FormatKernels* format) {
  const TypeInfo& info = type_info(type);
  NodeView v{};
  v.data = data;
  ne.resize(kMaxDims, 1);
  for (size_t i = 0; i < kMaxDims; ++i) v.ne[i] = ne[i];
  v.nb[0] = info.block_bytes;
  v.nb[1] = row_bytes(type, ne[0]);
  for (int i = 2; i < kMaxDims; ++i) v.nb[i] = v.nb[i - 1] * v.ne[i - 1];
  v.type = static_cast<int32_t>(type);
  v.block_elements = info.block_elements;
  v.block_bytes = info.block_bytes;
  v.format = format;
  return v;
}

// Routes every token to `used` distinct experts; `favourite` sends the first slot of all to expert 0.
std::vector<int32_t> routing(int64_t n_expert, int64_t used, int64_t tokens, bool favourite) {
  std::vector<int32_t> ids;
  Rng rng(5);
  for (int64_t t = 0; t < tokens; ++t) {
    std::set<int32_t> chosen;
    if (favourite) chosen.insert(0);
    while (static_cast<int64_t>(chosen.size()) < used)
      chosen.insert(static_cast<int32_t>(rng.next() % static_cast<uint64_t>(n_expert)));
    ids.insert(ids.end(), chosen.begin(), chosen.end());
  }
  return ids;
}

// Elements decoded by one run of MUL_MAT_ID or its gradient over those of the experts that are touched.
double decoded_share(Op op, Precision precision, int64_t k, int64_t n, int64_t n_expert, int64_t tokens,
                     bool favourite) {
  const IsaLevel level = best_isa();
  inner = format_kernels(DType::Q4_K, level);
  FormatKernels counting = *inner;
  counting.to_f32 = count_f32;
  if (inner->to_bf16) counting.to_bf16 = count_bf16;

  const int64_t used = 4;
  std::vector<int32_t> ids = routing(n_expert, used, tokens, favourite);
  const std::set<int32_t> touched(ids.begin(), ids.end());
  std::vector<std::byte> weights(static_cast<size_t>(row_bytes(DType::Q4_K, k) * n * n_expert));
  const int64_t from = op == Op::MUL_MAT_ID ? k : n, to = op == Op::MUL_MAT_ID ? n : k;
  std::vector<float> x(static_cast<size_t>(from * used * tokens), 1.f),
      y(static_cast<size_t>(to * used * tokens));

  KernelArgs args{};
  args.dst = view(DType::F32, {to, used, tokens}, y.data(), nullptr);
  args.src[0] = view(DType::Q4_K, {k, n, n_expert}, weights.data(), &counting);
  args.src[1] = view(DType::F32, {from, used, tokens}, x.data(), nullptr);
  args.src[2] = view(DType::I32, {used, tokens}, ids.data(), nullptr);
  args.n_src = 3;
  const MulMatIdParams params{precision, ExpertLayout::Stacked};
  args.params = &params;

  const CpuKernel* kernel = cpu_kernel(op, level);
  EXPECT_EQ(kernel->refuse(args), nullptr);
  const ScratchBytes need = kernel->scratch(args);
  const auto aligned = [](std::vector<char>& memory, size_t n_bytes) {
    memory.resize(n_bytes + 64);
    const auto at = reinterpret_cast<uintptr_t>(memory.data());
    return memory.data() + (64 - at % 64) % 64;
  };
  std::vector<char> shared, per_thread;
  args.shared_scratch = aligned(shared, need.shared);
  args.thread_scratch = aligned(per_thread, need.per_thread);
  args.thread_scratch_stride = need.per_thread;

  n_decoded = 0;
  for (const Phase& phase : kernel->phases) {
    if (!phase.run) break;
    const int64_t units = phase.units(args);
    for (int64_t u = 0; u < units; ++u) phase.run(args, u, u + 1, 0);
  }
  return static_cast<double>(n_decoded) / static_cast<double>(k * n * static_cast<int64_t>(touched.size()));
}

TEST(DecodedBytes, APanelServesAllTokensOfItsExpert) {
  for (const Op op : {Op::MUL_MAT_ID, Op::MUL_MAT_ID_BACK}) {
    for (const Precision precision : {Precision::F32, Precision::BF16}) {
      for (const int64_t tokens : {1, 40, 256}) {
        const double share = decoded_share(op, precision, 512, 320, 8, tokens, false);
        EXPECT_GE(share, 1) << op_name(op) << ", " << tokens << " tokens";
        EXPECT_LE(share, 1.3) << op_name(op) << ", " << tokens << " tokens";
      }
    }
  }
}

// The shape of a large model's experts, at the 128 tokens each that 2048 give to 128 experts: some have more.
TEST(DecodedBytes, ExpertsOfALargeModel) {
  for (const Op op : {Op::MUL_MAT_ID, Op::MUL_MAT_ID_BACK})
    EXPECT_LE(decoded_share(op, Precision::BF16, 2048, 768, 8, 256, false), 1.3) << op_name(op);
}

// One expert with most of the tokens is cut into units of bounded time, each with its own panel.
TEST(DecodedBytes, AFavouredExpertIsCut) {
  const double share = decoded_share(Op::MUL_MAT_ID, Precision::F32, 2048, 128, 64, 768, true);
  EXPECT_GT(share, 1);
  EXPECT_LE(share, 1.3);
}

}  // namespace
}  // namespace tandem
