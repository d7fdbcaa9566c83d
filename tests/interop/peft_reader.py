#!/usr/bin/env python3
"""Reads a model and a PEFT adapter with nothing of tandem's and holds tandem's results against what it finds.

usage: peft_reader.py MODEL.gguf PEFT_DIRECTORY [--merged MERGED.gguf] [--generated OUTPUT.json]

  --merged     the model that `tandem merge` wrote: its weights less the base's must be scale B A
  --generated  what `tandem generate --precision f32 --json --logprobs N` printed, N the whole vocabulary: a forward
               pass of this file's own, over the prompt and each generated token, must give the same logits

The model's matrices are F32 or F16.  Exit status: 0 all agree, 1 something does not, 2 wrong usage.
Needs numpy.  The adapter is read by the rules of PEFT: B A per module, alpha / r (alpha / sqrt(r) with rsLoRA),
patterns by the end of a module's path, parameters of experts as PEFT 0.19 lays them out.
"""
import json
import math
import re
import struct
import sys
from pathlib import Path

import numpy as np


def fail(message):
    print(f"peft_reader: {message}")
    sys.exit(1)


class Gguf:
    """Keys and tensors of a GGUF file; tensors as float64, slowest dimension first."""

    SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}

    def __init__(self, path):
        self.data = Path(path).read_bytes()
        self.at = 0
        magic, version, n_tensors, n_keys = struct.unpack_from("<4sIQQ", self.data)
        if magic != b"GGUF" or version != 3:
            fail(f"{path} is no GGUF file of version 3")
        self.at = 24
        self.keys = {}
        for _ in range(n_keys):
            key = self.text()
            self.keys[key] = self.value(self.number("I"))
        infos = []
        for _ in range(n_tensors):
            name = self.text()
            shape = [self.number("Q") for _ in range(self.number("I"))]
            infos.append((name, shape, self.number("I"), self.number("Q")))
        alignment = self.keys.get("general.alignment", 32)
        start = -(-self.at // alignment) * alignment
        self.tensors = {}
        for name, shape, kind, offset in infos:
            if kind not in (0, 1):
                fail(f"{path}: {name} is of type {kind}, only F32 and F16 are read")
            numbers = np.frombuffer(self.data, "<f4" if kind == 0 else "<f2", math.prod(shape), start + offset)
            self.tensors[name] = numbers.reshape(shape[::-1]).astype(np.float64)

    def number(self, kind):
        (x,) = struct.unpack_from("<" + kind, self.data, self.at)
        self.at += struct.calcsize("<" + kind)
        return x

    def text(self):
        n = self.number("Q")
        self.at += n
        return self.data[self.at - n : self.at].decode("utf-8", "surrogateescape")

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            kind, n = self.number("I"), self.number("Q")
            return [self.value(kind) for _ in range(n)]
        return self.number(self.SCALARS[kind])


def read_safetensors(path):
    data = Path(path).read_bytes()
    (n,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + n])
    header.pop("__metadata__", None)
    kinds = {"F32": "<f4", "F16": "<f2"}
    tensors = {}
    for name, t in header.items():
        begin, end = t["data_offsets"]
        numbers = np.frombuffer(data[8 + n + begin : 8 + n + end], kinds[t["dtype"]])
        tensors[name] = numbers.reshape(t["shape"]).astype(np.float64)
    return tensors


def of_pattern(patterns, path, otherwise):
    for key, value in patterns.items():
        if re.match(rf"(.*\.)?({key})$", path):
            return value
    return otherwise


PLAIN = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp",
}


