"""Converter: a release folder of a checkpoint and options. What it reads is in source and model."""

from __future__ import annotations

import dataclasses
import json
import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nanospeech.architectures import EchoOptions
from nanospeech.config import ModelConfig, PostfilterConfig, SampleOptions
from nanospeech.engine.echo_sampling import echo_options
from nanospeech.errors import InputError
from nanospeech.release.folder import (
    CONFIG,
    IMITATOR,
    MODEL,
    PIECES,
    STUDENT,
    VOCAB,
    VOCODER,
    check_together,
    open_release,
)
from nanospeech.release.quantization import PACKED_PARTS
from nanospeech.release.tensors import read_tensors
from nanospeech.release.voices import recordings_in

from .card import card_rows, float_types, model_card, renewed_card, stored_as
from .codec import read_codec
from .kinds import find_kind
from .lazy import shapes_of
from .licence import check_accepted, is_commercial, licence_of
from .model import Model, add_duration, add_student, apart, completed, from_release
from .options import ConvertOptions
from .settings import find_settings
from .source import check_trained, find_checkpoint, read_source
from .vocoder import read_vocoder
from .writer import check_release, is_release, quantized, write_release

log = logging.getLogger("nanospeech")

OWN = "own"  # the module of this project's checkpoints
# of --onnx: a graph names places in the weights of its own conversion
GRAPHS = ("velocity", "tokens", "text", "means", "log_durations", "student", "duration", "vocoder")


def convert(
    model: str | Path,
    output: str | Path,
    options: ConvertOptions | None = None,
    check: Callable[[ModelConfig], None] | None = None,
    **settings: Any,
) -> ModelConfig:
    """Writes a release folder.

    Args:
        model: the speech model's checkpoint, or a release folder, of which everything is kept
            that the options do not change.
        output: folder to write; files of the same names in it are replaced.
        options: see there.
        check: called with the folder's config before anything is written; it may raise.
        settings: instead of `options`, its fields by name.

    Returns:
        The folder's config.

    Raises:
        InputError, CheckpointError: what cannot be read or does not fit together.
    """
    o = options or ConvertOptions(**settings)
    check_files(Path(output), o)
    if is_release(model) and o.kind in (None, "nanospeech"):
        check_release(model, output, o.weights, o.quantize)
        read = from_release(model, o.vocab)
    else:
        read = from_checkpoint(model, Path(output).name, o)
    read = changed(read, o)
    check_together(read.config, Path(output))
    check_default_voice(read, o)
    if check is not None:
        check(read.config)
    write(read, Path(output), o)
    return read.config


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
    if kind.module != OWN and o.quantize is None:
        floats = (t for t in source.tensors.values() if t.is_floating_point())
        if next(floats, torch.zeros(0)).dtype != torch.float16:
            read = dataclasses.replace(read, dtype="float32")
    return dataclasses.replace(read, config=config)


def changed(read: Model, o: ConvertOptions) -> Model:
    """A model with other settings and other parts."""
    known = [
        "name",
        "default_voice",
        "temperature",
        "cfg_strength",
        "cfg_rescale",
        "leading_pause",
        "prompt_codec",
        "imitates",
        "licence",
    ]
    config, parts = dataclasses.replace(read.config, **o.chosen(*known)), dict(read.parts)
    if config.echo is not None:
        config = dataclasses.replace(config, echo_sampling=sampled_as(config, o))
    if filters := o.chosen("smooth", "sharpen"):
        own = config.postfilter or PostfilterConfig()
        config = dataclasses.replace(config, postfilter=dataclasses.replace(own, **filters))
    if o.duration is not None:
        config, parts["duration"] = add_duration(config, o.duration, o.weights)
    if o.vocoder is not None:
        vocoder, parts["vocoder"] = read_vocoder(o.vocoder)
        config = dataclasses.replace(config, vocoder=vocoder)
    if o.like is not None:
        read = dataclasses.replace(read, config=config, parts=parts)
        read = completed(read, o.like, o.chosen(*known))
        config, parts = read.config, dict(read.parts)
    if o.average is not None:
        parts["model"] = averaged(parts["model"], o.average)
    if o.student is not None:
        if o.voices is not None:
            raise InputError("--student has learnt the model's voices; --voices replaces them")
        config, parts["student"] = add_student(
            config, parts["model"], o.student, o.weights, o.student_voices
        )
    elif o.student_voices is not None:
        raise InputError("--student-voices goes with --student: which run's or folder's?")
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
    elif o.quantize_only is not None:
        raise InputError("--quantize-only goes with --quantize: to how many bits?")
    return dataclasses.replace(read, config=config, parts=parts)


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


def averaged(model: Mapping[str, Tensor], folder: str | Path) -> dict[str, Tensor]:
    """The means of a speech model's weights and a release's.

    Raises:
        InputError: their networks differ.
    """
    other = from_release(folder, None).parts["model"]
    shapes, theirs = shapes_of(model), shapes_of(other)
    if shapes != theirs:
        odd = min(n for n in shapes.keys() | theirs.keys() if shapes.get(n) != theirs.get(n))
        raise InputError(f"--average {folder} is of another network: its {odd} differs")
    return {n: (model[n].float() + other[n].float()) / 2 for n in shapes}


