"""Segments: random stretches of recordings with their mels, for the vocoder. No model, no text.

Order and resuming are those of batches.py; only the items differ.
A clip gives about as many segments as it is long, so every second of the data is
heard equally often. Clips shorter than a segment, and those held out, are left out and counted.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from nanospeech.audio.mel import log_mel
from nanospeech.config import AudioConfig, option
from nanospeech.corpus.held_out import is_held_out
from nanospeech.errors import InputError

from . import clips
from .batch import Tensors
from .batches import BatchPlan
from .clips import Skip
from .speech import SpeechBatches


@dataclass(frozen=True)
class SegmentConfig:
    """What is taken of a recording."""

    frames: int = option(64, "mel frames of a training segment")
    segment_stride: float = option(8.0, "segment lengths of a clip for each segment taken of it")
    min_gain: float = option(-6.0, "softest level that a segment is brought to, dB")
    max_gain: float = option(2.0, "loudest level that a segment is brought to, dB")
    synthetic_share: float = option(
        0.75, 'share of the segments whose mel is a model\'s, where a sample brings one in "npy"'
    )
    held_out: float = option(0.01, "share of the clips that is never trained on, by their keys")

    RENAMED: ClassVar[dict[str, str]] = {"made": "synthetic_share", "every": "segment_stride"}

    def __post_init__(self):
        if self.frames < 16:
            raise InputError(f"frames is {self.frames}, should be at least 16")
        if self.segment_stride <= 0:
            raise InputError(f"segment_stride is {self.segment_stride}, should be more than 0")
        if not 0 <= self.synthetic_share <= 1:
            raise InputError(f"synthetic_share is {self.synthetic_share}, should be 0 to 1")
        if not 0 <= self.held_out < 1:
            raise InputError(f"held_out is {self.held_out}, should be at least 0 and below 1")
        if self.min_gain > self.max_gain:
            raise InputError(f"min_gain is {self.min_gain}, above max_gain ({self.max_gain})")


@dataclass
class SegmentBatch(Tensors):
    """Segments; tensors are on one device.

    wave_BS float32 in [-1, 1] or a little beyond, S = (N - 1) * hop_length; mel_BNM its log mel,
    which at the ends knows what lies around the segment, or what a speech model made of it.
    """

    wave: Tensor
    mel: Tensor

    @property
    def frames(self) -> int:
        """Mel frames in all."""
        return self.mel.shape[0] * self.mel.shape[1]


class SegmentBatches(SpeechBatches):
    """Endless batches of segments over samples of which only the audio is needed.

    Args:
        samples: as for SpeechBatches.
        tokenizer: not used; None.
        plan: its batch_size is the segments a batch, its max_duration the longest clip.
        audio: the mel.
        loss: a SegmentConfig.
        options: as for SpeechBatches; the cache holds recordings, as int16.
    """

    def __init__(
        self,
        samples: Any,
        tokenizer: None,
        plan: BatchPlan,
        audio: AudioConfig | None = None,
        loss: SegmentConfig | None = None,
        **options: Any,
    ):
        self.segment, self.longest = loss or SegmentConfig(), plan.max_duration
        one = self.segment.frames  # of one length, so there is one bucket
        plan = dataclasses.replace(
            plan, max_frames=plan.batch_size * one, max_duration=one, buckets=1
        )
        super().__init__(samples, tokenizer, plan, audio, **options)

    def describe(self, sample: dict, skipped: Counter) -> dict | None:
        """Key, data and frames of a recording without decoding it, or None with a reason."""
        try:
            meta, data = clips.metadata(sample), clips.audio_bytes(sample)
            key = str(sample.get("__key__") or zlib.crc32(data))
            if is_held_out(key, share=self.segment.held_out):
                raise Skip("held out")
            clips.check_rate(rate := meta.get("sample_rate"))
            seconds = clips.positive(meta.get("duration"), "duration")
            if seconds is not None:
                self.check_length(int(seconds * self.audio.sample_rate))
            synthetic = sample.get("npy")
            synthetic = None if synthetic is None else clips.features(synthetic, self.audio.n_mels)
        except Skip as e:
            skipped[str(e)] += 1
            return None
        return {"key": key, "data": data, "claimed": seconds, "rate": rate, "synthetic": synthetic}

    def check_length(self, samples: int) -> None:
        """Raises Skip for a clip shorter than a segment, or too long."""
        if samples < (self.segment.frames - 1) * self.audio.hop_length:
            raise Skip("shorter than a segment")
        if samples > self.longest * self.audio.hop_length:
            raise Skip("too long")

    def on_sample(self, item: dict) -> list[dict]:
        """The segments of a clip: as many as it is long, with a draw for the fraction."""
        if (whole := self.recording(item)) is None:
            return []
        drawn = self.rng(item, item["epoch"], 2).random()
        share = len(whole) / (
            self.segment.frames * self.audio.hop_length * self.segment.segment_stride
        )
        return [self.piece(item, whole, n) for n in range(max(1, int(share + drawn)))]

    def rebuild(self, parts: list[dict], piece: int) -> dict | None:
        """A segment cut again; None if its clip cannot be used."""
        whole = self.recording(parts[0])
        return None if whole is None else self.piece(parts[0], whole, piece)

    def piece(self, item: dict, whole: np.ndarray, number: int) -> dict:
        """Segment `number` of a clip, as an item that is ready for its batch."""
        rng = self.rng(item, item["epoch"], 3, number)
        wave, mel = cut(whole, self.segment, self.audio, rng, item["synthetic"])
        rest = {"key": item["key"], "refs": item["refs"], "epoch": item["epoch"]}
        return {**rest, "piece": number, "frames": len(mel), "wave": wave, "mel": mel}

    def recording(self, item: dict) -> np.ndarray | None:
        """The decoded clip as int16, from the cache if it is there; None with a reason counted."""
        name = item["key"], zlib.crc32(item["data"]) if self.cache_left or self.cache else 0
        if name in self.cache:
            return self.cache[name]
        try:
            seconds = self.longest / self.audio.frame_rate
            wave = clips.read_wave(item["data"], self.audio, item, seconds)
            self.check_length(len(wave))
        except Skip as e:
            self.skipped[str(e)] += 1
            return None
        whole = np.round(np.clip(wave, -1, 1) * 32767).astype(np.int16)
        if whole.nbytes <= self.cache_left:
            self.cache[name] = whole
            self.cache_left -= whole.nbytes
        return whole

    def collate(
        self, group: list[dict], epoch: int, skipped: Counter
    ) -> tuple[SegmentBatch | None, list[str]]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Stacks segments."""
        wave_BS, mel_BNM = (
            torch.from_numpy(np.stack([item[name] for item in group])) for name in ("wave", "mel")
        )
        return SegmentBatch(wave_BS, mel_BNM), []