class Adapter:
    """scale B A of every weight, as the base model's GGUF names and shapes it."""

    def __init__(self, directory, model):
        self.config = json.loads((Path(directory) / "adapter_config.json").read_text())
        if self.config["peft_type"] != "LORA":
            fail("no LoRA")
        self.model = model
        self.deltas = {}
        tensors = read_safetensors(Path(directory) / "adapter_model.safetensors")
        modules = {}
        for name, t in tensors.items():
            found = re.fullmatch(r"base_model\.model\.(.*)\.lora_([AB])\.weight", name)
            if not found:
                fail(f"{name} is no LoRA tensor")
            modules.setdefault(found[1], {})[found[2]] = t
        self.n_parameters = 0
        for path, pair in modules.items():
            self.add(path, pair["A"], pair["B"])

    def scale(self, path, rank):
        c = self.config
        if of_pattern(c.get("rank_pattern", {}), path, c["r"]) != rank:
            fail(f"{path}: rank {rank} is not what the configuration says")
        alpha = of_pattern(c.get("alpha_pattern", {}), path, c["lora_alpha"])
        return alpha / (math.sqrt(rank) if c.get("use_rslora") else rank)

    def targeted(self, path, key):
        if not any(path == t or path.endswith("." + t) for t in self.config[key] or []):
            fail(f"{path} is not among the {key}")

    def add(self, path, a, b):
        layer, rest = re.fullmatch(r"model\.layers\.(\d+)\.(.*)", path).groups()
        if rest.startswith("mlp.experts") and re.fullmatch(r"mlp\.experts(\.base_layer)*", rest):
            return self.add_parameter(layer, path.split(".base_layer")[0], a, b)
        self.targeted(path, "target_modules")
        delta = self.scale(path, a.shape[0]) * (b @ a)
        expert = re.fullmatch(r"mlp\.experts\.(\d+)\.(gate|up|down)_proj", rest)
        if not expert:
            self.deltas[f"blk.{layer}.{PLAIN[rest]}.weight"] = delta
            return
        name = f"blk.{layer}.ffn_{expert[2]}_exps.weight"
        stack = self.deltas.setdefault(name, np.zeros_like(self.model.tensors[name]))
        stack[int(expert[1])] += delta

    def add_parameter(self, layer, owner, a, b):
        self.n_parameters += 1
        names = [f"blk.{layer}.ffn_{x}_exps.weight" for x in ("gate", "up", "down")]
        n_expert, n_ff, n_embd = self.model.tensors[names[0]].shape
        is_down = a.shape[1] == n_ff
        path = owner + (".down_proj" if is_down else ".gate_up_proj")
        self.targeted(path, "target_parameters")
        rank = a.shape[0] // n_expert
        a = a.reshape(n_expert, rank, -1)  # expert, rank, in
        b = b.reshape(-1, rank, n_expert)  # out, rank, expert
        delta = self.scale(path, rank) * np.einsum("ore,eri->eoi", b, a)
        if is_down:
            self.deltas[names[2]] = delta
        else:
            self.deltas[names[0]], self.deltas[names[1]] = delta[:, :n_ff], delta[:, n_ff:]


