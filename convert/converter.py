"""Converter: a release folder of a checkpoint and options. What it reads is in source and model."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nanospeech.config import ModelConfig, PostfilterConfig, SampleOptions
from nanospeech.engine.echo_sampling import echo_options
from nanospeech.errors import InputError
from nanospeech.latent_architectures import EchoOptions
from nanospeech.release.folder import (
    CONFIG,
    IMITATOR,
    MODEL,
    check_together,
    load_config,
    open_release,
)
from nanospeech.release.quantization import PACKED_PARTS
from nanospeech.release.voices import recordings_in

from .codec import read_codec
from .folder import write
from .kinds import KINDS, find_kind
from .lazy import LazyTensors, shapes_of
from .licence import check_accepted, is_commercial, licence_of, with_parts
from .model import Model, add_duration, add_student, completed, differ, dtype_of, from_release
from .options import SPEAKING, ConvertOptions
from .settings import find_settings
from .source import check_trained, find_checkpoint, located, read_source
from .vocoder import read_vocoder
from .writer import check_release, floats_of, is_release, quantized

log = logging.getLogger("nanospeech")

OWN = "own"  # the module of this project's checkpoints
TRAINING = "dropout", "adaln_zero", "max_latents", "max_text", "max_speaker"  # matter to it alone


def convert(
    model: str | Path,
    output: str | Path,
    options: ConvertOptions | None = None,
    check: Callable[[ModelConfig, str | Path], None] | None = None,
    **settings: Any,
) -> ModelConfig:
    """Writes a release folder.

    Args:
        model: the speech model's checkpoint, or a release folder or its name on the Hub, of which
            everything is kept that the options do not change.
        output: folder to write; files of the same names in it are replaced.
        options: see there.
        check: called with the config and the folder of the output, and those of its imitator,
            before anything is written; it may raise.
        settings: instead of `options`, its fields by name.

    Returns:
        The folder's config.

    Raises:
        InputError, CheckpointError: what cannot be read or does not fit together.
    """
    o = options or ConvertOptions(**settings)
    check_files(Path(output), o)
    model = located(model)
    if is_foreign(model, o):
        model = Path(model) / MODEL
    if is_release(model) and o.kind in (None, "nanospeech"):
        check_release(model, output, o.weights, o.quantize)
        read = from_release(model, o.vocab)
    else:
        read = from_checkpoint(model, Path(output).name, o)
    read = changed(read, o)
    check_together(read.config, Path(output))
    check_default_voice(read, o)
    check_voices(read, Path(output), o)
    if check is not None:
        check(read.config, output)
        if read.imitator is not None:
            check(load_config(read.imitator), read.imitator)
    write(read, Path(output), o)
    return read.config


def is_foreign(folder: str | Path, o: ConvertOptions) -> bool:
    """Whether a folder has no config.json, and another project's weights by a release's name."""
    if not is_release(folder) or (Path(folder) / CONFIG).exists():
        return False
    source, settings = read_source(Path(folder) / MODEL), find_settings(Path(folder), o.config)
    return any(kind.module != OWN and kind.fits(source, settings) for kind in KINDS.values())


def check_files(output: Path, o: ConvertOptions) -> None:
    """Refuses files that are missing, and an output that is still to be read.

    Raises:
        InputError: the message names the option.
    """
    target = output.resolve()
    voices = None if o.voices is None else Path(o.voices)
    if voices is not None and not voices.is_dir():
        raise InputError(f"--voices {voices} is no folder; name one with recordings")
    if o.card is not None and not Path(o.card).is_file():
        raise InputError(f"--card {o.card} is no file")
    if o.like is not None and Path(o.like).resolve() == target:
        raise InputError(f"--like {o.like} is the folder --output; name another")
    if o.imitator is not None and Path(o.imitator).resolve() in (target, target / IMITATOR):
        raise InputError(f"--imitator {o.imitator} is in the folder --output; name another")
    if voices is not None and voices.resolve() == target / "voices":
        raise InputError(f"--voices {voices} lies in the folder --output; name another")
    if voices is not None and target.is_relative_to(voices.resolve()):
        raise InputError(
            f"--output {output} lies in --voices {voices}, all of which is copied there; name a"
            " folder elsewhere"
        )


def from_checkpoint(model: str | Path, name: str, o: ConvertOptions) -> Model:
    """The parts of a model from a checkpoint of any kind.

    Raises:
        InputError: its kind or vocabulary is not known, or its licence was not accepted.
        CheckpointError: it cannot be read, or contradicts itself.
    """
    path = find_checkpoint(model)
    source = read_source(path, o.weights)
    check_trained(source, path, "dit", "echo")
    settings = find_settings(path, o.config)
    kind = find_kind(path, source, settings, o.kind)
    licence = licence_of(path, kind, o.licence)
    check_accepted(path, kind, licence, o)
    read = kind.read(path, source, settings, o)
    config = dataclasses.replace(read.config, name=name, licence=licence)
    if kind.module != OWN:
        read = dataclasses.replace(read, dtype=dtype_of(read.parts["model"]))
    return dataclasses.replace(read, config=config)


def changed(read: Model, o: ConvertOptions) -> Model:
    """A model with other settings and other parts."""
    known = ["name", "default_voice", *SPEAKING, "imitates", "licence"]
    config, parts = dataclasses.replace(read.config, **o.chosen(*known)), dict(read.parts)
    if config.echo is not None:
        config = dataclasses.replace(config, echo_sampling=sampled_as(config, o))
    if filters := o.chosen("smooth", "sharpen"):
        own = config.postfilter or PostfilterConfig()
        config = dataclasses.replace(config, postfilter=dataclasses.replace(own, **filters))
    if o.duration is not None:
        config, parts["duration"] = add_duration(
            config, read.tokenizer.vocab, o.duration, o.weights
        )
    if o.vocoder is not None:
        vocoder, parts["vocoder"] = read_vocoder(o.vocoder)
        config = dataclasses.replace(config, vocoder=vocoder)
    if o.like is not None:
        read = dataclasses.replace(read, config=config, parts=parts)
        read = completed(read, o.like, o.chosen(*known))
        if not (o.voices or read.file("voices") or read.voices):
            read = with_default_voice(read)
        config, parts = read.config, dict(read.parts)
    if o.average is not None:
        parts["model"] = averaged(read, o.average, 0.5 if o.share is None else o.share)
    if o.student is not None:
        if o.voices is not None:
            raise InputError("--student has learnt the model's voices; --voices replaces them")
        config, parts["student"] = add_student(
            config, parts["model"], o.student, o.weights, o.student_voices, o.student_begins or 0
        )
    elif o.student_voices is not None or o.student_begins is not None:
        flag = "--student-begins" if o.student_voices is None else "--student-voices"
        raise InputError(f"{flag} goes with --student: which run's or folder's?")
    elif config.student is not None and (why := other_student(read.config, o)):
        log.warning("the student is left out: it was taught %s", why)
        config = dataclasses.replace(config, student=None)
        del parts["student"]
    if o.imitator is not None:
        read = dataclasses.replace(read, imitator=check_imitator(config, o.imitator))
        config = dataclasses.replace(config, imitator=True)
    if o.codec is not None:
        config, parts["codec"] = add_codec(config, o.codec)
    if o.quantize is not None:
        wanted = PACKED_PARTS if o.quantize_only is None else o.quantize_only
        config = quantized(config, {n: p for n, p in parts.items() if n in wanted}, o.quantize)
        read = dataclasses.replace(read, dtype="float16")  # of the rest: small is what is wanted
    elif o.quantize_only is not None:
        raise InputError("--quantize-only goes with --quantize: to how many bits?")
    config = dataclasses.replace(config, licence=with_parts(config.licence, o))
    return dataclasses.replace(read, config=config, parts=parts)


def with_default_voice(read: Model) -> Model:
    """A model without a default voice with that of the release whose voices are copied, if it is.

    It is not where it has weights for that release's own network.
    """
    assert read.like is not None
    name, voices = load_config(read.like).default_voice, read.like / "voices"
    copied = name in recordings_in(voices) and not (voices / f"{name}.safetensors").is_file()
    if read.config.default_voice or not copied:
        return read
    config = dataclasses.replace(read.config, default_voice=name)
    return dataclasses.replace(read, config=config, lent_voice=True)


def other_student(config: ModelConfig, o: ConvertOptions) -> str:
    """By what a model's student was taught that the options change; empty where they do not."""
    if o.voices is not None:
        return "with other voices"
    if o.average is not None:
        return "by the model before --average, whose text it reads by"
    changes = o.temperature not in (None, config.temperature)
    return "with another temperature" if changes else ""


