// What an op is: one record per op, defined in its folder under ops/.
#pragma once
#include <array>
#include <complex>
#include <span>

#include "graph/graph.h"

namespace tandem {

// The sources of a node, as its shape rule sees them; absent optional ones are null.
using Sources = std::span<Node* const>;

// A tensor in a reference: numbers of type T, or int32 ids (then `f` is null).  st counts elements.
template <class T>
struct RefTensor {
  T* f = nullptr;
  int32_t* i = nullptr;
  std::array<int64_t, kMaxDims> ne{};
  std::array<int64_t, kMaxDims> st{};

  explicit operator bool() const { return f != nullptr || i != nullptr; }
  int64_t at(int64_t a, int64_t b = 0, int64_t c = 0, int64_t d = 0) const {
    return a * st[0] + b * st[1] + c * st[2] + d * st[3];
  }
  T& operator()(int64_t a, int64_t b = 0, int64_t c = 0, int64_t d = 0) const { return f[at(a, b, c, d)]; }
  int32_t& id(int64_t a, int64_t b = 0, int64_t c = 0, int64_t d = 0) const { return i[at(a, b, c, d)]; }
  int64_t rows() const { return ne[1] * ne[2] * ne[3]; }
};

// The arguments of a reference.  Weights of any format arrive decoded.
template <class T>
struct RefArgs {
  RefTensor<T> dst;
  std::array<RefTensor<T>, kMaxSrc> src;
  const void* raw_params = nullptr;

  template <class P>
  const P& params() const {
    return *static_cast<const P*>(raw_params);
  }
};

// The real part: what max, top-k, clamps and ties compare.
inline double re(float x) { return static_cast<double>(x); }
inline double re(double x) { return x; }
inline double re(const std::complex<double>& x) { return x.real(); }

class BackwardCtx;

struct OpDef {
  const char* name;
  int n_src;                            // sources an emit must bring, counting optional ones
  int n_required = -1;                  // the first so many may not be absent; -1: all
  void (*infer)(Node& y, Sources src);  // sets type, ne and, unless contiguous, nb; throws on a misfit
  void (*backward)(BackwardCtx& c);     // emits the gradient, or kNoGrad
  uint32_t no_grad = 0;                 // bit i: source i never has a gradient (ids, positions, labels)
  uint32_t inplace = 0;                 // bit i: the result may take source i's bytes if they die here
  void (*ref_f32)(const RefArgs<float>& a) = nullptr;  // the slow reference: the op's definition
  void (*ref_f64)(const RefArgs<double>& a) = nullptr;
  void (*ref_c128)(const RefArgs<std::complex<double>>& a) = nullptr;
};

// The record of an op (not of LEAF).
const OpDef& op_def(Op op);
const char* op_name(Op op);
std::span<const Op> all_ops();

// The rule of an op through which no gradient passes (ids, masks, and the _BACK ops): asking for one throws.
void kNoGrad(BackwardCtx& c);

}  // namespace tandem

#define TANDEM_REF(function) \
  .ref_f32 = function<float>, .ref_f64 = function<double>, .ref_c128 = function<std::complex<double>>
