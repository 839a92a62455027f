"""Folder: a model's whole release folder, its weights by writer.py and what lies beside them."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import torch

from nanospeech.config import ModelConfig
from nanospeech.errors import InputError
from nanospeech.files import merged_folder, read_text
from nanospeech.release import sharded
from nanospeech.release.card_facts import imitator_rows
from nanospeech.release.folder import (
    CONFIG,
    IMITATOR,
    PIECES,
    STUDENT,
    VOCAB,
    VOCODER,
    load_config,
)
from nanospeech.release.tensors import read_tensors

from .card import card_rows, model_card, renewed_card
from .model import Model, apart
from .options import SPEAKING, ConvertOptions
from .writer import PARTS, write_release

# of --onnx: a graph names places in the weights of its own conversion
GRAPHS = ("velocity", "tokens", "text", "means", "log_durations", "student", "duration", "vocoder")
OF_ONE_MODEL = ("*.safetensors", "*.json")  # a voice's weights and pace


def write(read: Model, folder: Path, o: ConvertOptions) -> None:
    """Writes a model's folder: all of it, or where something is wrong nothing."""
    try:
        with merged_folder(folder) as part:
            fill(read, part, o)
            check_links(folder, part)
            clear(folder, any_voices=(part / "voices").is_dir())
    except OSError as e:
        raise InputError(f"cannot write {folder}: {e}") from e


def check_links(folder: Path, part: Path) -> None:
    """Raises InputError where files would come into another folder, by a link in this one."""
    linked = [f for f in part.iterdir() if f.is_dir() and (folder / f.name).is_symlink()]
    if linked:
        link = folder / linked[0].name
        raise InputError(
            f"{link} is a link to {link.resolve()}, whose files would be replaced; remove the link,"
            " or name another --output"
        )


def clear(folder: Path, any_voices: bool) -> None:
    """Deletes what an earlier conversion into the same folder may have written.

    Args:
        any_voices: whether other voices come, in whose place no weights and settings may stay.
    """
    remove(folder, [f"{name}.onnx" for name in GRAPHS])
    for name in PARTS.values():
        sharded.remove(folder / name)
    shutil.rmtree(folder / IMITATOR, ignore_errors=True)
    if any_voices:
        remove(folder / "voices", OF_ONE_MODEL)


def fill(read: Model, folder: Path, o: ConvertOptions) -> None:
    """Writes all files of a model into an empty folder."""
    voices = o.voices or read.file("voices")
    dtype = o.dtype or read.dtype
    write_release(folder, read.config, read.parts, dtype)
    read.tokenizer.save(folder / "vocab.txt")
    write_encoder(read, folder)
    if read.imitator is not None:
        copy_imitator(read.imitator, folder / IMITATOR)
        read = dataclasses.replace(read, imitator=folder / IMITATOR)
    if voices is not None:
        copy_all(Path(voices), folder / "voices", OF_ONE_MODEL if o.voices else ())
    elif read.like is not None:
        named = o.default_voice is not None or read.lent_voice
        spoken = None if named else read.config.default_voice
        one = () if spoken is None else (spoken,)
        copy_voices(read.like, folder, read.voices or one, bool(read.voices))
    card = card_of(read, read.config, dtype, o)
    (folder / "README.md").write_text(card, encoding="utf-8")


def remove(folder: Path, patterns: Sequence[str]) -> None:
    """Deletes the files of a folder whose names are of some patterns."""
    for pattern in patterns:
        for file in folder.glob(pattern):
            file.unlink()


def copy_all(source: Path, folder: Path, left_out: Sequence[str] = ()) -> None:
    """Copies what is in a folder, but for files of some patterns.

    Modes stay behind: a model that is kept read-only has a copy that can be moved and replaced.
    """
    folder.mkdir(exist_ok=True)
    for file in source.iterdir():
        if file.is_dir():
            copy_all(file, folder / file.name, left_out)
        elif not any(file.match(pattern) for pattern in left_out):
            shutil.copyfile(file, folder / file.name)


def write_encoder(read: Model, folder: Path) -> None:
    """Writes what is beside a text encoder's weights, or copies a release's whole encoder."""
    if read.config.text_encoder is None:
        return
    name = read.config.text_encoder.folder
    if read.encoder is not None:
        written = json.dumps(read.encoder, indent=2) + "\n"
        (folder / name / CONFIG).write_text(written, encoding="utf-8")
    elif own := read.file(name):
        copy_all(own, folder / name)


def copy_imitator(source: Path, folder: Path) -> None:
    """Copies what of a release folder a model needs of its imitator.

    Its vocoder too, unless it is the model's, in whose folder this one is.
    """
    folder.mkdir(exist_ok=True)
    for pattern in (CONFIG, "model*.safetensors*", STUDENT, VOCAB, PIECES, "README.md"):
        for file in source.glob(pattern):
            shutil.copyfile(file, folder / file.name)
    own, model = source / VOCODER, folder.parent / VOCODER
    if own.is_file() and not (model.is_file() and alike(own, model)):
        shutil.copyfile(own, folder / VOCODER)


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
            shutil.copyfile(file, folder / "voices" / file.name)


def card_of(read: Model, config: ModelConfig, dtype: str, o: ConvertOptions) -> str:
    """The model card: a release's own with its table renewed, or a new one."""
    imitates = [] if read.imitator is None else imitator_rows(read.imitator)
    if o.card is None and read.folder is not None and (own := read.file("README.md")):
        before = load_config(read.folder)
        rows = [*card_rows(config, read.parts, dtype), *imitates]
        names = before.name, config.name
        card = read_text(own)
        return renewed_card(card, rows, config.licence, names, changes(before, config, o))
    more = read_text(Path(o.card)) if o.card else ""
    return model_card(config, read.parts, dtype, read.step, more, imitates)


def changes(before: ModelConfig, config: ModelConfig, o: ConvertOptions) -> list[str]:
    """In a few words each, what of a release's sound, size or speed the options change."""
    found = []
    if o.quantize is not None:
        found.append(f"weights in {o.quantize} bits")
    if o.average is not None:
        share = "" if o.share is None else f" (its own share: {o.share:g})"
        found.append(f"the mean with another model's weights{share}")
    for name in o.chosen("duration", "vocoder", "codec", "imitator", "student"):
        what = "duration model" if name == "duration" else name
        found.append(f"{'another' if getattr(before, name) else 'a new'} {what}")
    if o.voices is not None:
        found.append("other voices")
    if before.student is not None and config.student is None:
        found.append("no student")
    return found + [
        f"{name} {value}" for name, value in o.chosen(*SPEAKING, "smooth", "sharpen").items()
    ]
