"""DiT: the speech model. Velocity of the mel at one time; sampling and loss are elsewhere.

F5-TTS (arXiv 2410.06885): a diffusion transformer (arXiv 2212.09748) over noisy mel, condition mel
and text, side by side. Twin of the file of the same name in the other backend.
"""

from __future__ import annotations

from nanospeech.config import DiTConfig

from . import layers
from .layers import Array


class TimestepEmbedding(layers.Module):
    """Time in [0, 1] to (B, D); `zero` is at first without effect."""

    def __init__(self, dim: int, zero: bool = False):
        super().__init__()
        last = layers.Linear(dim, dim)
        if zero:
            layers.zero_(last)
        self.time_mlp = layers.Sequential(layers.Linear(256, dim), layers.SiLU(), last)

    def __call__(self, time_B: Array) -> Array:
        hidden = layers.sinusoid(time_B, 256)
        return self.time_mlp(layers.cast(hidden, self.time_mlp[0].bias))


class GRN(layers.Module):
    """Global response normalisation (ConvNeXt V2, arXiv 2301.00808)."""

    def __init__(self, dim: int):
        super().__init__()
        self.gamma = layers.parameter(0.0, 1, 1, dim)
        self.beta = layers.parameter(0.0, 1, 1, dim)

    def __call__(self, x_BTD: Array) -> Array:
        return self.gamma * (x_BTD * layers.global_norm(x_BTD)) + self.beta + x_BTD


class ConvNeXtV2Block(layers.Module):
    """Depthwise convolution, then a feed-forward with GRN.

    The convolution sees zeros where mask_BT is false; GRN norms over the places of norm_mask_BT.
    """

    def __init__(self, dim: int, hidden: int):
        super().__init__()
        self.dwconv = layers.Conv1d(dim, 7, groups=dim)
        self.norm = layers.LayerNorm(dim, affine=True)
        self.pwconv1 = layers.Linear(dim, hidden)
        self.act = layers.GELU()
        self.grn = GRN(hidden)
        self.pwconv2 = layers.Linear(hidden, dim)

    def __call__(self, x_BTD: Array, mask_BT: Array | None, norm_mask_BT: Array | None) -> Array:
        hidden = self.norm(self.dwconv(layers.masked(x_BTD, mask_BT)))
        hidden = layers.masked(self.act(self.pwconv1(hidden)), norm_mask_BT)
        return x_BTD + self.pwconv2(self.grn(hidden))


class TextEmbedding(layers.Module):
    """Token ids (padded with -1) to vectors; id -1 is the filler, row 0."""

    def __init__(
        self, count: int, dim: int, conv_layers: int, positions: bool, max_positions: int = 4096
    ):
        super().__init__()
        self.text_embed = layers.Embedding(count + 1, dim)
        self.text_blocks = layers.ModuleList(
            [ConvNeXtV2Block(dim, dim * 2) for _ in range(conv_layers)]
        )
        self.positions = positions and conv_layers > 0
        self.max_positions = max_positions

    def __call__(self, text_BT: Array, mask_BT: Array | None, norm_mask_BT: Array | None) -> Array:
        x = self.text_embed(text_BT + 1)
        if self.positions:
            places = layers.text_positions(x.shape[1], x.shape[2], x, self.max_positions)
            x = x + layers.cast(places, x)
        for block in self.text_blocks:
            x = block(x, mask_BT, norm_mask_BT)
        return layers.masked(x, mask_BT)