def forward(model, weights, tokens):
    """Logits of every position."""
    arch = model.keys["general.architecture"]
    key = lambda name: model.keys[f"{arch}.{name}"]
    heads, kv_heads = key("attention.head_count"), key("attention.head_count_kv")
    d, dv, eps = key("attention.key_length"), key("attention.value_length"), key("attention.layer_norm_rms_epsilon")
    n = len(tokens)
    norm = lambda x, gain: x / np.sqrt(np.mean(x * x, -1, keepdims=True) + eps) * gain
    silu = lambda x: x / (1 + np.exp(-x))
    angles = np.arange(n)[:, None] * key("rope.freq_base") ** (-2.0 * np.arange(d // 2) / d)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]

    def rope(x):  # the first half of a head's channels turns with the second
        one, two = x[..., : d // 2], x[..., d // 2 :]
        return np.concatenate([one * cos - two * sin, two * cos + one * sin], -1)

    def attention(w, h):
        q = rope(norm((h @ w("attn_q").T).reshape(n, heads, d), w("attn_q_norm")))
        k = rope(norm((h @ w("attn_k").T).reshape(n, kv_heads, d), w("attn_k_norm")))
        v = (h @ w("attn_v").T).reshape(n, kv_heads, dv)
        out = np.empty((n, heads, dv))
        for head in range(heads):
            group = head // (heads // kv_heads)
            scores = q[:, head] @ k[:, group].T / math.sqrt(d)
            scores[np.triu_indices(n, 1)] = -np.inf
            scores = np.exp(scores - scores.max(-1, keepdims=True))
            out[:, head] = scores / scores.sum(-1, keepdims=True) @ v[:, group]
        return out.reshape(n, -1) @ w("attn_output").T

    def experts(w, h):
        logits = h @ w("ffn_gate_inp").T
        out = np.zeros_like(h)
        for t in range(n):
            chosen = np.argsort(-logits[t], kind="stable")[: key("expert_used_count")]
            share = np.exp(logits[t, chosen] - logits[t, chosen].max())
            for e, p in zip(chosen, share / share.sum()):
                hidden = silu(w("ffn_gate_exps")[e] @ h[t]) * (w("ffn_up_exps")[e] @ h[t])
                out[t] += p * (w("ffn_down_exps")[e] @ hidden)
        return out

    x = weights["token_embd.weight"][tokens]
    for layer in range(key("block_count")):
        w = lambda name: weights[f"blk.{layer}.{name}.weight"]
        x = x + attention(w, norm(x, w("attn_norm")))
        h = norm(x, w("ffn_norm"))
        if f"{arch}.expert_count" in model.keys:
            x = x + experts(w, h)
        else:
            x = x + (silu(h @ w("ffn_gate").T) * (h @ w("ffn_up").T)) @ w("ffn_down").T
    head = weights.get("output.weight", weights["token_embd.weight"])
    return norm(x, weights["output_norm.weight"]) @ head.T


def check_merged(model, adapter, path):
    merged = Gguf(path)
    if merged.keys != model.keys or list(merged.tensors) != list(model.tensors):
        fail("the merged file has other keys or tensors")
    worst = 0.0
    for name, was in model.tensors.items():
        change = merged.tensors[name] - was
        want = adapter.deltas.get(name)
        if want is None:
            if change.any():
                fail(f"{name} is merged, but not adapted")
            continue
        # A sum in f32 rounds to 2^-24 of the weight a few times.
        bound = 1e-6 * (np.abs(was).max() + np.abs(want).max())
        apart = np.abs(change - want).max()
        if not apart <= bound:
            fail(f"{name}: W' - W is {apart:.3g} away from scale B A, {bound:.3g} are allowed")
        worst = max(worst, apart / bound)
    print(f"merged: {len(adapter.deltas)} tensors differ from the base by scale B A, within {worst:.2f} of the bound")


def check_generated(model, adapter, path):
    out = json.loads(Path(path).read_text())
    weights = dict(model.tensors)
    for name, delta in adapter.deltas.items():
        weights[name] = weights[name] + delta
    tokens = out["prompt_tokens"] + out["tokens"]
    first = len(out["prompt_tokens"]) - 1
    with_adapter, without = forward(model, weights, tokens), forward(model, model.tensors, tokens)
    worst = 0.0
    for i, step in enumerate(out["steps"]):
        want = with_adapter[first + i]
        if len(step["top"]) != len(want):
            fail("the logits of the whole vocabulary are needed (--logprobs)")
        got = np.empty_like(want)
        for token, logit in step["top"]:
            got[token] = logit
        worst = max(worst, np.abs(got - want).max() / np.abs(want).max())
    effect = np.abs(with_adapter[first:] - without[first:]).max() / np.abs(with_adapter).max()
    # f32 products against f64 ones.
    bound = 1e-4
    if not worst <= bound:
        fail(f"the logits are {worst:.3g} of the largest apart, {bound:g} are allowed")
    if not effect > 100 * bound:
        fail(f"the adapter changes the logits by {effect:.3g} only: too little to tell")
    print(
        f"generated: logits of {len(out['steps'])} steps agree within {worst:.2g} of the largest; "
        f"the adapter changes them by {effect:.2g}"
    )


def main():
    arguments = sys.argv[1:]
    options = {}
    while len(arguments) >= 2 and arguments[-2] in ("--merged", "--generated"):
        options[arguments[-2]] = arguments[-1]
        arguments = arguments[:-2]
    if len(arguments) != 2:
        print(__doc__)
        sys.exit(2)
    model = Gguf(arguments[0])
    adapter = Adapter(arguments[1], model)
    print(f"adapter: {len(adapter.deltas)} weights, {adapter.n_parameters} parameters of experts")
    if "--merged" in options:
        check_merged(model, adapter, options["--merged"])
    if "--generated" in options:
        check_generated(model, adapter, options["--generated"])


main()
