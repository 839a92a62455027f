"""Data: a stream of {audio, text} samples to padded batches with their random draws. No model.

Batches are formed from the lengths that the metadata tells, before any audio is decoded, so a
resumed run can skip what was used without the work. Lengths are padded to a few buckets, so that
few shapes occur. Nothing is dropped to fit; what cannot be used is counted by reason.
"""

from __future__ import annotations

import io
import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import soundfile
import torch
from torch.utils.data import IterableDataset, get_worker_info

from nanospeech.config import AudioConfig
from nanospeech.errors import DataError
from nanospeech.mel import log_mel
from nanospeech.text import fit, prepare
from nanospeech.tokenizer import WORDS, Tokenizer, pad_tokens

from .flow import Batch, LossConfig

AUDIO_KEYS = ("mp3", "flac", "wav", "ogg", "opus", "audio")


@dataclass(frozen=True)
class BatchPlan:
    """How samples are put together.

    Args:
        batch_size: most samples a batch.
        max_frames: most padded mel frames a batch.
        max_duration: most frames a sample; longer ones are left out and counted.
        buckets: how many lengths batches are padded to, evenly up to max_duration.
        text_multiple: token counts are padded to a multiple of this.
        min_duration: fewest frames a sample.
    """

    batch_size: int
    max_frames: int
    max_duration: int
    buckets: int = 8
    text_multiple: int = 32
    min_duration: int = 16

    def bucket(self, frames: int) -> int:
        """The padded length of a sample: the next of the evenly spaced bucket lengths."""
        step = -(-self.max_duration // self.buckets)
        return min(-(-frames // step) * step, self.max_duration)

    def capacity(self, bucket: int) -> int:
        """Samples in a full batch of a bucket."""
        return max(1, min(self.batch_size, self.max_frames // bucket))


@dataclass
class Place:
    """Where a loader worker stands: resuming starts after it."""

    epoch: int = 0
    batch: int = 0  # batches formed in this epoch


@dataclass
class Loaded:
    """What the loader yields."""

    batch: Batch | None  # None when every sample of it was bad
    worker: int
    place: Place
    skipped: Counter = field(default_factory=Counter)
    texts: list[str] = field(default_factory=list)


class SpeechBatches(IterableDataset):
    """Endless batches over a datasets.IterableDataset (or any re-iterable of samples).

    Args:
        samples: yields dicts with an audio field of AUDIO_KEYS holding {"bytes"} or bytes, and
            "json" {"text", "duration"} or plain "text" and "duration" fields. A `set_epoch`
            method, where there is one, is called before each epoch.
        tokenizer: Tokenizer, or a function of a list of texts to ids (B, T).
        plan, audio, loss: see there.
        seed: of every draw.
        cache_bytes: decoded mels kept in memory by each worker (float16); 0 keeps none.
        places: per worker, where to go on.
        consumed: batches already taken, which tells whose turn it is.
        edge: read before and after each text (DiTConfig.edge).
    """

    def __init__(
        self,
        samples: Any,
        tokenizer: Tokenizer | Callable,
        plan: BatchPlan,
        audio: AudioConfig | None = None,
        loss: LossConfig | None = None,
        seed: int = 0,
        cache_bytes: int = 0,
        places: dict[int, Place] | None = None,
        consumed: int = 0,
        edge: str = "",
    ):
        self.samples, self.tokenizer, self.plan = samples, tokenizer, plan
        self.audio, self.loss = audio or AudioConfig(), loss or LossConfig()
        self.seed, self.cache_left, self.cache = seed, cache_bytes, {}
        self.places, self.consumed, self.edge = places or {}, consumed, edge

    def __iter__(self) -> Iterator[Loaded]:
        info = get_worker_info()
        workers, index = (info.num_workers, info.id) if info else (1, 0)
        worker = (index + self.consumed) % workers  # the loader asks worker 0 first
        start = self.places.get(worker, Place())
        epoch, done = start.epoch, start.batch
        skipped: Counter = Counter()
        while True:
            if hasattr(self.samples, "set_epoch"):
                self.samples.set_epoch(epoch)
            good, reasons = False, Counter()
            for formed, group in enumerate(self.groups(skipped, epoch), 1):
                if formed <= done:
                    good = True
                    continue
                batch, texts = self.collate(group, epoch, skipped)
                good = good or batch is not None
                reasons += skipped
                yield Loaded(batch, worker, Place(epoch, formed), skipped.copy(), texts)
                skipped.clear()
            if not good:
                reasons += skipped
                what = ", ".join(f"{n} {why}" for why, n in reasons.items()) or "no samples"
                raise DataError(f"nothing in the dataset can be used: {what}")
            epoch, done = epoch + 1, 0

    def groups(self, skipped: Counter, epoch: int = 0) -> Iterator[list[dict]]:
        """Items of one epoch, grouped by bucket; groups come out when full, the rest last."""
        waiting: dict[int, list[dict]] = {}
        for item in self.items(skipped, epoch):
            bucket = self.plan.bucket(item["frames"])
            waiting.setdefault(bucket, []).append(item)
            if len(waiting[bucket]) == self.plan.capacity(bucket):
                yield waiting.pop(bucket)
        yield from (waiting[b] for b in sorted(waiting))

    def items(self, skipped: Counter, epoch: int) -> Iterator[dict]:
        """Samples, some joined in pairs of one speaker: what a prompt and new speech look like."""
        alone: dict[str, dict] = {}
        for sample in self.samples:
            item = self.describe(sample, skipped)
            if item is None:
                continue
            speaker = item["speaker"]
            draw = np.random.default_rng([self.seed, epoch, zlib.crc32(item["key"].encode()), 1])
            if speaker is None or draw.random() >= self.loss.pair:
                yield item
            elif speaker not in alone:
                alone[speaker] = item
            elif alone[speaker]["frames"] + item["frames"] > self.plan.max_duration:
                yield item
            else:
                yield joined(alone.pop(speaker), item)
        yield from alone.values()

    def describe(self, sample: dict, skipped: Counter) -> dict | None:
        """Text, bytes and frames of a sample without decoding it, or None with a reason counted."""
        meta = sample.get("json", sample)
        try:
            meta = json.loads(meta) if isinstance(meta, (str, bytes)) else meta
            text = str(meta["text"]).strip()
        except (ValueError, KeyError, TypeError):
            skipped["without text"] += 1
            return None
        audio = next((sample[k] for k in AUDIO_KEYS if k in sample), None)
        data = audio.get("bytes") if isinstance(audio, dict) else audio
        if data is None and isinstance(audio, dict) and audio.get("path"):
            with open(audio["path"], "rb") as f:
                data = f.read()
        if not text or not data:
            skipped["without audio" if text else "without text"] += 1
            return None
        try:
            seconds = meta.get("duration") or soundfile.info(io.BytesIO(data)).duration
            frames = int(float(seconds) * self.audio.frame_rate) + 1
        except (soundfile.LibsndfileError, ValueError, TypeError, OverflowError):
            skipped["unreadable audio"] += 1
            return None
        if not self.plan.min_duration <= frames <= self.plan.max_duration:
            skipped["too long" if frames > self.plan.max_duration else "too short"] += 1
            return None
        key = str(sample.get("__key__") or zlib.crc32(data))
        speaker = meta.get("speaker")
        return {
            "key": key,
            "text": text,
            "data": data,
            "frames": frames,
            "speaker": None if speaker is None else str(speaker),
        }

    def mel(self, item: dict) -> np.ndarray:
        """The log mel of an item, from the cache if it is there."""
        if "parts" in item:
            mels = [self.mel(part) for part in item["parts"]]
            item["seam"] = len(mels[0])
            return np.concatenate(mels)
        if item["key"] in self.cache:
            return self.cache[item["key"]].astype(np.float32)
        wave, rate = soundfile.read(io.BytesIO(item["data"]), dtype="float32", always_2d=True)
        wave = wave.mean(1)
        if rate != self.audio.sample_rate:
            import soxr

            wave = soxr.resample(wave, rate, self.audio.sample_rate)
        if not np.isfinite(wave).all():
            raise ValueError("not finite")
        mel = log_mel(wave, self.audio)
        small = mel.astype(np.float16)
        if small.nbytes <= self.cache_left:
            self.cache[item["key"]] = small
            self.cache_left -= small.nbytes
        return mel

    def collate(
        self, group: list[dict], epoch: int, skipped: Counter
    ) -> tuple[Batch | None, list[str]]:
        """Decodes, tokenises, draws and pads a group."""
        mels, tokens, draws, texts = [], [], [], []
        for item in group:
            # a draw depends on the sample and the epoch alone: not on batch, worker or process
            rng = np.random.default_rng([self.seed, epoch, zlib.crc32(item["key"].encode())])
            try:
                mel = self.mel(item)[: self.plan.max_duration]
            except (soundfile.LibsndfileError, ValueError):
                skipped["unreadable audio"] += 1
                continue
            ids = self.encode(item["text"], rng)
            if not 0 < len(ids) <= len(mel) // 2:
                skipped["more text than sound"] += 1
                continue
            mels.append(mel)
            tokens.append(ids)
            texts.append(item["text"])
            draws.append(self.draw(len(mel), rng, item.get("seam")))
        if not mels:
            return None, []
        length = max(self.plan.bucket(len(m)) for m in mels)
        return pad(mels, tokens, draws, length, self.plan.text_multiple), texts

    def encode(self, text: str, rng: np.random.Generator) -> np.ndarray:
        """Token ids; some words spelled, for a phoneme tokenizer."""
        if not isinstance(self.tokenizer, Tokenizer):
            ids = np.asarray(self.tokenizer([self.edge + text + self.edge]))[0]
            return ids[ids >= 0]
        text, _ = fit(prepare(text, self.tokenizer), self.tokenizer)
        text = self.edge + text + self.edge  # as inference reads it
        if self.tokenizer.kind != "phonemes":
            return self.tokenizer.encode(text)
        words = len(WORDS.findall(text))
        spelled = np.flatnonzero(rng.random(words) < self.loss.spell)
        return self.tokenizer.encode(text, set(spelled.tolist()))  # type: ignore[arg-type]

    def draw(self, frames: int, rng: np.random.Generator, seam: int | None = None) -> dict:
        """The random part of an item: time, span, drops, prompt and noise.

        Args:
            frames: of the item.
            seam: where the second clip of a pair begins; the pair's first is then the prompt, and
                mostly just the second is to be spoken.
        """
        c = self.loss
        span = min(frames, max(1, round(frames * rng.uniform(c.min_span, c.max_span))))
        start = int(rng.integers(0, frames - span + 1))
        prompt = max(1, round(frames * rng.uniform(0.1, 0.9)))
        if seam is not None and 0 < seam < frames:
            prompt = seam
            if rng.random() < 0.7:
                start, span = seam, frames - seam
        both = rng.random() < c.drop_both
        return {
            "time": rng.random(),
            "span": (start, start + span),
            "drop_audio": both or rng.random() < c.drop_audio,
            "drop_text": both,
            "prompt": prompt,
            "noise": rng.standard_normal((frames, self.audio.n_mels), dtype=np.float32),
        }


def joined(first: dict, second: dict) -> dict:
    """Two clips as one item."""
    return {
        "key": f"{first['key']}+{second['key']}",
        "text": f"{first['text']} {second['text']}",
        "frames": first["frames"] + second["frames"],
        "speaker": second["speaker"],
        "parts": [first, second],
    }


def pad(mels: list, tokens: list, draws: list, length: int, text_multiple: int) -> Batch:
    """Stacks samples into a Batch of `length` frames."""
    batch, bands = len(mels), mels[0].shape[1]
    mel = np.zeros((batch, length, bands), np.float32)
    noise = np.zeros_like(mel)
    span = np.zeros((batch, length), bool)
    for i, (m, d) in enumerate(zip(mels, draws)):
        mel[i, : len(m)] = m
        noise[i, : len(m)] = d["noise"]
        span[i, d["span"][0] : d["span"][1]] = True
    text = pad_tokens(tokens)
    width = -(-text.shape[1] // text_multiple) * text_multiple
    text = np.pad(text, ((0, 0), (0, width - text.shape[1])), constant_values=-1)

    def column(name: str, dtype: torch.dtype) -> torch.Tensor:
        return torch.tensor([d[name] for d in draws], dtype=dtype)

    return Batch(
        mel=torch.from_numpy(mel),
        lens=torch.tensor([len(m) for m in mels]),
        text=torch.from_numpy(text),
        noise=torch.from_numpy(noise),
        time=column("time", torch.float32),
        span=torch.from_numpy(span),
        drop_audio=column("drop_audio", torch.bool),
        drop_text=column("drop_text", torch.bool),
        prompt=column("prompt", torch.long),
    )
