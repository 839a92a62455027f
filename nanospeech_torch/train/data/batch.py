"""Batch: the inputs of a speech or a duration model in a step. Types alone; reads no data.

Every random draw of a step is in its batch, so a loss depends on nothing but its arguments and the
weights, and a resumed run repeats an uninterrupted one.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from nanospeech.config import option
from nanospeech.errors import InputError


@dataclass(frozen=True)
class LossConfig:
    """Masking, dropout of conditions and augmentation in training, and weights of losses."""

    drop_audio: float = option(0.3, "chance that a sample's audio condition is dropped")
    drop_both: float = option(0.2, "chance that audio and text are dropped (for guidance)")
    min_span: float = option(0.7, "smallest share of a clip that is masked, and trained on")
    max_span: float = option(1.0, "largest share of a clip that is masked")
    spell: float = option(0.1, "chance that a known word is spelled in letters (phonemes only)")
    pair: float = option(
        0.5, "chance that a clip is joined to another of its speaker, which is its prompt"
    )
    warp: float = option(
        0.0,
        "stretches the frequencies of half of the clips and pairs by up to this "
        "share, as other speakers; for data of few speakers, 0.15",
    )
    colour: float = option(
        0.0,
        "applies a smooth random equaliser to half of the clips and pairs, of about so many "
        "nats, as other speakers and microphones; for data of few speakers, 0.4",
    )
    room: float = option(
        0.0,
        "chance that a clip or pair is put into another room (reverberation and faint noise, the "
        "prompt alike); what 0.3 gives and costs is in docs/appendix/any_voice.md",
    )
    spoil: float = option(
        0.0,
        "chance that the prompt of a pair is a poor recording (noise, narrow band), and "
        "what follows is clean; what 0.3 gives and costs is in docs/appendix/any_voice.md",
    )
    band: float = option(
        0.0,
        "chance that the prompt of another pair ends at 9 to 11.4 kHz, as of another sample rate, "
        "and what follows does not",
    )
    untranscribed: bool = option(
        False,
        "learns from clips without a text too: how a voice goes on after its prompt; they may be "
        "in any language",
    )
    prior: float = option(1.0, "weight of the aligner's mean loss")
    duration: float = option(0.1, "weight of the aligner's duration loss")
    model_guidance: float = option(
        0.0, "weight of the averaged model's guidance in the targets; 0.5 in the paper"
    )
    guidance_until: float = option(0.75, "time in [0, 1] from which targets have no guidance")

    def __post_init__(self):
        if not 0 <= self.warp <= 0.5:
            raise InputError(f"loss.warp is {self.warp}; choose 0 to 0.5")
        if not 0 <= self.colour <= 2:
            raise InputError(f"loss.colour is {self.colour}; choose 0 to 2, best 0.4")
        chances = ("drop_audio", "drop_both", "spell", "pair", "room", "spoil", "band")
        for name in (*chances, "min_span", "max_span", "guidance_until"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"loss.{name} is {getattr(self, name)}; choose 0 to 1")
        if self.min_span > self.max_span:
            raise InputError(
                f"loss.min_span is {self.min_span}, above loss.max_span ({self.max_span})"
            )
        if not 0 <= self.model_guidance < 1:
            # targets feed back through the average and diverge at 1 and beyond
            raise InputError(f"loss.model_guidance is {self.model_guidance}; choose 0 to below 1")


@dataclass(frozen=True)
class EarConfig:
    """What a frozen listener hears in training beside what is said, so that no trick pleases it."""

    noise: float = option(
        0.3,
        "most noise that is added to a clip, its standard deviation in the network's units; that of"
        " each clip is uniform from 0 to this",
    )
    level: float = option(
        0.2, "most by which a whole clip is louder or softer, in the network's units"
    )
    colour: float = option(
        0.1,
        "in half of the clips, deviation of six points over the bands, with straight lines between"
        " them, of a curve that is added to all frames, in the network's units",
    )

    def __post_init__(self):
        for f in fields(self):
            if not 0 <= getattr(self, f.name) <= 10:
                raise InputError(
                    f"ear.{f.name} is {getattr(self, f.name)}; choose 0 to 10, best {f.default}"
                )


class Tensors:
    """A dataclass of tensors that move together."""

    def to(self, device: torch.device | str) -> Any:
        """The same on a device."""
        return type(self)(**{k: v.to(device, non_blocking=True) for k, v in vars(self).items()})

    def pin_memory(self) -> Any:
        """The same in page-locked memory, from where it is copied while the device works."""
        return type(self)(**{k: v.pin_memory() for k, v in vars(self).items()})


@dataclass
class Batch(Tensors):
    """One padded batch with its draws; tensors are on one device.

    mel_BNM log mel, zero past lens_B; text_BT ids padded with -1, a row of which without an id is
    of a clip whose words are not known; noise_BNM standard normal;
    time_B in [0, 1]; span_BN true in the frames that are trained on; drop_audio_B and drop_text_B;
    prompt_B frames that a duration model sees; wordless_B frames of a reference before the clip
    whose words are not in the text, 0 without one; voice_B the number of the speaker among a
    student's voices, 0 elsewhere; heard_BPM the first frames of mel_BNM as a condition, where some
    prompts are poor recordings, and no frames elsewhere; disturbance_BNM what a frozen listener
    hears beside what is said (EarConfig), zero past lens_B, and no frames elsewhere.
    """

    mel: Tensor
    lens: Tensor
    text: Tensor
    noise: Tensor
    time: Tensor
    span: Tensor
    drop_audio: Tensor
    drop_text: Tensor
    prompt: Tensor
    wordless: Tensor = None  # type: ignore[assignment]
    voice: Tensor = None  # type: ignore[assignment]
    heard: Tensor = None  # type: ignore[assignment]
    disturbance: Tensor = None  # type: ignore[assignment]

    def __post_init__(self):
        for name in ("wordless", "voice"):
            if getattr(self, name) is None:
                setattr(self, name, torch.zeros_like(self.lens))
        for name in ("heard", "disturbance"):
            if getattr(self, name) is None:
                setattr(self, name, self.mel[:, :0])


@dataclass
class DurationBatch(Tensors):
    """The inputs of a duration model, padded; tensors are on one device.

    mel_BNM log mel of the prompts, zero past prompt_B; lens_B frames of prompt and new speech, of
    the new speech alone where the prompt's words are not known; text_BT ids of both, padded with
    -1; known_B of them the prompt's, 0 where the prompt is part of the clip or its words are
    missing.
    """

    mel: Tensor
    lens: Tensor
    text: Tensor
    prompt: Tensor
    known: Tensor
