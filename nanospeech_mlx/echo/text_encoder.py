"""Text encoder: T5 (arXiv 1910.10683), T5Gemma (2504.06225) and T5Gemma 2 in MLX; frozen.

Weights keep the names of the Hub's checkpoints.
"""

from __future__ import annotations

import math
from typing import Any

import mlx.core as mx
import numpy as np

from nanospeech.errors import CheckpointError, InputError
from nanospeech.release.text_encoder import TextEncoderFiles

from ..activations import gelu_tanh

LEAST = -1e30  # of a score that is masked


class FrozenTextEncoder:
    """The states of token ids.

    Args:
        files: of a folder.
        dtype: "float32" or "bfloat16"; these networks' numbers are too large for float16.

    Raises:
        InputError: another dtype.
        CheckpointError: a weight is missing.
    """

    def __init__(self, files: TextEncoderFiles, dtype: str = "float32"):
        if dtype not in ("float32", "bfloat16"):
            raise InputError(
                f"a text encoder was asked for in {dtype}, in which it overflows; choose float32 or"
                " bfloat16"
            )
        kind, self.count = getattr(mx, dtype), files.count
        self.weights = {n: mx.array(t).astype(kind) for n, t in files.tensors.items()}
        self.network = T5(files, self.weights) if files.kind == "t5" else Gemma(files, self.weights)

    def __call__(self, text_BT: mx.array, mask_BT: mx.array) -> mx.array:
        """States (B, T, D) of ids; those where the mask is false mean nothing."""
        try:
            return self.network(text_BT, mask_BT)
        except KeyError as e:
            raise CheckpointError(f"the text encoder's weights lack {e}") from e


class Encoder:
    """What the encoders share: weights by name, and linear layers of them."""

    def __init__(self, files: TextEncoderFiles, weights: dict[str, mx.array]):
        self.config: dict[str, Any] = files.config
        self.weights = weights

    def linear(self, x: mx.array, name: str) -> mx.array:
        return x @ self.weights[f"{name}.weight"].T

    def norm(self, x: mx.array, name: str, plus: float, eps: float) -> mx.array:
        """Root-mean-square norm; Gemma keeps its weight less one."""
        weight = self.weights[f"{name}.weight"].astype(mx.float32) + plus
        return mx.fast.rms_norm(x.astype(mx.float32), weight, eps).astype(x.dtype)

    def heads(self, x: mx.array, name: str, width: int) -> mx.array:
        """(B, T, D) to (B, H, T, width)."""
        x = self.linear(x, name)
        return x.reshape(*x.shape[:2], -1, width).swapaxes(1, 2)


class T5(Encoder):
    """T5 1.0 and 1.1: relative positions by buckets, scores that are not scaled."""

    def __call__(self, text_BT: mx.array, mask_BT: mx.array) -> mx.array:
        c, x = self.config, self.weights["embed_tokens.weight"][text_BT]
        eps = c.get("layer_norm_epsilon", 1e-6)
        bias = self.positions(text_BT.shape[1]) + mx.where(mask_BT, 0, LEAST)[:, None, None]
        for i in range(c["num_layers"]):
            at = f"block.{i}.layer"
            y = self.norm(x, f"{at}.0.layer_norm", 0, eps)
            q, k, v = (self.heads(y, f"{at}.0.SelfAttention.{n}", c["d_kv"]) for n in "qkv")
            scores = (q @ k.swapaxes(-1, -2)).astype(mx.float32) + bias
            out = mx.softmax(scores, axis=-1).astype(v.dtype) @ v
            out = out.swapaxes(1, 2).flatten(2)
            x = x + self.linear(out, f"{at}.0.SelfAttention.o")
            y = self.norm(x, f"{at}.1.layer_norm", 0, eps)
            x = x + self.feed_forward(y, f"{at}.1.DenseReluDense")
        return self.norm(x, "final_layer_norm", 0, eps)

    def feed_forward(self, x: mx.array, at: str) -> mx.array:
        if f"{at}.wi.weight" in self.weights:  # 1.0
            return self.linear(mx.maximum(self.linear(x, f"{at}.wi"), 0), f"{at}.wo")
        gate = gelu_tanh(self.linear(x, f"{at}.wi_0"))
        return self.linear(gate * self.linear(x, f"{at}.wi_1"), f"{at}.wo")

    def positions(self, length: int) -> mx.array:
        """The first block's bias of scores, which serves all: (H, T, T)."""
        c = self.config
        count = c.get("relative_attention_num_buckets", 32)
        farthest = c.get("relative_attention_max_distance", 128)
        away = np.arange(length)[None, :] - np.arange(length)[:, None]
        index = buckets(away, count, farthest)
        name = "block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        return self.weights[name][mx.array(index)].transpose(2, 0, 1).astype(mx.float32)


def buckets(away: np.ndarray, count: int, farthest: int) -> np.ndarray:
    """T5's bucket of each distance: exact ones, then ever wider ones, for either direction."""
    half = count // 2
    exact = half // 2
    far = np.abs(away)
    wide = np.log(np.maximum(far, 1).astype(np.float32) / exact) / math.log(farthest / exact)
    wide = np.minimum(exact + (wide * (half - exact)).astype(np.int64), half - 1)
    return np.where(far < exact, far, wide) + half * (away > 0)


