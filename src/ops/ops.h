// Builders of every op.  Shapes in ne order, fastest first; ggml's names and broadcast rules where ggml has
// the op. Each throws Internal when shapes do not fit (a bug in a model description) and Unsupported for what
// an op refuses.
#pragma once
#include "graph/graph.h"

namespace tandem {

// --- shape
// ---------------------------------------------------------------------------------------------------------
// A window onto x: same bytes, other shape.  `offset_bytes` from x's first element.  nb of a contiguous
// tensor.
Tensor view(Tensor x, const Shape& ne, int64_t offset_bytes = 0);
// The same with strides in bytes; nb[0] must be the element size.
Tensor view_strided(Tensor x, const Shape& ne, const std::array<int64_t, kMaxDims>& nb, int64_t offset_bytes);
// x with another shape of as many elements; x must be contiguous.
Tensor reshape(Tensor x, const Shape& ne);
// The gradient of a view: zeros of shape `ne` with dy added at the view's place.  dy {any}, nb as the view
// had.
Tensor view_back(Tensor dy, const Shape& ne, const std::array<int64_t, kMaxDims>& nb, int64_t offset_bytes);
// x copied into contiguous memory.
Tensor cont(Tensor x);
// Each row of a with that of b behind it: a {m, ...}, b {n, ...}, the other dimensions equal -> {m + n, ...}.
Tensor concat(Tensor a, Tensor b);
// x {n...} tiled up to `ne` (every ne[i] a multiple of x's): result[i] = x[i % n].
Tensor repeat(Tensor x, const Shape& ne);
// The sum over the tiles: x folded down to `ne`, result[m] = sum of x[i] with i % ne == m.  Source:
// gradients.md 2.4.
Tensor repeat_back(Tensor x, const Shape& ne);

// --- element by element
// -------------------------------------------------------------------------------------------- a + b, b tiled
// up to a's shape.
Tensor add(Tensor a, Tensor b);
// a * b element by element, b tiled up to a's shape.
Tensor mul(Tensor a, Tensor b);
// x * s.
Tensor scale(Tensor x, float s);
// x with elements zeroed at probability p and the rest divided by 1 - p.  The mask is a function of (seed,
// step, layer, stream, token, channel), token = first_token + index along the rows.  Its gradient is itself.
struct DropoutParams {
  uint64_t seed;
  int64_t step;
  int64_t first_token;
  int32_t layer;
  int32_t stream;  // tells apart several masks of one layer
  float p;         // 0 <= p < 1
};
Tensor dropout(Tensor x, const DropoutParams& params);
// 1 / (1 + exp(-x)); x / (1 + exp(-x)); max(x, 0) + ln(1 + exp(-|x|)).  Source:
// architectures.md 1.5, 1.6, 2.5.
Tensor sigmoid(Tensor x);
Tensor silu(Tensor x);
Tensor softplus(Tensor x);
// Their gradients: of sigmoid from its result y, of the others from x.  Source: gradients.md 3.
Tensor sigmoid_back(Tensor dy, Tensor y);
Tensor silu_back(Tensor dy, Tensor x);
Tensor softplus_back(Tensor dy, Tensor x);
// silu(gate) * up, same shapes.  Source: gradients.md 3.
Tensor swiglu(Tensor gate, Tensor up);
// {n, ..., 2 blocks}: the gradients of gate and up, packed one after the other in one flat tensor {2 *
// elements}.
Tensor swiglu_back(Tensor gate, Tensor up, Tensor dh);
// g sigmoid(alpha g) (u + 1) with g = min(gate, limit) and u = up within +- limit, same shapes; the gradients
// packed as swiglu_back's.  By default the numbers of gpt-oss.  Source: architectures.md 1.5, gradients.md 3.
Tensor swiglu_oai(Tensor gate, Tensor up, float alpha = 1.702f, float limit = 7.f);
Tensor swiglu_oai_back(Tensor gate, Tensor up, Tensor dh, float alpha = 1.702f, float limit = 7.f);

// --- rows
// ----------------------------------------------------------------------------------------------------------
// result[:, i, j] = x[:, ids[i, j], j].  x {n, rows, B} any type, ids {k, B} I32 in [0, rows) -> {n, k, B}
// F32.
Tensor get_rows(Tensor x, Tensor ids);
// result[:, r, j] = sum of dy[:, i, j] with ids[i, j] == r; rows never gathered are zero.  dy {n, k, B} ->
// {n, rows, B}. Source: gradients.md 2.3.
Tensor get_rows_back(Tensor dy, Tensor ids, int64_t rows);
// The k largest of each row, larger first, the smaller index on ties.  x {n, T} -> {k, T} I32.
Tensor top_k(Tensor x, int k);
// The same among the numbers of some groups: a row is n_group equal runs of numbers, of which the n_used with
// the largest sums of their n_best largest numbers take part, the earlier one on ties.  Source:
// architectures.md 1.6.
struct TopKGroups {
  int n_group;
  int n_used;
  int n_best;
};
Tensor top_k(Tensor x, int k, const TopKGroups& groups);
// Softmax over ne0.
Tensor soft_max(Tensor x);
// The gradient from y = soft_max(x): y * (dy - <y, dy>).
Tensor soft_max_back(Tensor dy, Tensor y);
// x / sqrt(mean(x^2) + eps) over ne0.
Tensor rms_norm(Tensor x, float eps);
Tensor rms_norm_back(Tensor dy, Tensor x, float eps);
// x / max(||x||, eps) over ne0, eps above 0.  Source: architectures.md 1.2.
Tensor l2_norm(Tensor x, float eps);
Tensor l2_norm_back(Tensor dy, Tensor x, float eps);

// --- rotary position
// -----------------------------------------------------------------------------------------------
enum class RopeKind : int32_t { Normal, Neox };
// Source: architectures.md 1.3.  Sections all zero: one position per token.
struct RopeParams {
  RopeKind kind = RopeKind::Neox;
  int32_t n_rot = 0;  // channels of a head that turn, even
  bool last = false;  // they are the last of the head, not the first
  float base = 10000.f;
  float scale = 1.f;        // theta is multiplied by it (linear scaling: 1 / factor)
  float yarn_factor = 0.f;  // 0: no YaRN
  float yarn_beta_fast = 32.f, yarn_beta_slow = 1.f;
  int32_t yarn_n_ctx_orig = 0;
  int32_t yarn_truncate = 1;           // round the ramp's ends outward, as ggml does
  float magnitude = 1.f;               // multiplies cos and sin
  int32_t sections[4] = {0, 0, 0, 0};  // IMROPE: positions are then {T, 4}
};
// x {D, H, T}, pos {T} or {T, 4} I32, freq_factors {n_rot / 2} F32 or absent -> {D, H, T}.
Tensor rope(Tensor x, Tensor pos, Tensor freq_factors, const RopeParams& params);
// The transpose of the same map.
Tensor rope_back(Tensor dy, Tensor pos, Tensor freq_factors, const RopeParams& params);

// --- products
// ------------------------------------------------------------------------------------------------------ w x:
// w {K, N} any decodable type, x {K, T} F32 -> {N, T}.  Batches {K, T, B...} share w. The graph's precision
// decides how (router and adapter products pass Precision::F32).
Tensor mul_mat(Tensor w, Tensor x);
Tensor mul_mat(Tensor w, Tensor x, Precision precision);
// w^T dy: w {K, N}, dy {N, T} -> {K, T}.  The input gradient of mul_mat.
Tensor mul_mat_back(Tensor w, Tensor dy, Precision precision);
// sum over t of a[:, t] b[:, t]^T: a {M, T}, b {N, T} -> {M, N}.  The gradient of an F32 weight.
Tensor out_prod(Tensor a, Tensor b);
// result[:, i, t] = as[:, :, ids[i, t]]^T b[:, i % n_b, t]: as {K, N, E}, b {K, n_b, T}, ids {k, T}, n_b
// divides k
// -> {N, k, T}.  Source: gradients.md 2.2.
Tensor mul_mat_id(Tensor as, Tensor b, Tensor ids);
Tensor mul_mat_id(Tensor as, Tensor b, Tensor ids, Precision precision);
// dst[:, i, t] = sum over r of as[:, r, ids[i, t]] * grad[r, i % n_g, t]: as {K, N, E}, grad {N, n_g, T}, ids
// {k, T}, n_g divides k -> {K, k, T}.  One row per routed slot, each with one writer.
Tensor mul_mat_id_back(Tensor as, Tensor grad, Tensor ids, Precision precision);
// For each expert e, the sum over the slots with ids[i, t] == e of a[:, i % n_a, t] b[:, i, t]^T: a {M, n_a,
// T}, b {N, k, T}, ids {k, T} -> {M, N, n_expert}; zero for an expert without a slot.  The gradient of F32
// experts (adapters).
Tensor out_prod_id(Tensor a, Tensor b, Tensor ids, int64_t n_expert);

// --- attention
// -----------------------------------------------------------------------------------------------------
// Causal grouped-query attention of a token range over the keys before it and its own; memory linear in the
// length. q {D, H, T}; k_past {D, H_kv, P}, v_past {Dv, H_kv, P} or absent; k {D, H_kv, T}, v {Dv, H_kv, T};
// first_key {T} I32: query i sees keys j with first_key[i] <= j <= P + i, counted over past and current.
// Result: {Dv, H, T} and the log-sum-exp {H, T}, packed flat; attn_out() and attn_lse() look into it.
// Source: gradients.md 6, architectures.md 1.4.
Tensor flash_attn(Tensor q, Tensor k, Tensor v, Tensor k_past, Tensor v_past, Tensor first_key, float scale);
Tensor attn_out(Tensor packed, Tensor q, Tensor v);
Tensor attn_lse(Tensor packed, Tensor q, Tensor v);
// The gradients of q, k, v, k_past, v_past (the last two only if there is a past), packed flat in that order.
// dpacked: the gradient of packed, of its shape.
Tensor flash_attn_back(Tensor q, Tensor k, Tensor v, Tensor k_past, Tensor v_past, Tensor first_key,
                       Tensor packed, Tensor dpacked, float scale);

// --- recurrent layers
// -----------------------------------------------------------------------------------------------------
// positions {T} I32 count the earlier tokens of a token's sample: at 0 a sample begins, which sees nothing of
// what lies before it.
//
// Causal convolution of each channel, without activation: y_t = sum over j of w[j] m_{t - (K - 1) + j}.  m
// {C, T}, w {K, C}, state {C, K - 1}: the inputs before this range, oldest first -> {C, T}.  Source:
// architectures.md 2.5.
Tensor ssm_conv(Tensor m, Tensor w, Tensor state, Tensor positions);
// The gradients of m and of the state, packed flat in that order: dy {C, T} -> {C (T + K - 1)}.  Source:
// gradients.md 9.
Tensor ssm_conv_back(Tensor dy, Tensor w, Tensor positions);
// The state after this range, {C, K - 1}: the last inputs, of m {C, T} and, where T < K - 1, of the state
// before. Perhaps a view of m.
Tensor conv_state(Tensor m, Tensor state);
// Which of H_k key heads value head h of H_v reads.  Source: architectures.md 2.4.
enum class DeltaHeads : int32_t {
  Tiled,    // h % H_k: qwen35, and ggml's op
  Grouped,  // h / (H_v / H_k): qwen3next
};
// The gated delta rule: S = exp(g) S, u = beta (v - S^T k), S += k u^T, o = S^T q / sqrt(d_k), token by
// token. q, k {d_k, H_k, T}, v {d_v, H_v, T}, g {H_v, T} the logarithm of the decay, at most 0, beta {H_v,
// T}, state {d_k, d_v, H_v} before the range.  Result: out {d_v, H_v, T} and the state after the last token,
// packed flat; delta_out() and delta_state() look into it.  Source: architectures.md 2.5.
Tensor gated_delta_net(Tensor q, Tensor k, Tensor v, Tensor g, Tensor beta, Tensor state, Tensor positions,
                       DeltaHeads heads);
Tensor delta_out(Tensor packed, Tensor v);
Tensor delta_state(Tensor packed, Tensor v, Tensor state);
// The gradients of q, k, v, g, beta and state, packed flat in that order.  dpacked: the gradient of the
// packed result, of its shape.  Source: gradients.md 10.
Tensor gated_delta_net_back(Tensor q, Tensor k, Tensor v, Tensor g, Tensor beta, Tensor state,
                            Tensor positions, Tensor dpacked, DeltaHeads heads);

// --- loss
// ----------------------------------------------------------------------------------------------------------
// Per token: the negative log-likelihood of its label, and 1 if the label has the largest logit (the smaller
// index on ties).  logits {V, T}, labels {T} I32 in [0, V) or negative for a masked token, which gives 0 and
// 0 and no gradient. Result {T, 2}: nll, hits.  Source: gradients.md 11.
Tensor cross_entropy_loss(Tensor logits, Tensor labels);
// (softmax(logits) - onehot(label)) * dnll for each token, 0 where masked.  dnll {T} -> {V, T}.
Tensor cross_entropy_loss_back(Tensor logits, Tensor labels, Tensor dnll);

}  // namespace tandem
