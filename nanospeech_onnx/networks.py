"""Networks: the speech model and the duration model as sessions, with NumPy arrays in and out.

A graph has no masks: items of one length are run together, without padding, and others apart. So
padding cannot change a result, and costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from nanospeech.config import DiTConfig, DurationConfig
from nanospeech.release.tensors import check_tensors

from . import duration as durations
from .dit import DiT
from .graph import BATCH, PATCHES, TIMES, TOKENS, Graph
from .layers import Module
from .session import CPU, Place

Tensors = Mapping[str, np.ndarray]


def checked(network: Module, tensors: Tensors, path: Path, prefix: str = "") -> None:
    """Names a network's parameters, and compares them with a file's tensors.

    Raises:
        CheckpointError: they differ.
    """
    wanted = {p.name: p.shape for p in network.parameters(prefix)}
    check_tensors({n: t.shape for n, t in tensors.items()}, wanted, path)


def alike(lens_B: np.ndarray) -> Iterator[tuple[int, Any]]:
    """Each length that occurs, with the items that have it; not 0."""
    for n in np.unique(lens_B):
        if n:
            rows = np.flatnonzero(lens_B == n)
            yield int(n), slice(None) if len(rows) == len(lens_B) else rows


def resized(x_BN: np.ndarray, length: int, value: float = 0) -> np.ndarray:
    """Axis 1 cut or filled to a length."""
    missing = length - x_BN.shape[1]
    if missing <= 0:
        return x_BN[:, :length]
    pads = [(0, 0), (0, missing)] + [(0, 0)] * (x_BN.ndim - 2)
    return np.pad(x_BN, pads, constant_values=value)


class SpeechGraphs:
    """The graphs of a speech model.

    Args:
        config: its sizes.
        network: with names of its parameters.
    """

    def __init__(self, config: DiTConfig, network: DiT):
        self.config, self.network = config, network

    def tokens(self) -> Graph:
        """Ids to states, for "average" and "aligned"."""
        g = Graph("tokens")
        ids = g.input("text", (BATCH, TOKENS), "int64")
        g.output("states", self.network.text_embed(ids, None, None))
        return g

    def text(self) -> Graph:
        """Ids of each patch to states, for "none"."""
        g = Graph("text")
        ids = g.input("text", (BATCH, PATCHES), "int64")
        places = g.input("places", (BATCH, PATCHES), "int64")
        frames: Any = cast(Any, PATCHES)
        g.output("states", self.network.embed_text(ids, frames, None, places))
        return g

    def means(self) -> Graph:
        """Mean mel of each token for a speaker."""
        g = Graph("means")
        ids = g.input("text", (BATCH, TOKENS), "int64")
        speaker = g.input("speaker", (BATCH, self.config.n_mels))
        g.output("means", self.network.token_means(ids, speaker))
        return g

    def log_durations(self) -> Graph:
        """Log of the patches that each token lasts."""
        g = Graph("log_durations")
        states = g.input("states", (BATCH, TOKENS, self.config.text_dim))
        speaker = g.input("speaker", (BATCH, self.config.n_mels))
        assert self.network.aligner is not None
        g.output("log_durations", self.network.aligner.log_durations(states, speaker))
        return g

    def velocity(self, eight_bits: bool = False, as_stored: bool = False) -> Graph:
        """dx/dt at one time."""
        c, g = self.config, Graph("velocity", eight_bits, as_stored)
        frames = PATCHES * c.patch_size
        x = g.input("x", (BATCH, frames, c.n_mels))
        cond = g.input("cond", (BATCH, frames, c.n_mels))
        text = g.input("text", (BATCH, PATCHES, c.text_dim))
        time = g.input("time", (TIMES, 3) if c.max_strength else (TIMES,))
        g.output("velocity", self.network(x, cond, text, time))
        return g


class Speech:
    """The speech model, with the methods of DiT that engines call.

    Args:
        config: its sizes.
        tensors: model.safetensors.
        path: that file's.
        place: where it runs.
        eight_bits: whether linear layers of the transformer multiply in eight bits.

    Raises:
        CheckpointError: the tensors are those of another config.
    """

    def __init__(
        self, config: DiTConfig, tensors: Tensors, path: Path, place: Place, eight_bits: bool
    ):
        self.config = config
        network = DiT(config)
        checked(network, tensors, path, "transformer.")
        graphs = SpeechGraphs(config, network)
        small = Place(place.provider)
        whole = config.text_upsampling == "none"
        self.states = small.session(graphs.text() if whole else graphs.tokens(), tensors)
        self.filler = np.asarray(tensors["transformer.text_embed.text_embed.weight"][0], "f")
        self.velocity = place.session(graphs.velocity(eight_bits, place.provider == CPU), tensors)
        self.aligner = self if network.aligner is not None else None
        if self.aligner:
            self.means = small.session(graphs.means(), tensors)
            self.durations = small.session(graphs.log_durations(), tensors)

    def embed_tokens(self, text_BT: np.ndarray) -> np.ndarray:
        """As DiT's."""
        states = np.zeros((*text_BT.shape, self.config.text_dim), np.float32)
        for n, rows in alike((text_BT >= 0).sum(1)):
            states[rows, :n] = self.states(text=text_BT[rows, :n])[0]
        return states

    def embed_text(
        self,
        text_BT: np.ndarray,
        frames: int,
        mask_BN: np.ndarray,
        places_BT: np.ndarray | None = None,
    ) -> np.ndarray:
        """As DiT's."""
        text = resized(text_BT, frames, -1)
        places = text if places_BT is None else resized(places_BT, frames, -1)
        states = np.zeros((len(text), frames, self.config.text_dim), np.float32)
        for n, rows in alike(mask_BN.sum(1)):
            states[rows, :n] = self.states(text=text[rows, :n], places=places[rows, :n])[0]
        return states

    def embed_filler(self, like_BT: np.ndarray) -> np.ndarray:
        """As DiT's."""
        return self.filler[None, None]

    def token_means(self, text_BT: np.ndarray, speaker_BM: np.ndarray) -> np.ndarray:
        """As DiT's."""
        return self.means(text=text_BT, speaker=speaker_BM)[0]

    def log_durations(self, states_BTD: np.ndarray, speaker_BM: np.ndarray) -> np.ndarray:
        """As Aligner's."""
        return self.durations(states=states_BTD, speaker=speaker_BM)[0]

    def __call__(
        self,
        x_BNM: np.ndarray,
        cond_BNM: np.ndarray,
        text_BND: np.ndarray,
        time_B: np.ndarray,
        lens_B: np.ndarray | None = None,
    ) -> np.ndarray:
        """As DiT's."""
        batch, frames = x_BNM.shape[:2]
        lens = np.full(batch, frames) if lens_B is None else lens_B
        p = self.config.patch_size
        out = np.zeros_like(x_BNM)
        for n, rows in alike(lens):
            patches = -(-n // p)
            x, cond = (resized(a[rows, :n], patches * p) for a in (x_BNM, cond_BNM))
            time = time_B if len(time_B) == 1 else time_B[rows]
            text = text_BND[rows, :patches]
            out[rows, :n] = self.velocity(x=x, cond=cond, text=text, time=time)[0][:, :n]
        return out


def duration_graph(config: DurationConfig, head: durations.DurationHead) -> Graph:
    """Seconds of each token, or of all, from what is heard at each place and ids."""
    g, net = Graph("duration"), head.transformer
    heard = config.n_mels * (3 if config.prompt == "statistics" else 1)
    mel = g.input("heard", (BATCH, TOKENS, heard))
    states = net(mel, g.input("text", (BATCH, TOKENS), "int64"))
    if config.pooling == "tokens":
        g.output("seconds", head.to_pred(states)[..., 0] * durations.TOKEN)
    else:
        g.output("seconds", head.to_pred(states.reduced("ReduceMean", 1, False))[..., 0])
    return g


class Duration:
    """The duration model, with the methods of DurationHead that engines call.

    Raises:
        CheckpointError: the tensors are those of another config.
    """

    def __init__(self, config: DurationConfig, tensors: Tensors, path: Path, place: Place):
        self.config = config
        self.transformer = self  # has the config, as DurationHead's has
        head = durations.DurationHead(durations.DurationTransformer(config))
        checked(head, tensors, path)
        self.session = Place(place.provider).session(duration_graph(config, head), tensors)

    def places(
        self, mel_BNM: np.ndarray, text_BT: np.ndarray, lens_B: np.ndarray
    ) -> Iterator[tuple[int, Any, np.ndarray]]:
        """Lengths of inputs, the items that have them, and what the network says of these."""
        tokens = (text_BT >= 0).sum(1)
        whole = self.config.prompt == "statistics"
        heard = statistics(mel_BNM, lens_B)[:, None] if whole else mel_BNM
        for n, rows in alike(tokens if whole else np.maximum(lens_B, tokens)):
            here = np.repeat(heard[rows], n, 1) if whole else resized(heard[rows], n)
            text = resized(text_BT[rows], n, -1)
            yield n, rows, self.session(heard=here, text=text)[0]

    def token_seconds(
        self, mel_BNM: np.ndarray, text_BT: np.ndarray, lens_B: np.ndarray
    ) -> np.ndarray:
        """As DurationHead's."""
        seconds = np.zeros(text_BT.shape, np.float32)
        for n, rows, found in self.places(mel_BNM, text_BT, lens_B):
            n = min(n, text_BT.shape[1])
            seconds[rows, :n] = found[:, :n]
        return np.where(text_BT >= 0, seconds, 0)

    def __call__(self, mel_BNM: np.ndarray, text_BT: np.ndarray, lens_B: np.ndarray) -> np.ndarray:
        """As DurationHead's, for pooling "mean"."""
        seconds = np.zeros(len(text_BT), np.float32)
        for _, rows, found in self.places(mel_BNM, text_BT, lens_B):
            seconds[rows] = found
        return seconds


def statistics(mel_BNM: np.ndarray, lens_B: np.ndarray) -> np.ndarray:
    """As duration.statistics, of arrays: (B, 3 M)."""
    out = np.zeros((len(mel_BNM), 3 * mel_BNM.shape[2]), np.float32)
    for row, mel, n in zip(out, mel_BNM, lens_B):
        mel, count = mel[:n].astype(np.float64), max(int(n), 1)
        mean = mel.sum(0) / count
        spread = ((mel - mean) ** 2).sum(0) / count
        change = abs(np.diff(mel, axis=0)).sum(0) / count
        row[:] = np.concatenate([mean, (spread + 1e-6) ** 0.5, change])
    return out
