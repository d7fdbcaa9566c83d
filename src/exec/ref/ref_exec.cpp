#include "exec/ref/ref_exec.h"

#include <bit>
#include <complex>

#include "graph/op_def.h"

namespace tandem {
namespace {

constexpr uint32_t kPoisonF32 = 0x7fc0dead;  // quiet NaNs that no arithmetic makes on its own
constexpr uint64_t kPoisonF64 = 0x7ff8dead0000dead;
constexpr int32_t kPoisonI32 = static_cast<int32_t>(0xdeadbeef);

template <class T>
struct Poison;
template <>
struct Poison<float> {
  static float value() { return std::bit_cast<float>(kPoisonF32); }
  static bool is(float x) { return std::bit_cast<uint32_t>(x) == kPoisonF32; }
};
template <>
struct Poison<double> {
  static double value() { return std::bit_cast<double>(kPoisonF64); }
  static bool is(double x) { return std::bit_cast<uint64_t>(x) == kPoisonF64; }
};
template <>
struct Poison<std::complex<double>> {
  static std::complex<double> value() { return {Poison<double>::value(), Poison<double>::value()}; }
  static bool is(const std::complex<double>& x) { return Poison<double>::is(x.real()); }
};

template <class T>
void call(const OpDef& def, const RefArgs<T>& args);
template <>
void call(const OpDef& def, const RefArgs<float>& args) {
  def.ref_f32(args);
}
template <>
void call(const OpDef& def, const RefArgs<double>& args) {
  def.ref_f64(args);
}
template <>
void call(const OpDef& def, const RefArgs<std::complex<double>>& args) {
  def.ref_c128(args);
}

// Byte strides and the offset from the root, counted in elements of the decoded tensor.
struct Layout {
  int64_t offset;
  std::array<int64_t, kMaxDims> st;
};

Layout layout_of(const Node& node) {
  const TypeInfo& info = type_info(node.type);
  Layout l;
  l.offset = node.root_offset_bytes / info.block_bytes * info.block_elements;
  l.st[0] = node.nb[0] / info.block_bytes;
  for (size_t i = 1; i < kMaxDims; ++i) l.st[i] = node.nb[i] / info.block_bytes * info.block_elements;
  return l;
}

// A node whose bytes start at `base` in storage of type V, copied in ne order.
template <class V>
void gather(const Node& node, const V* base, V* dst) {
  const Layout l = layout_of(node);
  for (int64_t d = 0; d < node.ne[3]; ++d)
    for (int64_t c = 0; c < node.ne[2]; ++c)
      for (int64_t b = 0; b < node.ne[1]; ++b)
        for (int64_t a = 0; a < node.ne[0]; ++a)
          *dst++ = base[l.offset + a * l.st[0] + b * l.st[1] + c * l.st[2] + d * l.st[3]];
}

}  // namespace

template <class T>
RefExec<T>::RefExec(const Graph& graph, int n_nodes)
    : graph_(graph),
      n_nodes_(n_nodes < 0 ? graph.size() : n_nodes),
      storage_(static_cast<size_t>(n_nodes_)),
      copies_(static_cast<size_t>(n_nodes_)) {
  TANDEM_CHECK(n_nodes_ <= graph.size());
  for (int i = 0; i < n_nodes_; ++i) {
    const Node& node = graph.node(i);
    if (node.op == Op::LEAF || node.root != &node) continue;
    Storage& s = storage_[static_cast<size_t>(i)];
    const size_t n = static_cast<size_t>(node.elements());
    if (node.type == DType::I32) {
      s.i.resize(n);
    } else {
      TANDEM_CHECK(node.type == DType::F32);
      s.f.resize(n);
    }
  }
}

template <class T>
void RefExec<T>::set(Tensor leaf, std::span<const T> values) {
  TANDEM_CHECK(leaf && leaf.graph == &graph_ && leaf.node->op == Op::LEAF && leaf.node->index < n_nodes_);
  TANDEM_CHECK(static_cast<int64_t>(values.size()) == leaf.node->elements());
  Storage& s = storage_[static_cast<size_t>(leaf.node->index)];
  s.f.assign(values.begin(), values.end());
  s.filled = true;
}

template <class T>
void RefExec<T>::fill_leaf(const Node& leaf) {
  Storage& s = storage_[static_cast<size_t>(leaf.index)];
  if (s.filled) return;
  const int64_t n = leaf.elements();
  if (!leaf.data && n > 0)
    fail(Code::Internal, "leaf {} {} has no values to run on", leaf.name, to_string(leaf.ne));
  const TypeInfo& info = type_info(leaf.type);
  if (!info.codec) fail(Code::Unsupported, "leaf {}: {} cannot be decoded", leaf.name, info.name);
  std::vector<float> decoded(static_cast<size_t>(n));
  info.codec->decode(leaf.data, decoded.data(), n);
  s.f.assign(decoded.begin(), decoded.end());
  s.filled = true;
}

template <class T>
void RefExec<T>::poison_storage(const Node& node) {
  Storage& s = storage_[static_cast<size_t>(node.index)];
  s.f.assign(s.f.size(), Poison<T>::value());
  s.i.assign(s.i.size(), kPoisonI32);
}

template <class T>
void RefExec<T>::check_written(const Node& node) const {
  const Storage& s = storage_[static_cast<size_t>(node.index)];
  const size_t n = s.f.size() + s.i.size();
  for (size_t i = 0; i < n; ++i) {
    if (s.f.empty() ? s.i[i] == kPoisonI32 : Poison<T>::is(s.f[i])) {
      fail(Code::Internal, "{}: the reference left element {} of {} {} unwritten", op_name(node.op), i,
           node.index, to_string(node.ne));
    }
  }
}

template <class T>
void RefExec<T>::run(int first, int last) {
  TANDEM_CHECK(0 <= first && last <= n_nodes_);
  auto tensor = [&](const Node& node) {
    RefTensor<T> t;
    const Layout l = layout_of(node);
    t.ne = node.ne.ne;
    t.st = l.st;
    const Node& root = *node.root;
    Storage& s = storage_[static_cast<size_t>(root.index)];
    if (root.type == DType::I32) {
      int32_t* ids = root.op == Op::LEAF ? static_cast<int32_t*>(root.data) : s.i.data();
      if (!ids && root.elements() > 0) fail(Code::Internal, "leaf {} has no values to run on", root.name);
      t.i = ids + l.offset;
    } else {
      if (root.op == Op::LEAF) fill_leaf(root);
      t.f = s.f.data() + l.offset;
    }
    return t;
  };
  for (int i = first; i < last; ++i) {
    const Node& node = graph_.node(i);
    if (node.op == Op::LEAF || node.op == Op::VIEW || node.dropped) continue;
    RefArgs<T> args;
    for (int k = 0; k < node.n_src; ++k) {
      const Node* src = node.src[static_cast<size_t>(k)];
      if (src) args.src[static_cast<size_t>(k)] = tensor(*src);
    }
    if (poison) poison_storage(node);
    args.dst = tensor(node);
    args.raw_params = node.params.data();
    call(op_def(node.op), args);
    if (poison) check_written(node);
  }
}

template <class T>
std::span<const T> RefExec<T>::get(Tensor t) {
  TANDEM_CHECK(t && t.graph == &graph_ && t.node->index < n_nodes_ && t.type() != DType::I32);
  if (t.node->root->op == Op::LEAF) fill_leaf(*t.node->root);
  const Storage& s = storage_[static_cast<size_t>(t.node->root->index)];
  if (t.node->root == t.node) return s.f;
  std::vector<T>& copy = copies_[static_cast<size_t>(t.node->index)];
  copy.resize(static_cast<size_t>(t.node->elements()));
  gather(*t.node, s.f.data(), copy.data());
  return copy;
}

template <class T>
std::vector<int32_t> RefExec<T>::get_ids(Tensor t) const {
  TANDEM_CHECK(t && t.graph == &graph_ && t.node->index < n_nodes_ && t.type() == DType::I32);
  const Node& root = *t.node->root;
  const int32_t* base = root.op == Op::LEAF ? static_cast<const int32_t*>(root.data)
                                            : storage_[static_cast<size_t>(root.index)].i.data();
  std::vector<int32_t> ids(static_cast<size_t>(t.node->elements()));
  gather(*t.node, base, ids.data());
  return ids;
}

template <class T>
std::span<T> RefExec<T>::storage(Tensor t) {
  TANDEM_CHECK(t && t.graph == &graph_ && t.node->index < n_nodes_ && t.node->root == t.node &&
               t.type() != DType::I32);
  if (t.node->op == Op::LEAF) fill_leaf(*t.node);
  return storage_[static_cast<size_t>(t.node->index)].f;
}

template class RefExec<float>;
template class RefExec<double>;
template class RefExec<std::complex<double>>;

}  // namespace tandem