def check_default_voice(read: Model, o: ConvertOptions) -> None:
    """Raises InputError where the default voice that is asked for is none of the folder's."""
    voices = o.voices or read.file("voices")
    names = {} if voices is None else recordings_in(Path(voices))
    if o.default_voice is not None and names and o.default_voice not in names:
        raise InputError(
            f"--default-voice {o.default_voice} is none of the voices in {voices}:"
            f" {', '.join(sorted(names))}"
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


def write(read: Model, folder: Path, o: ConvertOptions) -> None:
    """Writes a model's folder."""
    # a voice's weights and pace belong to one model
    own = ("*.safetensors", "*.json")
    voices = o.voices or read.file("voices")
    try:
        dtype = o.dtype or read.dtype
        remove(folder, [f"{name}.onnx" for name in GRAPHS])  # of an earlier conversion
        write_release(folder, read.config, read.parts, dtype)
        read.tokenizer.save(folder / "vocab.txt")
        write_encoder(read, folder)
        shutil.rmtree(folder / IMITATOR, ignore_errors=True)  # of an earlier conversion
        if read.imitator is not None:
            copy_imitator(read.imitator, folder / IMITATOR)
            read = dataclasses.replace(read, imitator=folder / IMITATOR)
        if voices is not None or read.like is not None:
            remove(folder / "voices", own)  # of an earlier conversion into the same folder
        if voices is not None:
            left_out = shutil.ignore_patterns(*own) if o.voices else None
            shutil.copytree(voices, folder / "voices", ignore=left_out, dirs_exist_ok=True)
        elif read.like is not None:
            spoken = None if o.default_voice is not None else read.config.default_voice
            one = () if spoken is None else (spoken,)
            copy_voices(read.like, folder, read.voices or one, bool(read.voices))
        card = card_of(read, read.config, dtype, o.card)
        (folder / "README.md").write_text(card, encoding="utf-8")
    except OSError as e:
        raise InputError(f"cannot write {folder}: {e}") from e


def remove(folder: Path, patterns: Sequence[str]) -> None:
    """Deletes the files of a folder whose names are of some patterns."""
    for pattern in patterns:
        for file in folder.glob(pattern):
            file.unlink()


def write_encoder(read: Model, folder: Path) -> None:
    """Writes what is beside a text encoder's weights, or copies a release's whole encoder."""
    if read.config.text_encoder is None:
        return
    name = read.config.text_encoder.folder
    if read.encoder is not None:
        written = json.dumps(read.encoder, indent=2) + "\n"
        (folder / name / CONFIG).write_text(written, encoding="utf-8")
    elif own := read.file(name):
        shutil.copytree(own, folder / name, dirs_exist_ok=True)


def copy_imitator(source: Path, folder: Path) -> None:
    """Copies what of a release folder a model needs of its imitator.

    Its vocoder too, unless it is the model's, in whose folder this one is.
    """
    folder.mkdir(exist_ok=True)
    for pattern in (CONFIG, "model*.safetensors*", STUDENT, VOCAB, PIECES, "README.md"):
        for file in source.glob(pattern):
            shutil.copy(file, folder)
    own, model = source / VOCODER, folder.parent / VOCODER
    if own.is_file() and not (model.is_file() and alike(own, model)):
        shutil.copy(own, folder)


def alike(one: Path, other: Path) -> bool:
    """Whether two files hold the same tensors, maybe of other types."""
    a, b = read_tensors(one, True), read_tensors(other, True)
    return a.keys() == b.keys() and all(
        apart(torch.tensor(a[n]), torch.tensor(b[n])) < 1e-3 for n in a
    )


def copy_voices(source: Path, folder: Path, taught: Sequence[str], weights: bool) -> None:
    """Copies those voices of a teacher that its student was taught.

    Without such voices, those of the release are copied that have no weights of their own.

    Args:
        weights: whether their weights go along: a student of all voices adds them to its own; a
            student of one voice has them in its own.
    """
    own = {f.stem for f in (source / "voices").glob("*.safetensors")}
    (folder / "voices").mkdir(exist_ok=True)
    for file in (source / "voices").glob("*"):
        name = file.name.partition(".")[0]
        if file.suffix == ".safetensors" and not weights:
            continue
        if name in taught or (not taught and name not in own):
            shutil.copy(file, folder / "voices")


def card_of(read: Model, config: ModelConfig, dtype: str, extra: str | Path | None) -> str:
    """The model card: a release's own with its table renewed, or a new one."""
    if extra is None and (own := read.file("README.md")):
        rows = [*card_rows(config, read.parts, dtype), *imitator_rows(read.imitator)]
        return renewed_card(own.read_text(encoding="utf-8"), rows, config.licence)
    more = Path(extra).read_text(encoding="utf-8") if extra else ""
    return model_card(config, read.parts, dtype, read.step, more, imitator_rows(read.imitator))


def imitator_rows(folder: Path | None) -> list[str]:
    """The card's rows of an imitator, its student and its vocoder, and its licence if known."""
    if folder is None:
        return []
    own, rows = open_release(folder), []
    files = {"model": MODEL}
    files |= {"student": STUDENT} if own.config.student is not None else {}
    files |= {"vocoder": VOCODER} if (folder / VOCODER).is_file() else {}
    for part, file in files.items():
        count = sum(prod(shape) for shape in own.shapes(file).values())
        about = [stored_as(own.config, part, float_types(own.folder / file))]
        about += [f"licence {own.config.licence}"] if own.config.licence else []
        rows.append(f"| {IMITATOR}/{file} | {count:,} | {', '.join(about)} |")
    return rows
