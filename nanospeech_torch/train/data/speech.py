"""Speech: samples of speech to padded batches with their random draws. No model.

A sample is decoded before its batch is formed, so that unusable samples are counted by reason and
batches stay full. The loop around it is batches.py's.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from nanospeech.config import AudioConfig
from nanospeech.errors import InputError, NanospeechError
from nanospeech.text.languages import base_code
from nanospeech.text.sentences import fit, prepare
from nanospeech.text.tokenizer import WORDS, Tokenizer, pad_tokens

from . import clips
from .batch import Batch, EarConfig, LossConfig
from .batches import Batches, BatchPlan, Loaded, Prefetch, StreamOptions
from .clips import AUDIO_KEYS, Skip
from .heard import coloured, disturbance, in_room, narrowed, spoiled, warped
from .pairing import joined
from .stream_state import StreamState

__all__ = [
    "AUDIO_KEYS",
    "BatchPlan",
    "Loaded",
    "Prefetch",
    "SpeechBatches",
    "StreamOptions",
    "StreamState",
    "pad",
    "warped",
]


class SpeechBatches(Batches):
    """Endless batches of speech and text.

    Args:
        samples: see sources.make_source; what a sample is, clips.describe.
        tokenizer: Tokenizer, or a function of a list of texts to ids (B, T).
        plan, audio, loss, stream: see there.
        edge: read before and after each text (DiTConfig.edge).
        settings: instead of `stream`, its fields by name.
    """

    def __init__(
        self,
        samples: Any,
        tokenizer: Tokenizer | Callable | Any,
        plan: BatchPlan,
        audio: AudioConfig | None = None,
        loss: LossConfig | Any = None,
        stream: StreamOptions | None = None,
        edge: str = "",
        **settings: Any,
    ):
        stream = stream or StreamOptions(**settings)
        super().__init__(samples, plan, stream)
        self.tokenizer, self.edge = tokenizer, edge
        self.audio, self.loss = audio or AudioConfig(), loss or LossConfig()
        self.cache_left, self.cache = stream.cache_bytes, {}
        self.voices: tuple[str, ...] = ()  # speakers of these names alone, if it has some
        self.ear: EarConfig | None = None  # what a frozen listener hears beside them, if one does

    @property
    def untranscribed(self) -> bool:
        """Whether clips without a text are used; not where a model learns from words alone."""
        return self.loss.untranscribed

    def describe(self, sample: dict, skipped: Counter) -> dict | None:
        """Text, data and frames of a sample without decoding it, or None with a reason counted."""
        try:
            item = self.in_its_language(clips.describe(sample, self.audio, self.untranscribed))
        except Skip as e:
            skipped[str(e)] += 1
            return None
        long = item["frames"] > self.plan.max_duration
        if long or item["frames"] < self.plan.min_duration:
            skipped["too long" if long else "too short"] += 1
            return None
        if self.voices and item["speaker"] not in self.voices:
            skipped["of none of the teacher's voices"] += 1
            return None
        return item

    def in_its_language(self, item: dict) -> dict:
        """The item with its text, and its reference's, read by the language that it names."""
        if not item["text"] or "language" not in item or not isinstance(self.tokenizer, Tokenizer):
            return item
        try:
            tokenizer = self.tokenizer.with_language(base_code(item["language"]))
            item = {**item, "text": prepare(item["text"], tokenizer)}
            if said := item.get("reference", {}).get("text"):
                item["reference"] = {**item["reference"], "text": prepare(said, tokenizer)}
        except InputError as e:
            raise Skip("invalid language or text") from e
        return item

    def on_sample(self, item: dict) -> list[dict]:
        """The items that a new sample makes, alone or joined to another clip of its speaker.

        A pair looks like a prompt and new speech. Clips that wait are long ones; either clip may be
        the prompt, as otherwise long clips would always be prompts.
        """
        if item["speaker"] is None or "reference" in item:
            return self.ready([item])
        pair, alone = self.unpaired.meet(item, self.paired(item), self.decoded)
        out = self.ready(alone)
        if pair:
            turn = self.rng(item, item["epoch"], 4).random() < 0.5
            if bool(pair[0]["text"]) != bool(pair[1]["text"]):
                turn = bool(pair[0]["text"])  # the one without a text is the prompt
            order = pair[::-1] if turn else pair
            fit = sum(part["frames"] for part in pair) <= self.plan.max_duration
            both = self.finished(joined(*order), Counter()) if fit else None
            out += self.ready(pair) if both is None else [both]
        return out

    def rebuild(self, parts: list[dict], piece: int) -> dict | None:
        """An item made again of its samples; None if it cannot be used."""
        decoded = [self.decoded(part) for part in parts]
        known = [part for part in decoded if part is not None]
        if len(known) < len(parts):
            return None
        if len(parts) == 2:
            return self.together(*known)
        return next(iter(self.ready(parts)), None)  # after its reference, where it has one

    def together(self, other: dict, one: dict) -> dict | None:
        """Two decoded clips of a speaker, one after the other."""
        return self.finished(joined(other, one), self.skipped)

    def paired(self, item: dict) -> bool:
        """Whether an item gets a prompt; depends on sample and epoch alone."""
        return bool(self.rng(item, item["epoch"], 1).random() < self.loss.pair)

    def ready(self, items: list[dict]) -> list[dict]:
        """Single items, decoded and tokenised, after their references where they have one."""
        out = []
        for item in items:
            one = self.decoded(item)
            if one is None:
                continue
            both = None
            if "reference" in item and self.paired(item):
                heard = self.decoded(item["reference"])
                if heard and heard["frames"] + one["frames"] <= self.plan.max_duration:
                    pair = joined({**heard, "refs": []}, one)
                    both = self.finished(pair, Counter())
            both = both or self.finished(one, self.skipped)
            out += [both] if both is not None else []
        return out

    def decoded(self, item: dict) -> dict | None:
        """The item with its mel instead of its data, or None with a reason counted."""
        if "mel" in item:
            return item
        try:
            found = self.mel(item)
        except Skip as e:
            self.skipped[str(e)] += 1
            return None
        rest = {k: v for k, v in item.items() if k not in ("data", "reference")}
        return {**rest, "mel": found, "frames": len(found)}

    def mel(self, item: dict) -> np.ndarray:
        """The log mel of a described sample, from the cache if it is there: float16 (N, M)."""
        name = None
        if (self.cache_left or self.cache) and isinstance(item["data"], bytes):
            name = item["key"], zlib.crc32(item["data"])  # clips of two data sets may share a key
        if name in self.cache:
            return self.cache[name]
        mel = clips.mel(item, self.audio, self.plan.min_duration, self.plan.max_duration)
        if name and mel.nbytes <= self.cache_left:
            self.cache[name] = mel
            self.cache_left -= mel.nbytes
        return mel

    def finished(self, item: dict, skipped: Counter) -> dict | None:
        """The item with its token ids and the generator of its other draws."""
        rng = self.rng(item, item["epoch"])
        try:
            ids = self.encode(item["text"], rng) if item["text"] else np.zeros(0, np.int64)
        except NanospeechError:
            skipped["unusable text"] += 1
            return None
        room = (len(item["mel"]) - item.get("wordless", 0)) // 2
        if not bool(item["text"]) <= len(ids) <= room:
            skipped["more text than sound"] += 1
            return None
        if self.loss.warp and rng.random() < 0.5:
            stretch = np.exp(rng.uniform(-1, 1) * np.log1p(self.loss.warp))
            item = {**item, "mel": warped(item["mel"], float(stretch), self.audio.sample_rate)}
        if self.loss.colour and rng.random() < 0.5:
            item = {**item, "mel": coloured(item["mel"], self.loss.colour, rng)}
        if self.loss.room and rng.random() < self.loss.room:
            item = {**item, "mel": in_room(item["mel"], self.audio, rng)}
        if self.loss.spoil and "seam" in item and rng.random() < self.loss.spoil:
            item = {**item, "heard": spoiled(item["mel"][: item["seam"]], self.audio, rng)}
        elif self.loss.band and "seam" in item and rng.random() < self.loss.band:
            item = {**item, "heard": narrowed(item["mel"][: item["seam"]], self.audio, rng)}
        return {**item, "ids": ids, "rng": rng}

    def collate(
        self, group: list[dict], epoch: int, skipped: Counter
    ) -> tuple[Batch | None, list[str]]:
        """Draws for and pads a group of items; those not yet ready are made so."""
        ready = []
        for item in group:
            if "rng" not in item:
                item = self.decoded_now(item, epoch, skipped)
            if item is not None:
                ready.append(item)
        if not ready:
            return None, []
        draws = [
            self.draw(len(i["mel"]), i["rng"], i.get("seam"), i.get("wordless", 0), i.get("heard"))
            for i in ready
        ]
        mels, ids = [i["mel"] for i in ready], [i["ids"] for i in ready]
        length = self.plan.padded(max(self.plan.bucket(len(m)) for m in mels))
        tokens = max(map(len, ids))
        width = next(w for w in self.plan.text_widths(length) if w >= tokens)
        batch = pad(mels, ids, draws, length, width)
        if self.voices:
            batch.voice = torch.tensor([self.voices.index(i["speaker"]) for i in ready])
        return batch, [i["text"] for i in ready]

    def decoded_now(self, item: dict, epoch: int, skipped: Counter) -> dict | None:
        """A described sample, decoded out of turn."""
        self.skipped = skipped
        one = self.decoded({"epoch": epoch, **item})
        return None if one is None else self.finished(one, skipped)

    def encode(self, text: str, rng: np.random.Generator) -> np.ndarray:
        """Token ids; some words spelled, for a phoneme tokenizer."""
        return self.ids(self.edge + self.readable(text) + self.edge, rng)  # as at inference

    def readable(self, text: str) -> str:
        """A text as the tokenizer can read it."""
        if not isinstance(self.tokenizer, Tokenizer):
            return text
        return fit(prepare(text, self.tokenizer), self.tokenizer)[0]

    def ids(self, text: str, rng: np.random.Generator) -> np.ndarray:
        """Token ids of a readable text."""
        if not isinstance(self.tokenizer, Tokenizer):
            ids = np.asarray(self.tokenizer([text]))[0]
            return ids[ids >= 0]
        if self.tokenizer.kind != "phonemes":
            return self.tokenizer.encode(text)
        words = len(WORDS.findall(text))
        spelled = np.flatnonzero(rng.random(words) < self.loss.spell)
        return self.tokenizer.encode(text, set(spelled.tolist()))  # type: ignore[arg-type]

    def draw(
        self,
        frames: int,
        rng: np.random.Generator,
        seam: int | None = None,
        wordless: int = 0,
        heard: np.ndarray | None = None,
    ) -> dict:
        """The random part of an item: time, span, drops, prompt, noise and what disturbs.

        Args:
            frames: of the item.
            seam: where the second clip of a pair begins; the first is then the prompt, and the span
                is mostly the second.
            wordless: frames at the beginning whose words are not in the text; never in the span.
            heard: the first clip's mel as a poor recording; the span is then the second.
        """
        c, worded = self.loss, frames - wordless
        span = min(worded, max(1, round(worded * rng.uniform(c.min_span, c.max_span))))
        start = wordless + int(rng.integers(0, worded - span + 1))
        prompt = max(1, round(frames * rng.uniform(0.1, 0.9)))
        if seam is not None:
            prompt = seam
            if rng.random() < 0.7 or heard is not None:
                start, span = seam, frames - seam
        both = rng.random() < c.drop_both
        found = {
            "time": rng.random(),
            "span": (start, start + span),
            "drop_audio": both or rng.random() < c.drop_audio,
            "drop_text": both,
            "prompt": prompt,
            "wordless": wordless,
            "heard": heard,
            "noise": rng.standard_normal((frames, self.audio.n_mels), dtype=np.float32),
        }
        if self.ear:  # last, so that the other draws are those without a listener
            found["disturbance"] = disturbance(frames, self.audio.n_mels, self.ear, rng)
        return found


