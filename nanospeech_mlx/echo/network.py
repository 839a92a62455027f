"""Network: EchoDiT, the velocity of audio latents at one time; sampling and loss are elsewhere.

Echo-TTS (github.com/jordandarefsky/echo-tts), Irodori-TTS and scaled-echo-tts: latents attend to
themselves, to states of a text and to states of a speaker's latents in one softmax. Time 1 is noise
and 0 is speech. Twin of the file of the same name in the other backend.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from nanospeech.latent_architectures import TEXT_TAG, EchoConfig

from .. import layers
from ..layers import Array
from . import ops
from .encoders import Attention, GatedMLP, LatentEncoder, Norm, TextEncoder

Pair = tuple[Array, Array]  # keys and values, (B, H, K, E) each
LEAST_TIME = 0.05  # of those that the velocity divides by, where the speech is predicted


class States(NamedTuple):
    """A context that each block makes its own keys and values of, as in training."""

    text: Array  # (B, T, text_dim)
    speaker: Array  # (B, P, speaker_dim)
    angles: tuple[Array, Array] | None  # of the text's keys


class AdaLN(layers.Module):
    """Shift, scale and gate of the condition, each with a change of low rank."""

    def __init__(self, dim: int, rank: int, eps: float):
        super().__init__()
        self.eps = eps
        self.shift_down = layers.Linear(dim, rank, bias=False)
        self.scale_down = layers.Linear(dim, rank, bias=False)
        self.gate_down = layers.Linear(dim, rank, bias=False)
        self.shift_up = layers.Linear(rank, dim)
        self.scale_up = layers.Linear(rank, dim)
        self.gate_up = layers.Linear(rank, dim)
        for last in (self.shift_up, self.scale_up, self.gate_up):
            layers.zero_(last)

    def __call__(self, x_BND: Array, cond_B1D: tuple[Array, ...]) -> tuple[Array, Array]:
        """The normed, scaled and shifted input, and the gate of what is made of it."""
        shift, scale, gate = cond_B1D
        shift = shift + self.shift_up(self.shift_down(ops.silu(shift)))
        scale = scale + self.scale_up(self.scale_down(ops.silu(scale)))
        gate = gate + self.gate_up(self.gate_down(ops.silu(gate)))
        return ops.rms_norm(x_BND, None, self.eps) * (1 + scale) + shift, ops.tanh(gate)


class JointAttention(Attention):
    """Gated attention of latents to themselves and to a context, in one softmax."""

    def __init__(self, config: EchoConfig):
        c = config
        super().__init__(c.dim, c.heads, c.eps)
        self.rotated = c.heads // 2  # first heads that rotate
        self.wk_text = layers.Linear(c.text_dim, c.dim, bias=False)
        self.wv_text = layers.Linear(c.text_dim, c.dim, bias=False)
        self.wk_speaker = layers.Linear(c.speaker_dim, c.dim, bias=False)
        self.wv_speaker = layers.Linear(c.speaker_dim, c.dim, bias=False)
        if c.continues:
            self.wk_latent = layers.Linear(c.speaker_dim, c.dim, bias=False)
            self.wv_latent = layers.Linear(c.speaker_dim, c.dim, bias=False)

    def pair(self, k_BND: Array, v_BND: Array) -> Pair:
        """Keys, normed, and values of a stream."""
        return self.k_norm(self.split(k_BND)).swapaxes(1, 2), layers.split_heads(v_BND, self.heads)

    def of_text(self, text_BTD: Array, angles: tuple[Array, Array] | None = None) -> Pair:
        k, v = self.pair(*ops.linears(text_BTD, self.wk_text, self.wv_text))
        return (k if angles is None else layers.rotate(k, angles, self.rotated)), v

    def of_speaker(self, speaker_BPD: Array) -> Pair:
        return self.pair(*ops.linears(speaker_BPD, self.wk_speaker, self.wv_speaker))

    def of_latents(self, latent_BPD: Array, angles: tuple[Array, Array]) -> Pair:
        k, v = self.pair(*ops.linears(latent_BPD, self.wk_latent, self.wv_latent))
        return layers.rotate(k, angles, self.rotated), v

    def of_states(self, states: States) -> Pair:
        """Keys and values of a text and a speaker, joined."""
        text = self.of_text(states.text, states.angles)
        speaker = self.of_speaker(states.speaker)
        return ops.join(text[0], speaker[0]), ops.join(text[1], speaker[1])

    def attend(
        self,
        x_BND: Array,
        context: Pair | States,
        mask_BK: Array | None,
        angles: tuple[Array, Array],
    ) -> Array:
        """What the latents see; keys are their own, then the context's."""
        context = self.of_states(context) if isinstance(context, States) else context
        q, k, v, gate = ops.linears(x_BND, self.wq, self.wk, self.wv, self.gate)
        q = layers.rotate(self.q_norm(self.split(q)).swapaxes(1, 2), angles, self.rotated)
        k, v = self.pair(k, v)
        k = ops.join(layers.rotate(k, angles, self.rotated), context[0])
        out = ops.attention(q, k, ops.join(v, context[1]), mask_BK)
        return self.wo(layers.merge_heads(out) * ops.sigmoid(gate))