class Aligner(layers.Module):
    """Mean mel and log duration of each token, for the monotonic search (Glow-TTS, 2005.11129).

    Means depend on the token and the speaker but not on neighbouring tokens: with context, a space
    takes over the sounds beside it and the search converges to wrong durations. With `dim` a layer
    of that width makes the speaker's effect depend on the token; without it the effect is the same
    for all tokens, which is enough for one speaker.
    """

    def __init__(self, text_dim: int, n_mels: int, dim: int = 0):
        super().__init__()
        self.to_mean = layers.Linear(text_dim, n_mels)
        self.speaker_mean = layers.Linear(n_mels, n_mels)
        self.speaker_duration = layers.Linear(n_mels, text_dim)
        self.to_duration = layers.Sequential(
            layers.Linear(text_dim, text_dim), layers.SiLU(), layers.Linear(text_dim, 1)
        )
        self.token_in = layers.Linear(text_dim, dim) if dim else None
        self.speaker_in = layers.Linear(n_mels, dim) if dim else None
        both = layers.Linear(dim, n_mels) if dim else None
        self.both_out = layers.Sequential(layers.SiLU(), both) if both else None
        for last in (self.speaker_mean, self.speaker_duration, both):
            if last is not None:
                layers.zero_(last)

    def means(self, text_BTD: Array, speaker_BM: Array) -> Array:
        """Normalised mean mel of each token's embedding for a speaker: (B, T, M)."""
        means = self.to_mean(text_BTD) + self.speaker_mean(speaker_BM)[:, None]
        if self.token_in is None or self.speaker_in is None or self.both_out is None:
            return means
        return means + self.both_out(self.token_in(text_BTD) + self.speaker_in(speaker_BM)[:, None])

    def log_durations(self, text_BTD: Array, speaker_BM: Array) -> Array:
        """Log of the patches that each token lasts: (B, T)."""
        speaker = self.speaker_duration(speaker_BM)[:, None]
        return self.to_duration(text_BTD + speaker)[..., 0]


class ConvPositionEmbedding(layers.Module):
    """Relative positions from two grouped convolutions (wav2vec 2.0, arXiv 2006.11477)."""

    def __init__(self, dim: int, kernel_size: int = 31, groups: int = 16):
        super().__init__()
        self.conv1d = layers.Sequential(
            layers.Conv1d(dim, kernel_size, groups=groups),
            layers.Mish(),
            layers.Conv1d(dim, kernel_size, groups=groups),
            layers.Mish(),
        )

    def __call__(self, x_BND: Array, mask_BN: Array | None) -> Array:
        x = x_BND
        for i in (0, 2):
            x = self.conv1d[i + 1](self.conv1d[i](layers.masked(x, mask_BN)))
        return layers.masked(x, mask_BN)


class InputEmbedding(layers.Module):
    """Joins mels and text into the transformer's width and adds positions."""

    def __init__(self, in_dim: int, dim: int):
        super().__init__()
        self.proj = layers.Linear(in_dim, dim)
        self.conv_pos_embed = ConvPositionEmbedding(dim)

    def __call__(self, parts_BNC: Array, mask_BN: Array | None) -> Array:
        x = self.proj(parts_BNC)
        return self.conv_pos_embed(x, mask_BN) + x


class PromptEmbedding(layers.Module):
    """A speaker embedding of the given mel: (B, D), added to the time embedding.

    Means and deviations of features of its patches, so that order and length do not matter
    (statistics pooling, x-vectors: Snyder et al. 2018). Every block is modulated by it, which
    learns a new speaker's sound from fewer speakers than attention to the prompt alone.
    """

    def __init__(self, patch_dim: int, hidden: int, dim: int):
        super().__init__()
        self.to_features = layers.Linear(patch_dim, hidden)
        self.act = layers.SiLU()
        self.to_time = layers.Linear(2 * hidden, dim)
        layers.zero_(self.to_time)

    def __call__(self, cond_BNC: Array) -> Array:
        given_BN = (cond_BNC != 0).any(-1)
        hidden = self.act(self.to_features(layers.cast(cond_BNC, self.to_features.bias)))
        x = layers.masked(layers.cast(hidden, cond_BNC), given_BN)
        count = layers.cast(given_BN, x).sum(1)[:, None] + 1e-4
        mean = x.sum(1) / count
        spread = (layers.masked(x - mean[:, None], given_BN) ** 2).sum(1) / count
        both = layers.concat(mean, (spread + 1e-6) ** 0.5)
        return self.to_time(layers.cast(both, self.to_time.bias))


class Attention(layers.Module):
    """Multi-head self-attention with rotary positions on the first heads."""

    def __init__(
        self,
        dim: int,
        heads: int,
        dim_head: int,
        rope_heads: int,
        qk_norm: bool,
        dropout: float,
        bias: bool = False,
    ):
        super().__init__()
        self.heads = heads
        self.rope_heads = rope_heads
        inner = heads * dim_head
        self.to_q = layers.Linear(dim, inner)
        self.to_k = layers.Linear(dim, inner)
        self.to_v = layers.Linear(dim, inner)
        self.q_norm = layers.RMSNorm(dim_head) if qk_norm else None
        self.k_norm = layers.RMSNorm(dim_head) if qk_norm else None
        self.to_out = layers.Sequential(
            layers.Linear(inner, dim, bias=bias), layers.Dropout(dropout)
        )

    def __call__(self, x_BND: Array, mask_BN: Array | None, angles: tuple[Array, Array]) -> Array:
        q, k, v = (
            layers.split_heads(to(x_BND), self.heads) for to in (self.to_q, self.to_k, self.to_v)
        )
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        q = layers.rotate(q, angles, self.rope_heads)
        k = layers.rotate(k, angles, self.rope_heads)
        return self.to_out(layers.merge_heads(layers.attention(q, k, v, mask_BN)))


