// MUL_MAT_ID, MUL_MAT_ID_BACK, OUT_PROD_ID: the (slot, token) pairs are bucketed by expert; a unit decodes
// one panel of one expert and multiplies a block of that expert's pairs with it, straight into their rows of
// the result.
#include "ops/mul_mat/gemm.h"
#include "ops/mul_mat/int8.h"
#include "ops/mul_mat/mul_mat.h"

namespace tandem::TANDEM_ISA {
namespace {

// sources: 0 as {K, N, E}, 1 the activations (b, or grad), 2 ids {k, T}
Arithmetic arithmetic(const KernelArgs& a) {
  return arithmetic_of(a.src[0], static_cast<const MulMatIdParams*>(a.params)->precision);
}
int64_t n_pairs(const KernelArgs& a) { return a.src[2].ne[0] * a.src[2].ne[1]; }

// How the pairs are cut: for how many experts, and about how many pairs an item holds (even_blocks).
struct Cut {
  int64_t experts;
  int64_t per_item;
};

// A block of an expert's pairs.
struct Item {
  int32_t expert;
  int32_t begin;  // in the list of pairs
  int32_t count;
};

// What phase 0 leaves for phase 1, in shared scratch.  A pair is t * k + i.
struct Buckets {
  int32_t* n_items;
  Item* items;
  int32_t* pairs;   // sorted by expert, then in their order
  int32_t* offset;  // per expert: where its pairs end
  char* converted;  // activations in the tile's form (not in f32)
};

int64_t max_items(const KernelArgs& a, Cut cut) {
  const int64_t pairs = n_pairs(a), experts = cut.experts < pairs ? cut.experts : pairs;
  return experts + pairs / cut.per_item;
}

size_t aligned(size_t n) { return (n + 63) / 64 * 64; }

size_t bucket_bytes(const KernelArgs& a, Cut cut) {
  return 64 + aligned((size_t)max_items(a, cut) * sizeof(Item)) + aligned((size_t)n_pairs(a) * 4) +
         aligned((size_t)(cut.experts + 1) * 4);
}

Buckets buckets(const KernelArgs& a, Cut cut) {
  char* p = a.shared_scratch;
  Buckets b;
  b.n_items = reinterpret_cast<int32_t*>(p);
  p += 64;
  b.items = reinterpret_cast<Item*>(p);
  p += aligned((size_t)max_items(a, cut) * sizeof(Item));
  b.pairs = reinterpret_cast<int32_t*>(p);
  p += aligned((size_t)n_pairs(a) * 4);
  b.offset = reinterpret_cast<int32_t*>(p);
  p += aligned((size_t)(cut.experts + 1) * 4);
  b.converted = p;
  return b;
}

void sort_pairs(const KernelArgs& a, const Buckets& b, Cut cut) {
  const NodeView& ids = a.src[2];
  const int64_t k = ids.ne[0], tokens = ids.ne[1], experts = cut.experts;
  const auto id = [&](int64_t i, int64_t t) {
    return *reinterpret_cast<const int32_t*>(static_cast<const char*>(ids.data) + i * ids.nb[0] +
                                             t * ids.nb[1]);
  };
  memset(b.offset, 0, (size_t)(experts + 1) * 4);
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t i = 0; i < k; ++i) ++b.offset[id(i, t) + 1];
  for (int64_t e = 0; e < experts; ++e) b.offset[e + 1] += b.offset[e];
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t i = 0; i < k; ++i) b.pairs[b.offset[id(i, t)]++] = (int32_t)(t * k + i);
  // Filling moved each offset to its expert's end, and there they stay.
  int32_t n = 0, begin = 0;
  for (int64_t e = 0; e < experts; ++e) {
    const int64_t count = b.offset[e] - begin, blocks = count > 0 ? even_blocks(count, cut.per_item) : 0;
    for (int64_t i = 0; i < blocks; ++i) {
      const int32_t from = (int32_t)(count * i / blocks), to = (int32_t)(count * (i + 1) / blocks);
      b.items[n++] = {(int32_t)e, begin + from, to - from};
    }
    begin = b.offset[e];
  }
  *b.n_items = n;
}