def sampled_as(config: ModelConfig, o: ConvertOptions) -> EchoOptions | None:
    """How an EchoDiT is sampled where nothing is asked for, with the options' settings.

    Raises:
        InputError: settings that it does not have.
    """
    if o.chosen("smooth", "sharpen"):
        raise InputError("--smooth and --sharpen are not for an EchoDiT, which has no postfilter")
    asked = o.chosen("temperature", "cfg_strength", "cfg_rescale")
    if not asked:
        return config.echo_sampling
    return echo_options(SampleOptions(**asked), config.echo_sampling)


def averaged(read: Model, folder: str | Path, share: float = 0.5) -> LazyTensors:
    """The means of a speech model's weights, which have this share in them, and a release's.

    Raises:
        InputError: their networks or vocabularies differ.
    """
    release = from_release(folder, None)
    model, other = read.parts["model"], release.parts["model"]
    shapes, theirs = shapes_of(model), shapes_of(other)
    odd = [n for n in shapes.keys() | theirs.keys() if shapes.get(n) != theirs.get(n)]
    one, two = (asdict(c.echo or c.dit) for c in (read.config, release.config))
    odd += [n for n in one.keys() | two.keys() if one.get(n) != two.get(n) and n not in TRAINING]
    if odd:
        raise InputError(f"--average {folder} is of another network: its {min(odd)} differs")
    if differ(read.tokenizer.vocab, release.tokenizer.vocab):
        raise InputError(f"--average {folder} was trained with another vocabulary")

    def mean(name: str) -> Tensor:
        a, b = (torch.from_numpy(floats_of(name, tensors[name])) for tensors in (model, other))
        return share * a + (1 - share) * b

    return LazyTensors(shapes, mean)


