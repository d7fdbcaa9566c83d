#include "models/build.h"

namespace tandem {

void Build::begin_layer(int il, bool train) {
  layer_ = il;
  train_ = train;
  n_dropouts_ = 0;
  trained_.clear();
  attended_ = {};
  carried_.clear();
  n_nodes_for_later_ = 0;
}

Tensor Build::weight(const Weight& w) {
  for (const auto& [known, leaf] : leaves_) {
    if (known == &w) return leaf;
  }
  leaves_.emplace_back(&w, graph_.leaf(w.type, w.ne, Home::Mapped, w.data, w.name.c_str()));
  return leaves_.back().second;
}

namespace {

Tensor activate(Tensor gate, Tensor up, Activation activation) {
  switch (activation) {
    case Activation::Swiglu:
      return swiglu(gate, up);
    case Activation::ClampedSwiglu:
      return swiglu_oai(gate, up);
  }
  fail(Code::Internal, "an activation that is not one");
}

}  // namespace

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

Tensor Build::lin(const Weight& w, Tensor x, const Weight& bias) {
  const Tensor y = lin(w, x);
  return bias.present() ? add(y, weight(bias)) : y;
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

Tensor Build::positions() {
  return graph_.leaf(DType::I32, {in_.n_tokens}, Home::Persistent, in_.positions, "positions");
}

Tensor Build::rope(Tensor x) {
  const Weight& factors = model_.global().rope_freqs;
  return tandem::rope(x, positions(), factors.present() ? weight(factors) : Tensor{}, hparams().rope);
}

Tensor Build::attend(Tensor q, Tensor k, Tensor v, float scale, const AttendOptions& options) {
  const KeyWindow& keys = in_.keys;
  const Tensor first_key = graph_.leaf(DType::I32, {in_.n_tokens}, Home::Persistent,
                                       options.sliding ? in_.first_key_sliding : in_.first_key, "first_key");
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
  n_nodes_for_later_ = graph_.size();
  if (keys.n_past > 0) {
    attended_.k_past =
        graph_.leaf(DType::F32, {k.ne(0), k.ne(1), keys.n_past}, Home::Persistent, keys.k, "past keys");
    attended_.v_past =
        graph_.leaf(DType::F32, {v.ne(0), v.ne(1), keys.n_past}, Home::Persistent, keys.v, "past values");
    if (k.node->wants_grad) graph_.want_grad(attended_.k_past);
    if (v.node->wants_grad) graph_.want_grad(attended_.v_past);
  }
  const Tensor packed = flash_attn(q, k, v, attended_.k_past, attended_.v_past, first_key, scale);
  const Tensor out = attn_out(packed, q, v);
  if (!options.sinks) return out;
  // A sink s adds exp(s) to the softmax's denominator, and no value: out exp(lse) / (exp(lse) + exp(s)).
  const Tensor against = tandem::scale(repeat(weight(*options.sinks), {q.ne(1), q.ne(2)}), -1.f);
  const Tensor share = sigmoid(add(against, attn_lse(packed, q, v)));
  return mul(out, reshape(share, {1, q.ne(1), q.ne(2)}));
}

Tensor Build::state_before(const Shape& ne) {
  int64_t offset = 0;
  for (const Carried& c : carried_) offset += c.before.shape().elements();
  const Tensor before =
      graph_.leaf(DType::F32, ne, Home::Persistent,
                  in_.state.before ? const_cast<float*>(in_.state.before) + offset : nullptr, "state");
  if (in_.state.wants_grad) graph_.want_grad(before);
  carried_.push_back({before, {}, offset});
  return before;
}

void Build::leave_state(int i, Tensor after) {
  Carried& c = carried_[static_cast<size_t>(i)];
  TANDEM_CHECK(after.shape() == c.before.shape());
  if (in_.state.keep) {
    // A view cannot be placed, so it is copied.
    if (after.node->root != after.node || after.node->op == Op::LEAF) after = cont(after);
    graph_.bind(after, in_.state.after ? in_.state.after + c.offset : nullptr);
  }
  c.after = after;
  n_nodes_for_later_ = graph_.size();
}

Tensor Build::conv(const Weight& taps, Tensor x) {
  const int i = static_cast<int>(carried_.size());
  const Tensor before = state_before({x.ne(0), taps.ne[0] - 1});
  const Tensor y = ssm_conv(x, weight(taps), before, positions());
  leave_state(i, conv_state(x, before));
  return y;
}

Tensor Build::delta(Tensor q, Tensor k, Tensor v, Tensor g, Tensor beta, DeltaHeads heads) {
  const int i = static_cast<int>(carried_.size());
  const Tensor before = state_before({k.ne(0), v.ne(0), v.ne(1)});
  const Tensor packed = gated_delta_net(q, k, v, g, beta, before, positions(), heads);
  leave_state(i, delta_state(packed, v, before));
  return delta_out(packed, v);
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

// logits {n_expert, T} -> ids {k, T}.
Tensor Build::choose_experts(const LayerWeights& w, Tensor logits, const Routing& routing) {
  const int k = static_cast<int>(hparams().n_expert_used);
  // Larger logits have larger scores: without bias or groups the choice is among logits, which do not
  // saturate.
  if (!w.exp_probs_b.present() && routing.n_group == 0) return top_k(logits, k);
  Tensor scores = routing.gating == Gating::Sigmoid ? sigmoid(logits) : soft_max(logits);
  if (w.exp_probs_b.present()) scores = add(scores, weight(w.exp_probs_b));
  if (routing.n_group == 0) return top_k(scores, k);
  // A group counts by its two best where experts are scored one by one (DeepSeek-V3), by its best where they
  // share a softmax (V2).
  const int n_best = routing.gating == Gating::Sigmoid ? 2 : 1;
  return top_k(scores, k, {routing.n_group, routing.n_group_used, n_best});
}

Tensor Build::router_weights(const LayerWeights& w, Tensor x, const Routing& routing, Tensor* ids) {
  const HParams& h = hparams();
  const int64_t n_tokens = x.ne(1), k = h.n_expert_used;
  const Tensor logits = lin(w.ffn_gate_inp, x, w.ffn_gate_inp_bias);  // {n_expert, T}
  *ids = keep_ids([&] { return choose_experts(w, logits, routing); });
  const auto chosen = [&](Tensor of_all) {
    return reshape(get_rows(reshape(of_all, {1, h.n_expert, n_tokens}), *ids), {k, n_tokens});
  };
  Tensor weights;
  if (routing.gating == Gating::Softmax) {
    weights = routing.renormalize ? soft_max(chosen(logits)) : chosen(soft_max(logits));
  } else if (!routing.renormalize) {
    weights = sigmoid(chosen(logits));
  } else {
    // p / sum(p) = softmax(ln p), and ln sigmoid(z) = -softplus(-z); no sum is too small to divide by.
    weights = soft_max(scale(softplus(scale(chosen(logits), -1.f)), -1.f));
  }
  return routing.scale == 1.f ? weights : scale(weights, routing.scale);
}

// The column of each slot's expert: bias {n, n_expert}, ids {k, T} -> {n, k, T}.
Tensor Build::expert_bias(const Weight& bias, Tensor ids) {
  const int64_t n_slots = ids.ne(0) * ids.ne(1);
  const Tensor rows = get_rows(weight(bias), reshape(ids, {n_slots}));
  return reshape(rows, {bias.ne[0], ids.ne(0), ids.ne(1)});
}

Tensor Build::moe(const LayerWeights& w, Tensor x, const Routing& routing, Activation activation) {
  const HParams& h = hparams();
  const int64_t n_tokens = x.ne(1), k = h.n_expert_used;
  Tensor ids;
  const Tensor weights = reshape(router_weights(w, x, routing, &ids), {1, k, n_tokens});
  const auto biased = [&](Tensor y, const Weight& bias) {
    return bias.present() ? add(y, expert_bias(bias, ids)) : y;
  };

  const Tensor x3 = reshape(x, {h.n_embd, 1, n_tokens});
  // Named, since C++ leaves the order of arguments open and nodes run in the order they are emitted.
  const Tensor gate = biased(lin_id(w.ffn_gate_exps, x3, ids), w.ffn_gate_exps_bias);
  const Tensor up = biased(lin_id(w.ffn_up_exps, x3, ids), w.ffn_up_exps_bias);
  const Tensor hidden = activate(gate, up, activation);
  // The routing weight goes on the narrow side: W_down (w h) = w W_down h, and its gradient needs no expert
  // output.
  const Tensor weighted = mul(hidden, weights);
  Tensor out = lin_id(w.ffn_down_exps, weighted, ids);
  if (w.ffn_down_exps_bias.present()) out = add(out, mul(expert_bias(w.ffn_down_exps_bias, ids), weights));
  return reshape(repeat_back(out, {h.n_embd, 1, n_tokens}), {h.n_embd, n_tokens});
}

Tensor Build::ffn(const Weight& gate, const Weight& up, const Weight& down, Tensor x) {
  const Tensor g = lin(gate, x);
  const Tensor u = lin(up, x);
  return lin(down, swiglu(g, u));
}

Tensor Build::shared_expert(const LayerWeights& w, Tensor x) {
  const Tensor y = ffn(w.ffn_gate_shexp, w.ffn_up_shexp, w.ffn_down_shexp, x);
  if (!w.ffn_gate_inp_shexp.present()) return y;
  return mul(y, sigmoid(lin(w.ffn_gate_inp_shexp, x)));
}

}  // namespace tandem
