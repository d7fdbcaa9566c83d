// Small helpers shared by shape rules and references.
#pragma once
#include <cmath>

#include "graph/op_def.h"

namespace tandem {

// Throws Internal unless source i (when present) is F32.
inline void expect_f32(const Node& y, Sources src, int i) {
  const Node* s = src[static_cast<size_t>(i)];
  if (s && s->type != DType::F32) {
    fail(Code::Internal, "{}: source {} is {}, F32 is needed", op_name(y.op), i, name_of(s->type));
  }
}

// Throws Internal unless source i (when present) is I32.
inline void expect_i32(const Node& y, Sources src, int i) {
  const Node* s = src[static_cast<size_t>(i)];
  if (s && s->type != DType::I32) {
    fail(Code::Internal, "{}: source {} is {}, I32 is needed", op_name(y.op), i, name_of(s->type));
  }
}

inline void expect_same_shape(const Node& y, Sources src, int i, int j) {
  const Shape &a = src[static_cast<size_t>(i)]->ne, &b = src[static_cast<size_t>(j)]->ne;
  if (a != b) {
    fail(Code::Internal, "{}: sources {} and {} have shapes {} and {}, which must be equal", op_name(y.op), i,
         j, to_string(a), to_string(b));
  }
}

// Throws Internal unless the condition holds; `what` is the rule in words.  Both shapes stand in the message.
inline void expect_shapes(bool fits, const Node& y, Sources src, const char* what) {
  if (fits) return;
  std::string shapes;
  for (const Node* s : src) shapes += s ? " " + to_string(s->ne) : " -";
  fail(Code::Internal, "{}: {}; the shapes are{}", op_name(y.op), what, shapes);
}

// Throws Unsupported for a product in int8, which is for serving: y is a backward product, or a gradient is
// asked for through it.  Source: codebase.md 5.
inline void expect_trainable(const Node& y, Precision precision) {
  if (precision != Precision::Int8) return;
  fail(Code::Unsupported,
       "{}: tensor {} is multiplied in int8, through which no gradient goes; use --precision f32 or bf16",
       op_name(y.op), y.src[0]->name);
}

// Calls body(i1, i2, i3) for every row of t.
template <class T, class Body>
void for_rows(const RefTensor<T>& t, Body body) {
  for (int64_t d = 0; d < t.ne[3]; ++d)
    for (int64_t b = 0; b < t.ne[2]; ++b)
      for (int64_t a = 0; a < t.ne[1]; ++a) body(a, b, d);
}

}  // namespace tandem