class FeedForward(layers.Module):
    """Linear, tanh GELU, linear."""

    def __init__(self, dim: int, mult: int, dropout: float):
        super().__init__()
        first = layers.Sequential(layers.Linear(dim, dim * mult), layers.GELU("tanh"))
        self.ff = layers.Sequential(first, layers.Dropout(dropout), layers.Linear(dim * mult, dim))

    def __call__(self, x_BND: Array) -> Array:
        return self.ff(x_BND)


class AdaLayerNorm(layers.Module):
    """Layer norm whose shifts, scales and gates come from the time embedding."""

    def __init__(self, dim: int, parts: int, zero: bool):
        super().__init__()
        self.parts = parts
        self.silu = layers.SiLU()
        self.linear = layers.Linear(dim, dim * parts)
        self.norm = layers.LayerNorm(dim)
        if zero:
            layers.zero_(self.linear)

    def __call__(self, time_BD: Array) -> tuple[Array, ...]:
        return layers.chunks(self.linear(self.silu(time_BD))[:, None], self.parts)


class DiTBlock(layers.Module):
    """Attention and feed-forward, each shifted, scaled and gated by the time (adaLN)."""

    def __init__(self, config: DiTConfig):
        super().__init__()
        c = config
        self.attn_norm = AdaLayerNorm(c.dim, 6, c.adaln_zero)
        self.attn = Attention(
            c.dim, c.heads, c.dim_head, c.rope_heads, c.qk_norm, c.dropout, c.output_biases
        )
        self.ff_norm = layers.LayerNorm(c.dim)
        self.ff = FeedForward(c.dim, c.ff_mult, c.dropout)

    def __call__(
        self,
        x_BND: Array,
        time_BD: Array,
        mask_BN: Array | None,
        angles: tuple[Array, Array],
    ) -> Array:
        shift_a, scale_a, gate_a, shift_m, scale_m, gate_m = self.attn_norm(time_BD)
        hidden = layers.modulated(self.attn_norm.norm, x_BND, scale_a, shift_a)
        x = layers.gated(x_BND, gate_a, self.attn(hidden, mask_BN, angles))
        hidden = layers.modulated(self.ff_norm, x, scale_m, shift_m)
        return layers.gated(x, gate_m, self.ff(hidden))


