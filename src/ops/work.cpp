#include "ops/work.h"

#include <algorithm>
#include <vector>

#include "formats/format_kernels.h"
#include "ops/mul_mat/mul_mat.h"

namespace tandem {
namespace {

double bytes_of(const Node* n) { return n ? static_cast<double>(n->bytes()) : 0; }
const Node& src(const Node& n, size_t i) { return *n.src[i]; }
double count(int64_t n) { return static_cast<double>(n); }

// How many different values in [0, n) an I32 tensor holds, or could hold.
double distinct_ids(const Node& ids, int64_t n) {
  if (ids.op != Op::LEAF || !ids.data) return count(std::min(n, ids.elements()));
  std::vector<bool> seen(static_cast<size_t>(n), false);
  const auto* p = static_cast<const char*>(ids.data);
  for (int64_t b = 0; b < ids.ne[1]; ++b) {
    for (int64_t a = 0; a < ids.ne[0]; ++a) {
      const int32_t id = *reinterpret_cast<const int32_t*>(p + a * ids.nb[0] + b * ids.nb[1]);
      if (id >= 0 && id < n) seen[static_cast<size_t>(id)] = true;
    }
  }
  return count(std::count(seen.begin(), seen.end(), true));
}

// Bytes of the experts that the slots of a product name: as {K, N, E}, ids {k, T}.
double expert_bytes(const Node& as, const Node& ids) {
  return bytes_of(&as) * distinct_ids(ids, as.ne[2]) / count(as.ne[2]);
}

// Pairs of a query and a key it sees: T queries after P keys.
double attention_pairs(int64_t n_queries, int64_t n_past) {
  return count(n_queries) * count(n_past) + count(n_queries) * count(n_queries + 1) / 2;
}

double all_bytes(const Node& n) {
  double bytes = bytes_of(&n);
  for (size_t i = 0; i < static_cast<size_t>(n.n_src); ++i) bytes += bytes_of(n.src[i]);
  return bytes;
}

// q {D, H, T}, v {Dv, H_kv, T}, k_past {D, H_kv, P} or absent.  Backward: q.k again, and the products of the
// gradients of v, of the weights, of q and of k.
double attention_operations(const Node& n, bool back) {
  const Node& q = src(n, 0);
  const double d = count(q.ne[0]), d_v = count(src(n, 2).ne[0]);
  const double pairs = count(q.ne[1]) * attention_pairs(q.ne[2], n.src[3] ? n.src[3]->ne[2] : 0);
  return 2 * pairs * (back ? 3 * d + 2 * d_v : d + d_v);
}

// Counted as the recurrence has them, {d_k, d_v} each, of a token and value head: S^T k, k u^T and S^T q;
// backward the first two again, and S do, q do^T, dS^T k, dS u, S de and k de^T.
double delta_operations(const Node& n, bool back) {
  return 2 * (back ? 8 : 3) * count(src(n, 0).ne[0]) * count(src(n, 2).elements());
}

}  // namespace

Work& Work::operator+=(const Work& other) {
  operations += other.operations;
  bytes += other.bytes;
  precision = std::max(precision, other.precision);
  return *this;
}

Work work_of(const Node& n) {
  if (n.op == Op::LEAF || n.op == Op::VIEW || n.dropped || n.elements() == 0) return {};
  Work w;
  w.bytes = all_bytes(n);
  switch (n.op) {
    case Op::MUL_MAT:
    case Op::MUL_MAT_BACK:
      w.operations = 2 * count(src(n, 0).ne.elements()) * count(src(n, 1).ne.rows());
      w.precision = product_precision(params_of<MulMatParams>(n).precision, src(n, 0).type);
      break;
    case Op::OUT_PROD:
      w.operations = 2 * count(n.elements()) * count(src(n, 0).ne.rows());
      break;
    case Op::MUL_MAT_ID:
    case Op::MUL_MAT_ID_BACK: {
      const Node &as = src(n, 0), &ids = src(n, 2);
      w.operations = 2 * count(as.ne[0] * as.ne[1]) * count(ids.elements());
      w.bytes += expert_bytes(as, ids) - bytes_of(&as);
      w.precision = product_precision(params_of<MulMatIdParams>(n).precision, as.type);
      break;
    }
    case Op::OUT_PROD_ID:
      w.operations = 2 * count(n.ne[0] * n.ne[1]) * count(src(n, 2).elements());
      break;
    case Op::FLASH_ATTN:
    case Op::FLASH_ATTN_BACK:
      w.operations = attention_operations(n, n.op == Op::FLASH_ATTN_BACK);
      break;
    case Op::GATED_DELTA_NET:
    case Op::GATED_DELTA_NET_BACK:
      w.operations = delta_operations(n, n.op == Op::GATED_DELTA_NET_BACK);
      break;
    case Op::GET_ROWS: {  // only the rows that are gathered
      const Node& x = src(n, 0);
      w.bytes += distinct_ids(src(n, 1), x.ne[1]) * count(row_bytes(x.type, x.ne[0])) * count(x.ne[2]) -
                 bytes_of(&x);
      break;
    }
    default:
      break;
  }
  return w;
}

}  // namespace tandem
