#include "models/build.h"

namespace tandem {

void Build::begin_layer(int il, bool train) {
  layer_ = il;
  train_ = train;
  n_dropouts_ = 0;
  trained_.clear();
  attended_ = {};
}

Tensor Build::weight(const Weight& w) {
  for (const auto& [known, leaf] : leaves_) {
    if (known == &w) return leaf;
  }
  leaves_.emplace_back(&w, graph_.leaf(w.type, w.ne, Home::Mapped, w.data, w.name.c_str()));
  return leaves_.back().second;
}

Tensor Build::norm(const Weight& w, Tensor x) { return mul(rms_norm(x, hparams().rms_eps), weight(w)); }

Tensor Build::adapter_leaf(const AdapterSet& set, const AdapterPair& pair, bool b_half) {
  const Shape& shape = b_half ? pair.b_shape : pair.a_shape;
  const Tensor leaf = graph_.leaf(DType::F32, shape, Home::Persistent, b_half ? set.b(pair) : set.a(pair),
                                  pair.weight->name.c_str());
  if (train_ && pair.trainable) {
    graph_.want_grad(leaf);
    trained_.push_back({leaf, b_half ? set.b_gradient(pair) : set.a_gradient(pair)});
  }
  return leaf;
}

Tensor Build::lin(const Weight& w, Tensor x) {
  // Small F32 matrices (the router) are always multiplied in f32: a near-tie decided by rounding would move
  // tokens to other experts.
  const Precision precision = w.type == DType::F32 ? Precision::F32 : graph_.precision;
  Tensor y = mul_mat(weight(w), x, precision);
  for (const AdapterSet* set : adapters_) {
    const AdapterPair* pair = set->find(w);
    if (!pair) continue;
    Tensor in = x;
    if (train_ && pair->trainable && dropout_.p > 0) {
      in = dropout(x, DropoutParams{dropout_.seed, dropout_.step, dropout_.first_token, layer_, n_dropouts_++,
                                    dropout_.p});
    }
    const Tensor a = adapter_leaf(*set, *pair, false), b = adapter_leaf(*set, *pair, true);
    const Tensor low = scale(mul_mat(a, in, Precision::F32), pair->scale);
    y = add(y, mul_mat(b, low, Precision::F32));
  }
  return y;
}

Tensor Build::lin_id(const Weight& w, Tensor x, Tensor ids) {
  Tensor y = mul_mat_id(weight(w), x, ids);
  for (const AdapterSet* set : adapters_) {
    const AdapterPair* pair = set->find(w);
    if (!pair) continue;
    const Tensor a = adapter_leaf(*set, *pair, false), b = adapter_leaf(*set, *pair, true);
    const Tensor low = scale(mul_mat_id(a, x, ids, Precision::F32), pair->scale);
    y = add(y, mul_mat_id(b, low, ids, Precision::F32));
  }
  return y;
}

Tensor Build::rope(Tensor x) {
  const Tensor positions =
      graph_.leaf(DType::I32, {in_.n_tokens}, Home::Persistent, in_.positions, "positions");
  return tandem::rope(x, positions, {}, hparams().rope);
}

Tensor Build::attend(Tensor q, Tensor k, Tensor v, float scale) {
  const KeyWindow& keys = in_.keys;
  const Tensor first_key =
      graph_.leaf(DType::I32, {in_.n_tokens}, Home::Persistent, in_.first_key, "first_key");
  if (keys.persistent) {
    // The results of the rotation and of the projection land in the window; a view cannot be placed, so it is
    // copied.
    if (k.node->root != k.node || k.node->op == Op::LEAF) k = cont(k);
    if (v.node->root != v.node || v.node->op == Op::LEAF) v = cont(v);
    graph_.bind(k, keys.k ? keys.k + keys.n_past * k.ne(0) * k.ne(1) : nullptr);
    graph_.bind(v, keys.v ? keys.v + keys.n_past * v.ne(0) * v.ne(1) : nullptr);
  }
  attended_.k = k;
  attended_.v = v;
  attended_.n_nodes = graph_.size();
  if (keys.n_past > 0) {
    attended_.k_past =
        graph_.leaf(DType::F32, {k.ne(0), k.ne(1), keys.n_past}, Home::Persistent, keys.k, "past keys");
    attended_.v_past =
        graph_.leaf(DType::F32, {v.ne(0), v.ne(1), keys.n_past}, Home::Persistent, keys.v, "past values");
    if (k.node->wants_grad) graph_.want_grad(attended_.k_past);
    if (v.node->wants_grad) graph_.want_grad(attended_.v_past);
  }
  return attn_out(flash_attn(q, k, v, attended_.k_past, attended_.v_past, first_key, scale), q, v);
}

Tensor Build::keep_ids(const std::function<Tensor()>& choose) {
  if (in_.keep == Keep::Reuse) {
    return graph_.leaf(DType::I32, {hparams().n_expert_used, in_.n_tokens}, Home::Persistent, in_.kept_ids,
                       "expert ids");
  }
  const Tensor ids = choose();
  if (in_.keep == Keep::Save) graph_.bind(ids, in_.kept_ids);
  return ids;
}

Tensor Build::moe(const LayerWeights& w, Tensor x, RouterKind kind) {
  const HParams& h = hparams();
  const int64_t n_tokens = x.ne(1), k = h.n_expert_used;
  const Tensor logits = lin(w.ffn_gate_inp, x);  // {n_expert, T}
  const Tensor ids = keep_ids([&] { return top_k(logits, static_cast<int>(k)); });
  const auto chosen = [&](Tensor scores) {
    return reshape(get_rows(reshape(scores, {1, h.n_expert, n_tokens}), ids), {k, n_tokens});
  };
  const Tensor weights =
      kind == RouterKind::SoftmaxRenormalized ? soft_max(chosen(logits)) : chosen(soft_max(logits));

  const Tensor x3 = reshape(x, {h.n_embd, 1, n_tokens});
  // Named, since C++ leaves the order of arguments open and nodes run in the order they are emitted.
  const Tensor gate = lin_id(w.ffn_gate_exps, x3, ids);
  const Tensor up = lin_id(w.ffn_up_exps, x3, ids);
  const Tensor hidden = swiglu(gate, up);
  // The routing weight goes on the narrow side: W_down (w h) = w W_down h, and its gradient needs no expert
  // output.
  const Tensor weighted = mul(hidden, reshape(weights, {1, k, n_tokens}));
  const Tensor out = lin_id(w.ffn_down_exps, weighted, ids);
  return reshape(repeat_back(out, {h.n_embd, 1, n_tokens}), {h.n_embd, n_tokens});
}

}  // namespace tandem