class EchoBlock(layers.Module):
    """Joint attention and a gated feed-forward, shifted, scaled and gated by the condition."""

    def __init__(self, config: EchoConfig):
        super().__init__()
        c = config
        self.attention = JointAttention(c)
        self.mlp = GatedMLP(c.dim, c.ff_dim)
        self.attention_adaln = AdaLN(c.dim, c.adaln_rank, c.eps)
        self.mlp_adaln = AdaLN(c.dim, c.adaln_rank, c.eps)

    def __call__(
        self,
        x_BND: Array,
        cond_B1D: tuple[Array, ...],
        context: Pair | States,
        mask_BK: Array | None,
        angles: tuple[Array, Array],
    ) -> Array:
        hidden, gate = self.attention_adaln(x_BND, cond_B1D)
        x = x_BND + gate * self.attention.attend(hidden, context, mask_BK, angles)
        hidden, gate = self.mlp_adaln(x, cond_B1D)
        return x + gate * self.mlp(hidden)


class EchoDiT(layers.Module):
    """The network and its options.

    Args:
        config: shapes and options; or leave it out and give EchoConfig's fields by name.
    """

    def __init__(self, config: EchoConfig | None = None, **fields):
        super().__init__()
        c = self.config = config or EchoConfig(**fields)
        if c.text_depth:
            self.text_encoder = TextEncoder(c)
        else:
            self.text_proj = layers.Linear(c.text_input, c.text_dim)
        if c.text_tags:
            self.text_tag = layers.Embedding(len(c.text_tags), c.text_dim)
        if c.text_window:
            self.text_duration = layers.Sequential(
                layers.Linear(c.text_dim, c.text_dim), layers.SiLU(), layers.Linear(c.text_dim, 1)
            )
        self.speaker_encoder = LatentEncoder(c)
        self.text_norm = Norm(c.eps, c.text_dim)
        self.speaker_norm = Norm(c.eps, c.speaker_dim)
        if c.continues:
            self.latent_encoder = LatentEncoder(c)
            self.latent_norm = Norm(c.eps, c.speaker_dim)
        self.cond_module = layers.Sequential(
            layers.Linear(c.time_dim, c.dim, bias=False),
            layers.SiLU(),
            layers.Linear(c.dim, c.dim, bias=False),
            layers.SiLU(),
            layers.Linear(c.dim, 3 * c.dim, bias=False),
        )
        if c.target_duration:
            last = layers.Linear(c.dim, 3 * c.dim, bias=False)
            layers.zero_(last)
            self.duration_module = layers.Sequential(
                layers.Linear(c.time_dim, c.dim, bias=False), layers.SiLU(), last
            )
        self.in_proj = layers.Linear(c.latent_dim * c.latent_patch, c.dim)
        self.blocks = layers.ModuleList([EchoBlock(c) for _ in range(c.depth)])
        self.out_norm = Norm(c.eps, c.dim)
        self.out_proj = layers.Linear(c.dim, c.latent_dim * c.latent_patch)
        layers.zero_(self.out_proj)

    def text_states(self, text: Array, mask_BT: Array, ids_BT: Array | None = None) -> Array:
        """States (B, T, text_dim) of ids (B, T), or of states (B, T, text_input) of an encoder.

        Args:
            text: ids or states.
            mask_BT: tokens that are read.
            ids_BT: for networks with tags; the vector of a tag is added at its place.
        """
        if self.config.text_depth:
            return self.text_norm(self.text_encoder(text, mask_BT))
        x = self.text_proj(layers.cast(text, self.text_proj.weight))
        if self.config.text_tags and ids_BT is not None:
            tags = ids_BT - TEXT_TAG
            learnt = self.text_tag(tags * (tags >= 0))
            x = x + layers.cast(layers.masked(learnt, tags >= 0), x)
        return self.text_norm(x)

    def speaker_states(self, latent_BSC: Array, mask_BS: Array) -> tuple[Array, Array]:
        """States (B, P, speaker_dim) of a speaker's latents, and which of them count: (B, P)."""
        c = self.config
        length = -(-latent_BSC.shape[1] // c.speaker_patch) * c.speaker_patch
        latent = layers.pad_length(latent_BSC, length)
        whole = layers.pad_length(mask_BS, length, False)
        whole = whole.reshape(whole.shape[0], -1, c.speaker_patch)
        mask = whole[..., 0] if c.speaker_causal else whole.all(-1)
        x = self.speaker_norm(self.speaker_encoder(latent, mask))
        if c.speaker_mean:
            some = mask.any(1)[:, None]
            count = layers.cast(mask, x).sum(1)[:, None]
            mean = layers.masked(x, mask).sum(1) / (count + layers.cast(count == 0, x))
            x, mask = ops.join_rows(mean[:, None], x), ops.join_rows(some, mask)
        return x, mask

    def latent_states(self, latent_BSC: Array) -> Array:
        """States of the latents before a block; zeros stand for those to come."""
        return self.latent_norm(self.latent_encoder(latent_BSC, latent_BSC[:, :, 0] == 0))

    def log_durations(self, text_BTD: Array) -> Array:
        """Log of how long each token lasts: (B, T), for networks with a window."""
        return self.text_duration(text_BTD)[..., 0]

    def text_places(
        self, text_BTD: Array, mask_BT: Array, lens_B: Array, durations_BT: Array | None = None
    ) -> Array | None:
        """Where the tokens are spoken, in patches: (B, T); None: that is not known.

        Args:
            text_BTD: the text's states.
            mask_BT: tokens that are read.
            lens_B: latents of the speech, without what follows it.
            durations_BT: how long each token lasts, in any unit; None: as predicted, or all the
                same in networks without a window.
        """
        c = self.config
        if not c.text_rotary and not c.text_window:
            return None
        if durations_BT is None:
            log_BT = self.log_durations(text_BTD) if c.text_window else None
            durations_BT = ops.durations(log_BT, mask_BT)
        return ops.middles(durations_BT, lens_B / c.latent_patch)

    def text_angles(self, places_BT: Array | None) -> tuple[Array, Array] | None:
        """Angles by which the text's keys rotate; None: not at all."""
        c = self.config
        if places_BT is None or not c.text_rotary:
            return None
        return ops.place_angles(places_BT, c.dim // c.heads)

    def attentions(self) -> list[Any]:
        """The attention of each block."""
        return [block.attention for block in self.blocks]

    def contexts(
        self, text_BTD: Array, speaker_BPD: Array, angles: tuple[Array, Array] | None = None
    ) -> list[tuple[Pair, ...]]:
        """Keys and values of each block's context: those of the text, then of the speaker."""
        each = self.attentions()
        return [(a.of_text(text_BTD, angles), a.of_speaker(speaker_BPD)) for a in each]

    def latent_contexts(self, latent_BPD: Array) -> list[Pair]:
        """Keys and values for each block of the latents before a block."""
        c, p = self.config, self.config.speaker_patch
        cos, sin = layers.rotary_angles(latent_BPD.shape[1] * p, c.dim // c.heads, latent_BPD)
        angles = cos[::p], sin[::p]
        return [a.of_latents(latent_BPD, angles) for a in self.attentions()]

    def joined(
        self,
        contexts: list[tuple[Pair, ...]],
        copies: int = 1,
        scale: float = 1.0,
        scaled: int | None = None,
    ) -> list[Pair]:
        """Each block's context as one pair.

        Args:
            contexts: of `contexts`; the speaker is last.
            copies: how many times the batch is wanted, one after the other.
            scale: factor of the speaker's keys and values.
            scaled: in so many first blocks; None: in all.
        """
        found = []
        for i, (*others, (k, v)) in enumerate(contexts):
            factor = scale if scaled is None or i < scaled else 1.0
            keys = ops.join(*(pair[0] for pair in others), k * factor)
            values = ops.join(*(pair[1] for pair in others), v * factor)
            found.append((ops.repeated(keys, copies), ops.repeated(values, copies)))
        return found

    def condition(self, time_B: Array, seconds_B: Array | None = None) -> tuple[Array, ...]:
        """Shift, scale and gate, (B, 1, D) each, of the time and perhaps of a target duration."""
        like = self.cond_module[0].weight
        cond = self.cond_module(layers.cast(ops.timesteps(time_B, self.config.time_dim), like))
        if self.config.target_duration and seconds_B is not None:
            # a hundredth of the seconds: the sinusoid is of times from 0 to 1
            heard = ops.timesteps(seconds_B / 100, self.config.time_dim)
            cond = cond + self.duration_module(layers.cast(heard, like))
        return layers.chunks(cond[:, None], 3)

    def run_blocks(
        self,
        x_BND: Array,
        cond_B1D: tuple[Array, ...],
        contexts: list[Pair] | list[States],
        mask_BK: Array | None,
        angles: tuple[Array, Array],
    ) -> Array:
        """All blocks in turn: one function, which can be one graph."""
        for block, context in zip(self.blocks, contexts):
            x_BND = block(x_BND, cond_B1D, context, mask_BK, angles)
        return x_BND

    def __call__(
        self,
        x_BNC: Array,
        time_B: Array,
        contexts: list[Pair] | list[States],
        mask_BK: Array | None,
        start: int = 0,
        seconds_B: Array | None = None,
        places_BT: Array | None = None,
    ) -> Array:
        """The velocity: what is added, by unit of time, towards the noise.

        Args:
            x_BNC: latents between speech (time 0) and noise (time 1).
            time_B: times in [0, 1].
            contexts: keys and values of each block's context, joined; or what they are made of.
            mask_BK: keys that are seen, of the N latents' patches and then the context; or None for
                all, without a window.
            start: position of the first latent.
            seconds_B: target duration, for networks that were trained with one.
            places_BT: where the text's tokens are spoken, for networks with a window; the text is
                the first context.

        Returns:
            (B, N, C).
        """
        c, count = self.config, x_BNC.shape[1]
        length = -(-count // c.latent_patch) * c.latent_patch
        patches = layers.pad_length(x_BNC, length)
        x = self.in_proj(patches.reshape(x_BNC.shape[0], length // c.latent_patch, -1))
        long = layers.rotary_angles(start + x.shape[1], c.dim // c.heads, x)
        angles = long[0][start:], long[1][start:]
        if c.text_window and places_BT is not None and mask_BK is not None:
            own = self.attentions()[0]
            shape = x.shape[1], own.heads, own.rotated
            mask_BK = ops.window(mask_BK, places_BT, *shape, c.text_window, x)
        x = self.run_blocks(x, self.condition(time_B, seconds_B), contexts, mask_BK, angles)
        out = self.out_proj(self.out_norm(x))
        out = out.reshape(x_BNC.shape[0], length, c.latent_dim)[:, :count]
        if not c.predicts_speech:
            return out
        time = layers.cast(ops.at_least(time_B, LEAST_TIME), x_BNC)
        return (x_BNC - out) / time[:, None, None]
