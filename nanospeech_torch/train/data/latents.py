"""Latents: clips of audio latents with a text and another clip of their speaker. No model.

A clip is its log mel, or what "npy" of its sample has; a speaker's clip is the sample's "ref.npy",
another clip of the speaker that came near it, or a part of the clip itself. What follows a clip is
zeros, on which the model is trained too, so that it learns where speech ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nanospeech.config import AudioConfig, option
from nanospeech.errors import InputError, NanospeechError
from nanospeech.latent_architectures import EchoConfig
from nanospeech.text.tokenizer import Tokenizer, pad_tokens

from .batch import Tensors
from .batches import BatchPlan, StreamOptions
from .pairing import Waiting
from .speech import SpeechBatches

ENCODERS = ("mels", "dacvae")
OWN_PART = 0.5  # most of a clip that is its own speaker's


@dataclass(frozen=True)
class EchoLossConfig:
    """Latents, conditions and times in the training of an EchoDiT."""

    latents: str = option(
        "dacvae", "what made the latents: dacvae (prepare features), or mels, made of recordings"
    )
    drop_text: float = option(0.1, "chance that the text is dropped (for guidance)")
    drop_speaker: float = option(0.1, "chance that the speaker is dropped, apart from the text")
    tail: int | None = option(
        None, "latents of silence after a batch's longest clip; None: up to echo.max_latents"
    )
    spell: float = option(0.1, "chance that a known word is spelled in letters (phonemes only)")
    time_mean: float = option(0.0, "mean of the logit of the times, of which 1 is noise")
    time_std: float = option(1.0, "standard deviation of the logit of the times")
    stratify: bool = option(True, "spread a batch's times evenly over their distribution")
    aligner: str | None = option(
        None,
        "release folder whose speech model aligns the clips' tokens (echo.text_window); None: the"
        " one that ships",
    )
    duration: float = option(0.1, "weight of the durations' loss (echo.text_window)")
    text_encoder: str | None = option(
        None, "folder or Hub name of a T5, T5Gemma or T5Gemma 2 that reads the text"
    )
    text_encoder_lr: float = option(
        0.0, "its learning rate relative to the network's; 0: it stays as it is, and is not saved"
    )
    text_cache: str | None = option(None, "folder for the states of texts by a frozen text encoder")

    def __post_init__(self):
        if self.latents not in ENCODERS:
            raise InputError(
                f"echo_loss.latents is {self.latents!r}; choose from {', '.join(ENCODERS)}"
            )
        for name in ("drop_text", "drop_speaker"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"echo_loss.{name} is {getattr(self, name)}; choose 0 to 1")
        if self.tail is not None and self.tail < 0:
            raise InputError(f"echo_loss.tail is {self.tail}, should be 0 or more, or left out")
        if self.duration < 0:
            raise InputError(f"echo_loss.duration is {self.duration}; choose 0 or more")
        if self.time_std <= 0:
            raise InputError(f"echo_loss.time_std is {self.time_std}, should be above 0")
        if self.text_encoder_lr < 0:
            raise InputError(f"echo_loss.text_encoder_lr is {self.text_encoder_lr}; choose 0 to 1")
        if self.text_encoder_lr and self.text_cache:
            raise InputError(
                "echo_loss.text_cache keeps states of a frozen text encoder; leave it out, or set"
                " echo_loss.text_encoder_lr=0"
            )


@dataclass
class EchoBatch(Tensors):
    """One padded batch with its draws; tensors are on one device.

    mel_BNC latents, zero past lens_B; text_BT ids padded with -1; noise_BNC standard normal; time_B
    in (0, 1), of which 1 is noise; speaker_BSC latents, zero past heard_B; drop_text_B and
    drop_speaker_B.
    """

    mel: Tensor
    lens: Tensor
    text: Tensor
    noise: Tensor
    time: Tensor
    speaker: Tensor
    heard: Tensor
    drop_text: Tensor
    drop_speaker: Tensor


class EchoBatches(SpeechBatches):
    """Endless batches of latents, texts and speakers.

    Args:
        samples, tokenizer, plan, audio, stream: see SpeechBatches.
        loss: see EchoLossConfig.
        network: its greatest lengths bound latents, texts and speakers.
    """

    @property
    def untranscribed(self) -> bool:
        return False

    def __init__(
        self,
        samples: Any,
        tokenizer: Tokenizer | Callable | Any,
        plan: BatchPlan,
        audio: AudioConfig,
        loss: EchoLossConfig,
        network: EchoConfig,
        stream: StreamOptions | None = None,
        **settings: Any,
    ):
        super().__init__(samples, tokenizer, plan, audio, loss, stream, **settings)
        self.network, self.options = network, loss

    def waiting_room(self) -> Waiting:
        """Clips without a partner; any two of a speaker fit together."""
        p = self.plan
        return Waiting(2 * p.max_duration, p.min_duration, p.pair_mb * 10**6)

    def on_sample(self, item: dict) -> list[dict]:
        """The clip with its reference; or two clips of a speaker, of which each hears the other."""
        if item["speaker"] is None or "reference" in item:
            return self.ready([item])
        pair, alone = self.unpaired.meet(item, True, self.decoded)
        out = self.ready(alone)
        if pair:
            both = (self.together(*pair), self.together(*pair[::-1]))
            out += [one for one in both if one is not None]
        return out

    def together(self, other: dict, one: dict) -> dict | None:
        """A decoded clip whose speaker is heard in another one."""
        refs = [*other["refs"], *one["refs"]]
        return self.finished({**one, "heard": other["mel"], "refs": refs}, self.skipped)

    def ready(self, items: list[dict]) -> list[dict]:
        """Single items, decoded and tokenised, with their references where they have one."""
        out = []
        for item in items:
            if (one := self.decoded(item)) is None:
                continue
            if "reference" in item and (heard := self.decoded(item["reference"])) is not None:
                one = {**one, "heard": heard["mel"]}
            if (made := self.finished(one, self.skipped)) is not None:
                out.append(made)
        return out

    def finished(self, item: dict, skipped: Counter) -> dict | None:
        """The item with its token ids and the generator of its other draws."""
        rng = self.rng(item, item["epoch"])
        try:
            ids = self.encode(item["text"], rng)
        except NanospeechError:
            skipped["unusable text"] += 1
            return None
        if not 0 < len(ids) <= self.network.max_text:
            skipped["text too long" if len(ids) else "unusable text"] += 1
            return None
        return {**item, "ids": ids, "rng": rng}

    def encode(self, text: str, rng: np.random.Generator) -> np.ndarray:
        return self.ids(self.readable(text), rng)

    def draw(self, item: dict, length: int) -> dict:  # type: ignore[override]
        """The random part of an item: time, drops, part of the speaker's clip, and noise.

        Args:
            length: latents of the padded item.
        """
        c, rng, mel = self.options, item["rng"], item["mel"]
        drawn = {
            "time": (rng.random(), rng.random()),
            "drop_text": rng.random() < c.drop_text,
            "drop_speaker": rng.random() < c.drop_speaker,
        }
        heard = item.get("heard")
        most = self.network.max_speaker
        if heard is None:
            heard, most = mel, min(most, max(1, int(OWN_PART * len(mel))))
        begin = int(rng.integers(0, max(0, len(heard) - most) + 1))
        drawn["heard"] = heard[begin : begin + most]
        shape = length, mel.shape[1]
        return {**drawn, "noise": rng.standard_normal(shape, dtype=np.float32)}

    def collate(
        self, group: list[dict], epoch: int, skipped: Counter
    ) -> tuple[EchoBatch | None, list[str]]:
        """Draws for and pads a group of items; those not yet ready are made so."""
        ready = [i if "rng" in i else self.decoded_now(i, epoch, skipped) for i in group]
        items = [i for i in ready if i is not None]
        if not items:
            return None, []
        length = self.length(max(len(i["mel"]) for i in items))
        draws = [self.draw(item, length) for item in items]
        longest = max(len(i["ids"]) for i in items)
        heard = max(len(d["heard"]) for d in draws)
        if self.plan.carry:  # few shapes, for compiled models
            longest, heard = self.network.max_text, self.network.max_speaker
        text = pad_tokens([i["ids"] for i in items])
        text = np.pad(text, ((0, 0), (0, longest - text.shape[1])), constant_values=-1)
        batch = EchoBatch(
            mel=stacked([i["mel"] for i in items], length),
            lens=torch.tensor([len(i["mel"]) for i in items]),
            text=torch.from_numpy(text),
            noise=stacked([d["noise"] for d in draws], length),
            time=self.times(np.array([d["time"] for d in draws])),
            speaker=stacked([d["heard"] for d in draws], heard),
            heard=torch.tensor([len(d["heard"]) for d in draws]),
            drop_text=torch.tensor([d["drop_text"] for d in draws]),
            drop_speaker=torch.tensor([d["drop_speaker"] for d in draws]),
        )
        return batch, [i["text"] for i in items]

    def capacity(self, bucket: int) -> int:
        """Samples in a full batch: as many as fit when they are padded."""
        return self.plan.capacity(self.length(bucket))

    def length(self, longest: int) -> int:
        """Latents that a batch is padded to."""
        return padded_latents(self.plan, self.network, self.options, longest)

    def times(self, drawn_B2: np.ndarray) -> Tensor:
        """Logit-normal times (arXiv 2403.03206) of uniform draws; stratified: one in each of B
        equal parts of the distribution, by the order of the first draws."""
        first, second = drawn_B2.T
        if self.options.stratify:
            first = (first.argsort().argsort() + second) / len(first)
        uniform = torch.from_numpy(first).clamp(1e-6, 1 - 1e-6)
        logit = self.options.time_mean + self.options.time_std * torch.special.ndtri(uniform)
        return logit.sigmoid().float()


def multiple_of(network: EchoConfig) -> int:
    """Latents that padded lengths are multiples of: 8 positions of the network."""
    return 8 * network.latent_patch


def padded_latents(plan: BatchPlan, network: EchoConfig, loss: EchoLossConfig, longest: int) -> int:
    """Latents that a batch is padded to whose longest clip has so many."""
    if loss.tail is None:
        return network.max_latents
    return min(plan.padded(plan.bucket(longest) + loss.tail), network.max_latents)


def stacked(rows: list[np.ndarray], length: int) -> Tensor:
    """Rows (n, C) as one float32 array (B, length, C) with zeros behind them."""
    both = np.zeros((len(rows), length, rows[0].shape[1]), np.float32)
    for place, row in zip(both, rows):
        place[: len(row)] = row
    return torch.from_numpy(both)