def cut(
    whole: np.ndarray,
    c: SegmentConfig,
    audio: AudioConfig,
    rng: np.random.Generator,
    synthetic: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """A random segment of an int16 recording: float32 wave (S,) and its log mel (N, M).

    Args:
        synthetic: log mel of the whole recording by a speech model, used for a share of segments.
    """
    samples, side = (c.frames - 1) * audio.hop_length, audio.n_fft // 2
    start = int(rng.integers(0, len(whole) - samples + 1))
    if synthetic is not None and (len(synthetic) < c.frames or rng.random() >= c.synthetic_share):
        synthetic = None
    first = start // audio.hop_length
    if synthetic is not None:  # start on a frame
        first = min(first, len(synthetic) - c.frames)
        start = first * audio.hop_length
    around = np.pad(whole, side, mode="reflect")[start : start + samples + 2 * side]
    gain = 10 ** (rng.uniform(c.min_gain, c.max_gain) / 20)
    wave = around * np.float32(gain / 32767)
    # frames whose windows would reach beyond `around` are those of the sides: they are left out
    edge = side // audio.hop_length
    if synthetic is not None:
        mel = synthetic[first : first + c.frames].astype(np.float32) + np.log(np.float32(gain))
        return wave[side : side + samples], mel
    return wave[side : side + samples], log_mel(wave, audio)[edge : edge + c.frames]