def check_default_voice(read: Model, o: ConvertOptions) -> None:
    """Raises InputError where the default voice that is asked for is none of the folder's."""
    voices = o.voices or read.file("voices")
    names = {} if voices is None else recordings_in(Path(voices))
    if o.default_voice is not None and names and o.default_voice not in names:
        raise InputError(
            f"--default-voice {o.default_voice} is none of the voices in {voices}:"
            f" {', '.join(sorted(names))}"
        )


def check_voices(read: Model, output: Path, o: ConvertOptions) -> None:
    """Raises InputError where voices in the folder have weights that are for another model."""
    if o.voices or read.file("voices") or read.like:  # which take their place
        return
    if held := sorted((output / "voices").glob("*.safetensors")):
        raise InputError(
            f"--output {output} has voices with weights for the model that is there, such as"
            f" {held[0].name}; name another folder, or remove those files: without them the voices"
            " are recordings"
        )


def check_imitator(config: ModelConfig, folder: str | Path) -> Path:
    """The folder of a model that can imitate for another.

    Raises:
        InputError: it does not imitate, or its mels are others.
    """
    own = open_release(folder)
    if not own.config.imitates:
        own_one = f", such as its own imitator, {own.folder / IMITATOR}"
        raise InputError(
            f"--imitator {folder} does not imitate; name a model that does"
            + (own_one if own.config.imitator else "")
        )
    config.as_imitator(own.config)
    if (licence := own.config.licence) and not is_commercial(licence):
        log.warning("the imitator's weights are under %s: no commercial use", licence)
    return own.folder


def add_codec(config: ModelConfig, path: str | Path) -> tuple[ModelConfig, Mapping[str, Tensor]]:
    """Reads the codec of a model of latents and adds it to the config.

    Raises:
        InputError: the model speaks no latents, or others.
        CheckpointError: it is no codec that can be read.
    """
    codec, tensors = read_codec(path)
    if config.echo is None or config.echo.latent_dim != codec.latent_dim:
        speaks = f"latents of {config.echo.latent_dim}" if config.echo else "mels"
        raise InputError(
            f"the codec {path} makes latents of {codec.latent_dim}, but the model speaks {speaks}"
        )
    audio = dataclasses.replace(
        config.audio, sample_rate=codec.sample_rate, hop_length=codec.hop_length
    )
    return dataclasses.replace(config, codec=codec, audio=audio, vocoder=None), tensors
