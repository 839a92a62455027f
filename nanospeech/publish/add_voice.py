"""Add voice: copies the voice of a finetuned model into the folder that it was finetuned from.

    nanospeech finetune --data recordings/ --voice anna --output anna
    nanospeech publish voice anna FOLDER --voice anna
    nanospeech speak --model FOLDER --voice anna --text "Hello."

FOLDER's other voices stay as they are. voices/anna.safetensors holds the difference between the
two models' weights, compressed to a given size (nanospeech/release/voice_weights.py). Where FOLDER
has an imitator, which finetuning starts from, the difference is to its weights. The last line is
one JSON document: the file's size, and the share of the difference that it holds.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import sys
from pathlib import Path

import numpy as np

from nanospeech.cli import Parser, command
from nanospeech.errors import InputError
from nanospeech.files import whole, write_json
from nanospeech.release.folder import CONFIG, MODEL, Release, open_release
from nanospeech.release.sharded import write_whole
from nanospeech.release.voice_weights import added, difference, header_bytes
from nanospeech.release.voices import SUFFIXES, find_voice, list_voices

from .push import VOICE_FILES


def add_voice(
    tuned: Release, base: Release, name: str, megabytes: float, overwrite: bool = False
) -> dict[str, float]:
    """Writes the voice's files; the size in MB and the share of the change that is kept.

    A voice that its model speaks with the base's weights gets no file of weights.

    Args:
        tuned: with the voice among its own.
        base: the folder that gets it.
        name: of the voice.
        megabytes: of its file of weights, at the most.
        overwrite: a voice of that name that is there.

    Raises:
        InputError: no such voice, another of that name, or models that are not alike, or are one.
    """
    if tuned.folder.resolve() == base.folder.resolve():
        raise InputError(f"{tuned.folder} is both folders; name the finetuned model's first")
    voice = find_voice(name, tuned.folder)
    if voice.audio.parent != tuned.folder / "voices":
        raise InputError(f"{tuned.folder} has no voice {name!r} of its own")
    # finetuning starts from the imitator where there is one, unless a voice was asked for
    speaks = tuned.imitator() if voice.settings.imitated and tuned.config.imitator else tuned
    imitated = base.config.imitator and bool(speaks.config.imitates)
    begun = base.imitator() if imitated else base
    if speaks.tokenizer.vocab != begun.tokenizer.vocab or speaks.config.audio != begun.config.audio:
        raise InputError(f"{tuned.folder} has another tokenizer or audio config than {base.folder}")
    name, folder = voice.name, base.folder / "voices"  # the name as its files have it
    old = files_of(name, folder)
    if old and not overwrite:
        raise InputError(f"{base.folder} has a voice {name!r}; pass --overwrite to replace it")
    # a voice of the finetuned model may have weights of its own, too
    speaks = dataclasses.replace(speaks, voice=voice.weights)
    before, after = begun.weights(MODEL), speaks.weights(MODEL)
    room = max(0, int(megabytes * 1e6) - header_bytes(before))
    change = difference(before, after, room // 2)
    total = sum(square(t, after[n]) for n, t in before.items())
    if old:
        forget(base, name)
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.safetensors"
    if total:
        write_whole(change, path)
    files = [f for f in files_of(name, voice.audio.parent) if f.suffix != path.suffix]
    written = [path] * bool(total) + [copied(file, folder) for file in files]
    if imitated != voice.settings.imitated:
        settings = folder / f"{name}.json"
        known = json.loads(settings.read_text(encoding="utf-8")) if settings in written else {}
        write_json(settings, known | {"imitated": imitated}, indent=2)
        written.append(settings)
    for file in old:  # of a name in other letters, which may be the same files
        if file.exists() and not any(file.samefile(new) for new in written):
            file.unlink()
    if not total:
        return {"megabytes": 0.0, "kept": 1.0}
    kept = added(before, change, path)
    lost = sum(square(t, after[n]) for n, t in kept.items())
    return {"megabytes": path.stat().st_size / 1e6, "kept": 1 - lost / total}


def files_of(name: str, folder: Path) -> list[Path]:
    """A voice's files in a folder, in any letters; none of one that begins like it: anna.old."""
    mine = {f"{name}{end}".casefold() for end in (*SUFFIXES, *VOICE_FILES)}
    return [f for f in folder.glob("*") if f.name.casefold() in mine]


def copied(file: Path, folder: Path) -> Path:
    """A copy of a file in a folder; a link of that name, as the Hub's cache has, is replaced."""
    with whole(folder / file.name) as part:
        shutil.copyfile(file, part)
    return folder / file.name


def forget(release: Release, name: str) -> None:
    """Takes a voice from those of a folder's student, which has not learnt the one to come."""
    student = release.config.student
    if student is None:
        return
    left = tuple(voice for voice in student.voices if voice.casefold() != name.casefold())
    if len(left) == len(student.voices):
        return
    fewer = dataclasses.replace(student, voices=left) if left else None
    with whole(release.folder / CONFIG) as part:
        dataclasses.replace(release.config, student=fewer).save(part)


def square(a: np.ndarray, b: np.ndarray) -> float:
    """The squared distance of two tensors."""
    return float(np.square(a.astype(np.float32) - b.astype(np.float32)).sum())


def build_parser() -> argparse.ArgumentParser:
    p = Parser("nanospeech publish voice", __doc__)
    p.add_argument("tuned", type=Path, help="release folder of the finetuned model")
    p.add_argument("folder", type=Path, help="release folder that it was finetuned from")
    p.add_argument("--voice", required=True, help="name of the voice, in both")
    p.add_argument("--megabytes", type=float, default=3.0, help="size (default: %(default)g)")
    p.add_argument("--overwrite", action="store_true", help="replace a voice of that name")
    return p


@command
def main(argv: list[str] | None = None) -> int:
    args = build_parser().parse_args(argv)
    figures = add_voice(
        open_release(args.tuned),
        open_release(args.folder),
        args.voice,
        args.megabytes,
        args.overwrite,
    )
    print(f"{args.folder} has the voices {', '.join(list_voices(args.folder))}")
    voice = find_voice(args.voice, args.tuned).name
    print(json.dumps({"voice": voice, **{k: round(v, 4) for k, v in figures.items()}}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