def pad(mels: list, tokens: list, draws: list, length: int, width: int) -> Batch:
    """Stacks samples into a Batch of `length` frames and `width` tokens."""
    batch, bands = len(mels), mels[0].shape[1]
    mel = np.zeros((batch, length, bands), np.float32)
    noise = np.zeros_like(mel)
    disturbed = np.zeros_like(mel) if "disturbance" in draws[0] else mel[:, :0]
    span = np.zeros((batch, length), bool)
    for i, (m, d) in enumerate(zip(mels, draws)):
        mel[i, : len(m)] = m
        noise[i, : len(m)] = d["noise"]
        if "disturbance" in d:
            disturbed[i, : len(m)] = d["disturbance"]
        span[i, d["span"][0] : d["span"][1]] = True
    poor = {i: d["heard"] for i, d in enumerate(draws) if d["heard"] is not None}
    heard = mel[:, : max(map(len, poor.values()), default=0)].copy()
    for i, prompt in poor.items():
        heard[i, : len(prompt)] = prompt
    text = pad_tokens(tokens)
    text = np.pad(text, ((0, 0), (0, width - text.shape[1])), constant_values=-1)

    def column(name: str, dtype: torch.dtype) -> torch.Tensor:
        return torch.tensor([d[name] for d in draws], dtype=dtype)

    return Batch(
        mel=torch.from_numpy(mel),
        heard=torch.from_numpy(heard),
        disturbance=torch.from_numpy(disturbed),
        lens=torch.tensor([len(m) for m in mels]),
        text=torch.from_numpy(text),
        noise=torch.from_numpy(noise),
        time=column("time", torch.float32),
        span=torch.from_numpy(span),
        drop_audio=column("drop_audio", torch.bool),
        drop_text=column("drop_text", torch.bool),
        prompt=column("prompt", torch.long),
        wordless=column("wordless", torch.long),
    )
