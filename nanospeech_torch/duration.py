"""Duration: total seconds of speech from a prompt's mel and all the text. Twin in both backends."""

from __future__ import annotations

from nanospeech.config import DurationConfig

from . import layers
from .dit import Attention, FeedForward, InputEmbedding, TextEmbedding
from .layers import Array


class DurationBlock(layers.Module):
    """Pre-norm attention and feed-forward."""

    def __init__(self, config: DurationConfig):
        super().__init__()
        c = config
        self.attn_norm = layers.LayerNorm(c.dim)
        self.attn = Attention(c.dim, c.heads, c.dim_head, c.rope_heads, c.qk_norm, c.dropout)
        self.ff_norm = layers.LayerNorm(c.dim)
        self.ff = FeedForward(c.dim, c.ff_mult, c.dropout)

    def forward(self, x_BND: Array, mask_BN: Array | None, angles: tuple[Array, Array]) -> Array:
        x = x_BND + self.attn(self.attn_norm(x_BND), mask_BN, angles)
        return x + self.ff(self.ff_norm(x))


class DurationTransformer(layers.Module):
    """The published duration network and its options.

    Args:
        config: shapes and options; or leave it out and give DurationConfig's fields by name.
    """

    def __init__(self, config: DurationConfig | None = None, **fields):
        super().__init__()
        c = self.config = config or DurationConfig(**fields)
        self.text_embed = TextEmbedding(c.text_num_embeds, c.text_dim, c.conv_layers, True)
        self.input_embed = InputEmbedding(c.n_mels + c.text_dim, c.dim)
        self.transformer_blocks = layers.ModuleList([DurationBlock(c) for _ in range(c.depth)])
        self.norm_out = layers.RMSNorm(c.dim)

    def forward(self, mel_BNM: Array, text_BT: Array, lens_B: Array | None = None) -> Array:
        """Hidden states.

        Args:
            mel_BNM: prompt mels, zero past their frames.
            text_BT: ids of the prompt's and the new text, padded with -1; at most N of them.
            lens_B: valid places of each item, or None for all.

        Returns:
            (B, N, D).
        """
        frames = mel_BNM.shape[1]
        mask = None if lens_B is None else layers.length_mask(lens_B, frames)
        text = layers.pad_length(text_BT[:, :frames], frames, -1)
        text_mask = mask
        if self.config.text_masking:
            text_mask = text >= 0 if mask is None else (text >= 0) & mask
        states = self.text_embed(text, text_mask)
        x = self.input_embed(layers.concat(layers.masked(mel_BNM, mask), states), mask)
        angles = layers.rotary_angles(frames, self.config.dim_head, x)
        for block in self.transformer_blocks:
            x = block(x, mask, angles)
        return self.norm_out(x)


class DurationHead(layers.Module):
    """The transformer, a masked mean over places, and one softplus number."""

    def __init__(self, transformer: DurationTransformer):
        super().__init__()
        self.transformer = transformer
        self.to_pred = layers.Sequential(
            layers.Linear(transformer.config.dim, 1, bias=False), layers.Softplus()
        )

    def forward(self, mel_BNM: Array, text_BT: Array, lens_B: Array | None = None) -> Array:
        """Total seconds of prompt and new speech: (B,).

        Text longer than the prompt is not cut: the mel is continued with zeros for it.
        """
        tokens = (text_BT >= 0).sum(1)
        frames = max(mel_BNM.shape[1], text_BT.shape[1])
        mel = layers.pad_length(mel_BNM, frames)
        if lens_B is None:
            lens_B = tokens * 0 + mel_BNM.shape[1]
        lens = layers.longer(lens_B, tokens)
        x = layers.masked(self.transformer(mel, text_BT, lens), layers.length_mask(lens, frames))
        return self.to_pred(x.sum(1) / layers.cast(lens[:, None], x))[:, 0]
