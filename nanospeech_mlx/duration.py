"""Duration: total seconds of speech from a prompt's mel and all the text. Twin in both backends."""

from __future__ import annotations

from nanospeech.config import DurationConfig

from . import layers
from .dit import Attention, FeedForward, InputEmbedding, TextEmbedding
from .layers import Array

TOKEN = 0.1  # seconds: about what a token lasts


def statistics(mel_BNM: Array, lens_B: Array) -> Array:
    """Mean, spread and mean change from frame to frame of each band: (B, 3 M).

    They describe the voice, its pauses and its rate, but not the durations of single sounds, so
    that the model cannot read the prompt's token durations off them and generalises to new tokens.

    Args:
        mel_BNM: log mels, zero past lens_B.
        lens_B: frames of each item; without any all is zero.
    """
    count = layers.cast(layers.longer(lens_B, lens_B * 0 + 1)[:, None], mel_BNM)
    mean = mel_BNM.sum(1) / count
    mask = layers.length_mask(lens_B, mel_BNM.shape[1])
    spread = (layers.masked(mel_BNM - mean[:, None], mask) ** 2).sum(1) / count
    change = layers.masked(abs(mel_BNM[:, 1:] - mel_BNM[:, :-1]), mask[:, 1:]).sum(1) / count
    return layers.concat(mean, (spread + 1e-6) ** 0.5, change)


class DurationBlock(layers.Module):
    """Pre-norm attention and feed-forward."""

    def __init__(self, config: DurationConfig):
        super().__init__()
        c = config
        self.attn_norm = layers.LayerNorm(c.dim)
        self.attn = Attention(c.dim, c.heads, c.dim_head, c.rope_heads, c.qk_norm, c.dropout)
        self.ff_norm = layers.LayerNorm(c.dim)
        self.ff = FeedForward(c.dim, c.ff_mult, c.dropout)

    def __call__(self, x_BND: Array, mask_BN: Array | None, angles: tuple[Array, Array]) -> Array:
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
        heard = c.n_mels * (3 if c.prompt == "statistics" else 1)
        self.input_embed = InputEmbedding(heard + c.text_dim, c.dim)
        self.transformer_blocks = layers.ModuleList([DurationBlock(c) for _ in range(c.depth)])
        self.norm_out = layers.RMSNorm(c.dim)

    def run_blocks(self, x_BND: Array, seen_BN: Array | None, angles: tuple[Array, Array]) -> Array:
        """All blocks in turn: one function, which can be one graph."""
        for block in self.transformer_blocks:
            x_BND = block(x_BND, seen_BN, angles)
        return x_BND

    def __call__(self, mel_BNM: Array, text_BT: Array, lens_B: Array | None = None) -> Array:
        """Hidden states.

        Args:
            mel_BNM: input of each position: the prompt's mel, zero past it, or statistics.
            text_BT: ids of the prompt's and the new text, padded with -1; at most N of them.
            lens_B: valid positions of each item, or None for all.

        Returns:
            (B, N, D).
        """
        places = mel_BNM.shape[1]
        mask = None if lens_B is None else layers.length_mask(lens_B, places)
        text = layers.pad_length(text_BT[:, :places], places, -1)
        text_mask = mask
        if self.config.text_masking:
            text_mask = text >= 0 if mask is None else (text >= 0) & mask
        states = self.text_embed(text, text_mask, text_mask)
        x = self.input_embed(layers.concat(layers.masked(mel_BNM, mask), states), mask)
        angles = layers.rotary_angles(places, self.config.dim_head, x)
        seen = layers.seen(mask, x, self.config.dim_head)
        return self.norm_out(self.run_blocks(x, seen, angles))


class DurationHead(layers.Module):
    """The transformer and its output layer: pooled over all positions, or for each token."""

    def __init__(self, transformer: DurationTransformer):
        super().__init__()
        self.transformer = transformer
        c = transformer.config
        self.to_pred = layers.Sequential(
            layers.Linear(c.dim, 1, bias=c.pooling == "tokens"), layers.Softplus()
        )

    def hidden(
        self, mel_BNM: Array, text_BT: Array, lens_B: Array | None
    ) -> tuple[Array, Array, Array]:
        """Hidden states (B, N', D), positions of each item (B,) and tokens of each item (B,).

        Text longer than the prompt is not cut: the mel is continued with zeros for it.
        """
        tokens = (text_BT >= 0).sum(1)
        frames = mel_BNM.shape[1]
        if lens_B is None:
            lens_B = tokens * 0 + frames
        mel = layers.masked(mel_BNM, layers.length_mask(lens_B, frames))
        if self.transformer.config.prompt == "statistics":
            heard = statistics(mel, lens_B)[:, None] + layers.cast(text_BT[..., None] * 0, mel)
            return self.transformer(heard, text_BT, tokens), tokens, tokens
        places = layers.longer(lens_B, tokens)
        mel = layers.pad_length(mel, text_BT.shape[1])
        return self.transformer(mel, text_BT, places), places, tokens

    def token_seconds(self, mel_BNM: Array, text_BT: Array, lens_B: Array | None = None) -> Array:
        """Seconds of each token for pooling "tokens": (B, T), zero for padding."""
        x, _, tokens = self.hidden(mel_BNM, text_BT, lens_B)
        x = x[:, : text_BT.shape[1]]
        seconds = layers.masked(TOKEN * self.to_pred(x), layers.length_mask(tokens, x.shape[1]))
        return seconds[..., 0]

    def __call__(self, mel_BNM: Array, text_BT: Array, lens_B: Array | None = None) -> Array:
        """Total seconds of prompt and new speech: (B,).

        Args:
            mel_BNM: prompt mels.
            text_BT: ids of the prompt's and the new text, padded with -1.
            lens_B: frames of each prompt, or None for all.
        """
        if self.transformer.config.pooling == "tokens":
            return self.token_seconds(mel_BNM, text_BT, lens_B).sum(1)
        x, places, _ = self.hidden(mel_BNM, text_BT, lens_B)
        x = layers.masked(x, layers.length_mask(places, x.shape[1]))
        return self.to_pred(x.sum(1) / layers.cast(places[:, None], x))[:, 0]