class Gemma(Encoder):
    """T5Gemma and T5Gemma 2: grouped queries, rotary positions, norms before and after."""

    def __init__(self, files: TextEncoderFiles, weights: dict[str, mx.array]):
        super().__init__(files, weights)
        self.second = files.kind == "t5gemma2"
        self.eps = self.config.get("rms_norm_eps", 1e-6)
        found = files.whole.get("eoi_token_index") or files.config.get("eoi_token_index")
        self.end_of_image = found or 256_000

    def __call__(self, text_BT: mx.array, mask_BT: mx.array) -> mx.array:
        c, table = self.config, self.weights["embed_tokens.weight"]
        x = table[text_BT] * mx.array(c["hidden_size"] ** 0.5).astype(table.dtype)
        if self.second:
            own = self.weights["embed_tokens.eoi_embedding"]
            x = mx.where((text_BT == self.end_of_image)[..., None], own, x)
        kinds = self.layer_kinds()
        biases = {kind: self.bias(mask_BT, kind) for kind in set(kinds)}
        angles = {kind: self.angles(text_BT.shape[1], kind) for kind in set(kinds)}
        for i, kind in enumerate(kinds):
            at = f"layers.{i}"
            y = self.norm(x, f"{at}.pre_self_attn_layernorm", 1, self.eps)
            y = self.attention(y, f"{at}.self_attn", biases[kind], angles[kind])
            x = x + self.norm(y, f"{at}.post_self_attn_layernorm", 1, self.eps)
            y = self.norm(x, f"{at}.pre_feedforward_layernorm", 1, self.eps)
            gate = gelu_tanh(self.linear(y, f"{at}.mlp.gate_proj"))
            y = self.linear(gate * self.linear(y, f"{at}.mlp.up_proj"), f"{at}.mlp.down_proj")
            x = x + self.norm(y, f"{at}.post_feedforward_layernorm", 1, self.eps)
        return self.norm(x, "norm", 1, self.eps)

    def layer_kinds(self) -> list[str]:
        """Whether each layer's attention slides; configs of older files give the rule alone."""
        c = self.config
        if kinds := c.get("layer_types"):
            return kinds
        every = c.get("sliding_window_pattern", 6) if self.second else 2
        slides = ("full_attention", "sliding_attention")
        return [slides[(i + 1) % every != 0] for i in range(c["num_hidden_layers"])]

    def bias(self, mask_BT: mx.array, kind: str) -> mx.array:
        """Added to scores: 0, or almost minus infinity where a key is not seen."""
        seen = mask_BT[:, None, None, :]
        if kind == "sliding_attention":
            window, places = self.config["sliding_window"], np.arange(mask_BT.shape[1])
            back = places[:, None] - places[None, :]  # from a query to the keys before it
            if self.second:
                near = (back < (window + 1) // 2) & (-back <= window // 2)
            else:
                near = np.abs(back) <= window
            seen = seen & mx.array(near)
        return mx.where(seen, 0, LEAST)

    def angles(self, length: int, kind: str) -> tuple[mx.array, mx.array]:
        """Cosine and sine of the rotary angles, (T, E) each."""
        c = self.config
        given = c.get("rope_parameters") or {}
        given = given.get(kind) or given
        slides = self.second and kind == "sliding_attention"
        older = c.get("rope_local_base_freq", 1e4) if slides else c.get("rope_theta", 1e4)
        base = given.get("rope_theta") or older
        factor = given.get("factor", 1.0)
        if not given and not slides:
            factor = (c.get("rope_scaling") or {}).get("factor", 1.0)
        width = c["head_dim"]
        freqs = 1 / (base ** (np.arange(0, width, 2, dtype=np.float32) / width)) / factor
        turns = np.arange(length, dtype=np.float32)[:, None] * freqs.astype(np.float32)
        both = np.concatenate([turns, turns], -1)
        return mx.array(np.cos(both)), mx.array(np.sin(both))

    def attention(
        self, x: mx.array, at: str, bias: mx.array, angles: tuple[mx.array, mx.array]
    ) -> mx.array:
        c, width = self.config, self.config["head_dim"]
        q, k, v = (self.heads(x, f"{at}.{n}_proj", width) for n in "qkv")
        if self.second:
            q = self.norm(q, f"{at}.q_norm", 1, self.eps)
            k = self.norm(k, f"{at}.k_norm", 1, self.eps)
        q, k = rotated(q, angles), rotated(k, angles)
        groups = q.shape[1] // k.shape[1]
        k, v = mx.repeat(k, groups, axis=1), mx.repeat(v, groups, axis=1)
        scores = (q @ k.swapaxes(-1, -2)).astype(mx.float32)
        scores = scores * c["query_pre_attn_scalar"] ** -0.5
        if cap := c.get("attn_logit_softcapping"):
            scores = mx.tanh(scores / cap) * cap
        out = mx.softmax(scores + bias, axis=-1).astype(v.dtype) @ v
        return self.linear(out.swapaxes(1, 2).flatten(2), f"{at}.o_proj")


def rotated(x_BHTE: mx.array, angles: tuple[mx.array, mx.array]) -> mx.array:
    """Rotary positions in which channel i turns with channel i + E/2."""
    cos, sin = (a.astype(x_BHTE.dtype) for a in angles)
    first, second = x_BHTE.split(2, axis=-1)
    return x_BHTE * cos + mx.concatenate([-second, first], axis=-1) * sin
