"""Encoders: what EchoDiT is built of, and its encoders of text and latents. Samples nothing.

Twin of the file of the same name in the other backend.
"""

from __future__ import annotations

from nanospeech.latent_architectures import EchoConfig

from .. import layers
from ..layers import Array
from . import ops


class Norm(layers.Module):
    """Root-mean-square norm over the last axis with a weight."""

    def __init__(self, eps: float, *shape: int):
        super().__init__()
        self.eps = eps
        self.weight = layers.parameter(1.0, *shape)

    def __call__(self, x: Array) -> Array:
        return ops.rms_norm(x, self.weight, self.eps)


class GatedMLP(layers.Module):
    """w2(silu(w1 x) * w3 x), without biases (arXiv 2002.05202)."""

    def __init__(self, dim: int, hidden: int):
        super().__init__()
        self.w1 = layers.Linear(dim, hidden, bias=False)
        self.w2 = layers.Linear(hidden, dim, bias=False)
        self.w3 = layers.Linear(dim, hidden, bias=False)

    def __call__(self, x_BND: Array) -> Array:
        a, b = ops.linears(x_BND, self.w1, self.w3)
        return self.w2(ops.silu(a) * b)


class Attention(layers.Module):
    """Gated self-attention with normed and rotated queries and keys."""

    def __init__(self, dim: int, heads: int, eps: float):
        super().__init__()
        self.heads = heads
        self.wq = layers.Linear(dim, dim, bias=False)
        self.wk = layers.Linear(dim, dim, bias=False)
        self.wv = layers.Linear(dim, dim, bias=False)
        self.wo = layers.Linear(dim, dim, bias=False)
        self.gate = layers.Linear(dim, dim, bias=False)
        self.q_norm = Norm(eps, heads, dim // heads)
        self.k_norm = Norm(eps, heads, dim // heads)

    def split(self, x_BND: Array) -> Array:
        """(B, N, H*E) to (B, N, H, E), for the norms."""
        return x_BND.reshape(x_BND.shape[0], x_BND.shape[1], self.heads, -1)

    def __call__(
        self, x_BND: Array, mask_BN: Array | None, angles: tuple[Array, Array], causal: bool
    ) -> Array:
        q, k, v, gate = ops.linears(x_BND, self.wq, self.wk, self.wv, self.gate)
        q = layers.rotate(self.q_norm(self.split(q)).swapaxes(1, 2), angles, self.heads)
        k = layers.rotate(self.k_norm(self.split(k)).swapaxes(1, 2), angles, self.heads)
        out = ops.attention(q, k, layers.split_heads(v, self.heads), mask_BN, causal)
        return self.wo(layers.merge_heads(out) * ops.sigmoid(gate))


class EncoderBlock(layers.Module):
    """Attention and a gated feed-forward, each behind a norm."""

    def __init__(self, dim: int, heads: int, hidden: int, eps: float):
        super().__init__()
        self.attention = Attention(dim, heads, eps)
        self.mlp = GatedMLP(dim, hidden)
        self.attention_norm = Norm(eps, dim)
        self.mlp_norm = Norm(eps, dim)

    def __call__(
        self, x_BND: Array, mask_BN: Array | None, angles: tuple[Array, Array], causal: bool
    ) -> Array:
        x = x_BND + self.attention(self.attention_norm(x_BND), mask_BN, angles, causal)
        return x + self.mlp(self.mlp_norm(x))


class TextEncoder(layers.Module):
    """Bidirectional states of token ids, of which those below 0 are padding."""

    def __init__(self, config: EchoConfig):
        super().__init__()
        c = self.config = config
        self.text_embedding = layers.Embedding(c.text_vocab, c.text_dim)
        self.blocks = layers.ModuleList(
            [
                EncoderBlock(c.text_dim, c.text_heads, c.text_ff_dim, c.eps)
                for _ in range(c.text_depth)
            ]
        )

    def __call__(self, text_BT: Array, mask_BT: Array) -> Array:
        c = self.config
        x = self.text_embedding(text_BT * (text_BT > 0))
        seen, kept = ops.any_or_all(mask_BT), mask_BT if c.zero_masked else None
        x = layers.masked(x, kept)
        angles = layers.rotary_angles(x.shape[1], c.text_dim // c.text_heads, x)
        for block in self.blocks:
            x = layers.masked(block(x, seen, angles, False), kept)
        return x


class LatentEncoder(layers.Module):
    """States of patches of latents."""

    def __init__(self, config: EchoConfig):
        super().__init__()
        c = self.config = config
        self.in_proj = layers.Linear(c.latent_dim * c.speaker_patch, c.speaker_dim)
        self.blocks = layers.ModuleList(
            [
                EncoderBlock(c.speaker_dim, c.speaker_heads, c.speaker_ff_dim, c.eps)
                for _ in range(c.speaker_depth)
            ]
        )

    def __call__(self, latent_BSC: Array, mask_BP: Array) -> Array:
        """States (B, S / p, D) of S latents, a multiple of the patch; the mask is of patches."""
        c = self.config
        patches = latent_BSC.reshape(latent_BSC.shape[0], -1, c.speaker_patch * latent_BSC.shape[2])
        x = self.in_proj(patches) / c.speaker_scale
        seen = None if c.speaker_causal else ops.any_or_all(mask_BP)
        kept = mask_BP if c.zero_masked else None
        x = layers.masked(x, kept)
        angles = layers.rotary_angles(x.shape[1], c.speaker_dim // c.speaker_heads, x)
        for block in self.blocks:
            x = layers.masked(block(x, seen, angles, c.speaker_causal), kept)
        return x