class DiT(layers.Module):
    """The published nanospeech network and its options.

    Args:
        config: shapes and options; or leave it out and give DiTConfig's fields by name.
    """

    def __init__(self, config: DiTConfig | None = None, **fields):
        super().__init__()
        c = self.config = config or DiTConfig(**fields)
        aligned = c.text_upsampling == "aligned"
        self.time_embed = TimestepEmbedding(c.dim)
        self.strength_embed = TimestepEmbedding(c.dim, zero=True) if c.max_strength else None
        self.step_embed = TimestepEmbedding(c.dim, zero=True) if c.max_strength else None
        self.text_embed = TextEmbedding(
            c.text_num_embeds, c.text_dim, c.conv_layers, not aligned, c.text_positions
        )
        self.aligner = Aligner(c.text_dim, c.n_mels, c.aligner_dim) if aligned else None
        self.input_embed = InputEmbedding(2 * c.n_mels * c.patch_size + c.text_dim, c.dim)
        heard = c.n_mels * c.patch_size
        self.prompt_embed = PromptEmbedding(heard, c.prompt_dim, c.dim) if c.prompt_dim else None
        self.transformer_blocks = layers.ModuleList([DiTBlock(c) for _ in range(c.depth)])
        self.norm_out = AdaLayerNorm(c.dim, 2, c.adaln_zero)
        self.proj_out = layers.Linear(c.dim, c.n_mels * c.patch_size, bias=c.output_biases)
        if c.adaln_zero:
            layers.zero_(self.proj_out)

    def embed_tokens(self, text_BT: Array) -> Array:
        """Text states before upsampling, for "average" and "aligned": (B, T, text_dim)."""
        return self.text_embed(text_BT, text_BT >= 0, text_BT >= 0)

    def token_means(self, text_BT: Array, speaker_BM: Array) -> Array:
        """The aligner's normalised mean mel of each token: (B, T, M)."""
        assert self.aligner is not None
        return self.aligner.means(self.text_embed.text_embed(text_BT + 1), speaker_BM)

    def embed_time(self, time_B: Array) -> Array:
        """(B, D) of times (B,); of a distilled model's (B, 3): time, guidance and step's share."""
        if self.strength_embed is None or self.step_embed is None:
            return self.time_embed(time_B)
        more = self.strength_embed(time_B[:, 1]) + self.step_embed(time_B[:, 2])
        return self.time_embed(time_B[:, 0]) + more

    def embed_filler(self, like_BT: Array) -> Array:
        """The state without text: (1, 1, text_dim)."""
        return self.text_embed.text_embed(like_BT[:1, :1] * 0)

    def embed_text(
        self,
        text_BT: Array,
        frames: int,
        mask_BN: Array | None,
        places_BT: Array | None = None,
    ) -> Array:
        """Text states of each patch for text_upsampling "none": (B, N, text_dim).

        Args:
            frames: patches N to fill; text beyond them is cut, room behind it is filler.
            mask_BN: valid patches, or None for all.
            places_BT: where text_BT is the text left out, the text itself: null_text_places
                masks by its places. None: text_BT is the text.
        """
        text = masking = layers.pad_length(text_BT[:, :frames], frames, -1)
        if places_BT is not None and self.config.null_text_places:
            masking = layers.pad_length(places_BT[:, :frames], frames, -1)
        mask = mask_BN
        if self.config.text_masking:
            mask = masking >= 0 if mask_BN is None else (masking >= 0) & mask_BN
        return self.text_embed(text, mask, mask_BN if self.config.grn_all_frames else mask)

    def patch(self, mel_BNM: Array) -> Array:
        """(B, N * p, M) to (B, N, p * M); the end is padded with zeros."""
        p = self.config.patch_size
        whole = layers.pad_length(mel_BNM, -(-mel_BNM.shape[1] // p) * p)
        return whole.reshape(whole.shape[0], -1, p * whole.shape[2])

    def run_blocks(
        self,
        x_BND: Array,
        time_BD: Array,
        seen_BN: Array | None,
        angles: tuple[Array, Array],
    ) -> Array:
        """All blocks in turn: one function, which can be one graph."""
        for block in self.transformer_blocks:
            x_BND = block(x_BND, time_BD, seen_BN, angles)
        return x_BND

    def __call__(
        self,
        x_BNM: Array,
        cond_BNM: Array,
        text_BND: Array,
        time_B: Array,
        lens_B: Array | None = None,
    ) -> Array:
        """The velocity dx/dt.

        Args:
            x_BNM: state of the ODE, in normalised mel units.
            cond_BNM: condition mel in the same units, zero where there is none.
            text_BND: text states of each patch.
            time_B: times in [0, 1], or a single one for all items; see embed_time.
            lens_B: valid frames of each item, or None for all.

        Returns:
            (B, N, M), zero past lens_B.
        """
        frames, p = x_BNM.shape[1], self.config.patch_size
        frame_mask = mask = None
        if lens_B is not None:
            frame_mask = layers.length_mask(lens_B, frames)
            mask = layers.length_mask((lens_B + p - 1) // p, -(-frames // p))
        x = self.patch(layers.masked(x_BNM, frame_mask))
        cond = self.patch(layers.masked(cond_BNM, frame_mask))
        time = self.embed_time(time_B)
        if self.prompt_embed is not None:
            time = time + self.prompt_embed(cond)
        x = self.input_embed(layers.concat(x, cond, text_BND), mask)
        angles = layers.rotary_angles(x.shape[1], self.config.dim_head, x)
        seen = layers.seen(mask, x, self.config.dim_head)
        x = self.run_blocks(x, time, seen, angles)
        scale, shift = self.norm_out(time)
        x = self.proj_out(layers.modulated(self.norm_out.norm, x, scale, shift))
        x = x.reshape(x.shape[0], x.shape[1] * p, -1)[:, :frames]
        return layers.masked(x, frame_mask)