const char* refuse(const KernelArgs& a) {
  if (a.src[1].nb[0] != 4 || a.dst.nb[0] != 4) return "activation rows must be contiguous";
  if (n_pairs(a) >= INT32_MAX) return "more routed slots than fit 31 bits";
  return nullptr;
}

// Points the thread's row lists at the pairs of an item.  Slot i of token t reads activation row i % ne1.
template <class P>
void bind_pairs(const KernelArgs& a, const Buckets& b, const Item& item, const ThreadScratch& s) {
  const NodeView& x = a.src[1];
  const int64_t k = a.src[2].ne[0];
  for (int32_t j = 0; j < item.count; ++j) {
    const int64_t pair = b.pairs[item.begin + j], t = pair / k, i = pair % k;
    s.a[j] = operand_row<P>(x, b.converted, t * x.ne[1] + i % x.ne[1]);
    s.c[j] = reinterpret_cast<float*>(static_cast<char*>(a.dst.data) + i * a.dst.nb[1] + t * a.dst.nb[2]);
  }
}

// One direction: how many panels an expert has, how the pairs are cut, and the unit's product.
struct Forward {
  static constexpr bool kInt8 = true;
  static int64_t panels(const KernelArgs& a) { return ceil_div(a.src[0].ne[1], kPanelCols); }
  static Cut cut(const KernelArgs& a) { return {a.src[0].ne[2], unit_tokens(kPanelCols * a.src[0].ne[0])}; }
  template <class P>
  static void unit(const NodeView& w, const char* expert, int64_t panel, int64_t m, const ThreadScratch& s) {
    forward_unit(P{}, w, expert, panel * kPanelCols, m, s);
  }
};

struct Back {
  static constexpr bool kInt8 = false;  // refused where the node is made
  static int64_t panels(const KernelArgs& a) { return ceil_div(a.src[0].ne[0], kBackCols); }
  static Cut cut(const KernelArgs& a) { return {a.src[0].ne[2], unit_tokens(kBackCols * a.src[0].ne[1])}; }
  template <class P>
  static void unit(const NodeView& w, const char* expert, int64_t panel, int64_t m, const ThreadScratch& s) {
    back_unit<P>(w, expert, panel * kBackCols, m, s);
  }
};

template <class Direction>
ScratchBytes scratch(const KernelArgs& a) {
  const size_t converted = converted_bytes_for(arithmetic(a), a.src[1]);
  return {bucket_bytes(a, Direction::cut(a)) + converted, kThreadScratchBytes};
}

// --- phase 0: unit 0 sorts the pairs, the others convert activations ---
int64_t prepare_units(const KernelArgs& a) {
  return 1 + (arithmetic(a) == Arithmetic::F32 ? 0 : ceil_div(rows_of(a.src[1]), kConvertRows));
}

template <class Direction>
void prepare(const KernelArgs& a, int64_t lo, int64_t hi, int) {
  const Buckets b = buckets(a, Direction::cut(a));
  for (int64_t u = lo; u < hi; ++u) {
    if (u == 0) {
      sort_pairs(a, b, Direction::cut(a));
    } else {
      convert_unit_to(arithmetic(a), a.src[1], b.converted, u - 1);
    }
  }
}

// --- phase 1: a unit is one panel of one item.  There are at most max_items items; units past the last are
// empty. ---
template <class Direction>
int64_t units(const KernelArgs& a) {
  return max_items(a, Direction::cut(a)) * Direction::panels(a);
}

