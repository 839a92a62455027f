"""Options: what is made of a model when it is converted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nanospeech.errors import InputError

DTYPES = ("float32", "float16")
SPEAKING = (  # settings of config.json by which a model speaks
    "temperature",
    "cfg_strength",
    "cfg_rescale",
    "leading_pause",
    "prompt_codec",
    "prompt_widen",
)


@dataclass(frozen=True)
class ConvertOptions:
    """How a release folder is made; what is None is the model's own, or is left out.

    Attributes:
        duration: the duration model's checkpoint.
        vocoder: a vocoder's run or checkpoint, a release folder, safetensors, or a published Vocos:
            .bin with its config.yaml beside it, or a folder of the two.
        like: release folder whose duration model, vocoder, settings and voices are taken, as by a
            distilled model of its teacher.
        student: run of `nanospeech train distill` with this model as teacher, of all its voices;
            it is added to the model, which it then speaks for.
        student_voices: of a student of recordings: names of voices for which it speaks; for other
            recordings it then does where its number of steps is asked for. None: for all.
        student_begins: how many of its steps such a student takes before the model itself goes on,
            after recordings for which it does not speak; None: none.
        imitator: release folder of a model that imitates, whose mels are this one's: it is added to
            the model, and speaks after recordings.
        average: release folder of the same network, with whose speech model's weights the mean is
            taken: of before and after more training (WiSE-FT, arXiv 2109.01903).
        share: of average: the model's own share in the mean, 0 to 1; None is a half.
        codec: DAC-VAE's weights.pth, or a release folder, for models of its latents.
        vocab: vocab.txt, where the checkpoint does not carry its vocabulary; or a tokenizer.json.
        voices: folder of built-in voices to copy, without their weights and paces; by default all
            that the source has.
        weights: "ema" or "raw".
        dtype: "float16" or "float32", of what is not packed; None is float16, but where nothing is
            packed for releases in float32 and other projects' checkpoints that are not in float16,
            which are float32.
        name, default_voice, temperature, cfg_strength, cfg_rescale, leading_pause, prompt_codec,
            prompt_widen, imitates: for config.json.
        kind: whose checkpoint it is, a name of kinds.KINDS; None finds it out.
        config: YAML or JSON file of a foreign checkpoint; by default the YAML file beside it.
        licence: identifier of the weights' licence, such as "apache-2.0", for the model card; by
            default that of the model card beside them, or of the kind's published weights.
        accept_licence: keep to a licence that allows no commercial use; asked for once.
        card: Markdown to put into the model card below its table.
        smooth, sharpen: of the postfilter, see nanospeech/audio/postfilter.py.
        quantize: 4 or 8: pack most layers into so many bits (see
            nanospeech/release/quantization.py).
        quantize_only: of these parts, "model", "student", "duration" or "vocoder"; None: of all.

    Raises:
        InputError: another dtype, or a share beyond 0 to 1 or without average.
    """

    duration: str | Path | None = None
    vocoder: str | Path | None = None
    like: str | Path | None = None
    student: str | Path | None = None
    student_voices: Sequence[str] | None = None
    student_begins: int | None = None
    imitator: str | Path | None = None
    average: str | Path | None = None
    share: float | None = None
    codec: str | Path | None = None
    vocab: str | Path | None = None
    voices: str | Path | None = None
    weights: str = "ema"
    dtype: str | None = None
    name: str | None = None
    default_voice: str | None = None
    card: str | Path | None = None
    temperature: float | None = None
    cfg_strength: float | None = None
    cfg_rescale: float | None = None
    leading_pause: float | None = None
    prompt_codec: str | None = None
    prompt_widen: bool | None = None
    smooth: float | None = None
    sharpen: float | None = None
    quantize: int | None = None
    quantize_only: Sequence[str] | None = None
    imitates: bool | None = None
    kind: str | None = None
    config: str | Path | None = None
    licence: str | None = None
    accept_licence: bool = False

    def __post_init__(self):
        if self.dtype not in (None, *DTYPES):
            raise InputError(f"dtype is {self.dtype!r}; choose from {', '.join(DTYPES)}")
        if self.share is not None and not 0 <= self.share <= 1:
            raise InputError(f"--share is {self.share}; choose 0 to 1")
        if self.share is not None and self.average is None:
            raise InputError("--share goes with --average: of the mean with which release?")
        for field in ("name", "licence"):  # lines of the model card's head
            value = getattr(self, field)
            if value is not None and not (value.isprintable() and value.strip()):
                raise InputError(f"{field} is {value[:40]!r}; give some words in one line")

    def chosen(self, *names: str) -> dict[str, Any]:
        """Those of these options that are not None."""
        return {name: v for name in names if (v := getattr(self, name)) is not None}