template <class Direction, class P>
void run_as(const KernelArgs& a, int64_t lo, int64_t hi, int thread) {
  const Buckets b = buckets(a, Direction::cut(a));
  const ThreadScratch s = thread_scratch(a, thread);
  const int64_t panels = Direction::panels(a);
  for (int64_t u = lo; u < hi && u / panels < *b.n_items; ++u) {
    const Item& item = b.items[u / panels];
    const char* expert = static_cast<const char*>(a.src[0].data) + item.expert * a.src[0].nb[2];
    bind_pairs<P>(a, b, item, s);
    Direction::template unit<P>(a.src[0], expert, u % panels, item.count, s);
  }
}

template <class Direction>
void run(const KernelArgs& a, int64_t lo, int64_t hi, int thread) {
  switch (arithmetic(a)) {
    case Arithmetic::F32:
      return run_as<Direction, F32Path>(a, lo, hi, thread);
    case Arithmetic::BF16:
      return run_as<Direction, Bf16Path>(a, lo, hi, thread);
    case Arithmetic::Int8:
      if constexpr (Direction::kInt8) run_as<Direction, Int8Path>(a, lo, hi, thread);
      return;
  }
}

// --- OUT_PROD_ID: a unit is one unit of one expert's outer product ---
Cut out_cut(const KernelArgs& a) { return {a.dst.ne[2], INT32_MAX}; }

const char* refuse_out(const KernelArgs& a) {
  if (a.src[0].nb[0] != 4 || a.src[1].nb[0] != 4) return "rows must be contiguous";
  if (n_pairs(a) >= INT32_MAX) return "more routed slots than fit 31 bits";
  return nullptr;
}

ScratchBytes out_prod_scratch(const KernelArgs& a) {
  return {bucket_bytes(a, out_cut(a)), out_scratch().per_thread};
}

int64_t one_unit(const KernelArgs&) { return 1; }

void out_prepare(const KernelArgs& a, int64_t, int64_t, int) {
  sort_pairs(a, buckets(a, out_cut(a)), out_cut(a));
}

int64_t out_prod_units(const KernelArgs& a) { return a.dst.ne[2] * out_units(a.dst.ne[0], a.dst.ne[1]); }

void out_prod(const KernelArgs& args, int64_t lo, int64_t hi, int thread) {
  const Buckets buckets_of = buckets(args, out_cut(args));
  const NodeView &a = args.src[0], &b = args.src[1];
  const int64_t k = args.src[2].ne[0], per_expert = out_units(args.dst.ne[0], args.dst.ne[1]);
  for (int64_t u = lo; u < hi; ++u) {
    const int64_t e = u / per_expert, begin = e ? buckets_of.offset[e - 1] : 0,
                  steps = buckets_of.offset[e] - begin;
    const auto a_row = [&](int64_t s) {
      const int64_t pair = buckets_of.pairs[begin + s];
      return reinterpret_cast<const float*>(row_of(a, pair / k * a.ne[1] + pair % k % a.ne[1]));
    };
    const auto b_row = [&](int64_t s) {
      return reinterpret_cast<const float*>(row_of(b, buckets_of.pairs[begin + s]));
    };
    float* dst = reinterpret_cast<float*>(static_cast<char*>(args.dst.data) + e * args.dst.nb[2]);
    out_unit(dst, args.dst.ne[0], args.dst.ne[1], args.dst.nb[1] / 4, u % per_expert, steps, a_row, b_row,
             args.thread_scratch + (size_t)thread * args.thread_scratch_stride);
  }
}

}  // namespace

TANDEM_KERNEL(MUL_MAT_ID) = {
    refuse, scratch<Forward>, {{prepare_units, prepare<Forward>}, {units<Forward>, run<Forward>}}};
TANDEM_KERNEL(MUL_MAT_ID_BACK) = {
    refuse, scratch<Back>, {{prepare_units, prepare<Back>}, {units<Back>, run<Back>}}};
TANDEM_KERNEL(OUT_PROD_ID) = {
    refuse_out, out_prod_scratch, {{one_unit, out_prepare}, {out_prod_units, out_prod}}};

}  // namespace tandem::TANDEM_ISA
