r"""Spoken mels: what a model makes of texts, as shards to distil it from.

    nanospeech prepare spoken my_voice/release texts.txt --out spoken
    nanospeech train distill --set teacher=my_voice/release distill.voice=all \
        data.shards='spoken/*.tar'

A student learns where its teacher goes, so that no recordings are needed: texts are enough, spoken
in each of the teacher's voices after the voice's own prompt, as it will be asked to. Writes tars of
{key}.npy, the mel as float16; {key}.ref.npy, the prompt's, which training puts before it; and
{key}.json with the text, the voice as "speaker" and the prompt's words as "ref_text". Lines that
are more than one chunk, and those of --exclude, are left out. The last line is one JSON document.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from nanospeech.cli import Parser, command
from nanospeech.corpus.layouts import lines_of
from nanospeech.errors import InputError
from nanospeech.load import pick_backend, start
from nanospeech.release.folder import open_release
from nanospeech.release.voices import find_voice, model_voices
from nanospeech.speech.chunks import sample
from nanospeech.speech.speaker import Speaker

from .shards import ShardWriter, npy, old_shards

PACES = 0.85, 1.15  # speeds of clips


def read_lines(path: Path, excluded: list[Path]) -> list[str]:
    """The lines of a file that are in none of the others.

    Raises:
        InputError: a file cannot be read, or no line is left.
    """
    without = {line.strip() for file in excluded for line in lines_of(file)} | {""}
    kept = [line.strip() for line in lines_of(path) if line.strip() not in without]
    if not kept:
        raise InputError(f"{path} has no line to speak")
    return kept


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Writes the shards; returns clips and hours of each voice."""
    release = open_release(args.model).itself()
    # no comma before short texts: it would be in the sound and not in the text
    config = dataclasses.replace(release.config, leading_pause=0.0)
    release = dataclasses.replace(release, config=config)
    engine = start(release, pick_backend(args.backend, config))
    if engine.config.echo or engine.distilled:
        raise InputError(f"{engine.folder} is no teacher: it speaks latents, or is distilled")
    names = args.voices or list(model_voices(engine.folder))
    if not names:
        raise InputError(f"{engine.folder} has no voices of its own")
    speakers = [Speaker(engine, name, seed=0) for name in names]
    voices = [find_voice(name, engine.folder) for name in names]
    texts = read_lines(args.texts, args.exclude)
    rng = np.random.default_rng(args.seed)
    clips: Counter[str] = Counter()
    frames: Counter[str] = Counter()
    for path in old_shards([], args.out, "spoken", args.overwrite):
        path.unlink()
    bar = tqdm(total=args.clips, unit=" clips", disable=None)
    with ShardWriter(args.out, "spoken", 200) as writer:
        for turn in range(args.clips):
            who, voice = speakers[turn % len(names)], voices[turn % len(names)]
            text, seed = texts[rng.integers(len(texts))], int(rng.integers(2**31))
            who.speed = float(rng.uniform(*PACES))
            try:
                part, *more = who.parts(text)
                if more:
                    continue
                chunk = who.part_chunk(part, seed)
                (mel,) = sample(who.engine, who.prompt, [chunk], who.options)
            except InputError:  # a line that cannot be said
                continue
            about: dict[str, Any] = {"text": part.text, "speaker": voice.name}
            about["ref_text"] = voice.text
            about["target_duration"] = len(mel) / engine.config.audio.frame_rate
            files = {"npy": npy(mel), "ref.npy": npy(who.prompt.mel)}
            writer.add(f"{voice.name}_{turn:06d}", files | {"json": json.dumps(about).encode()})
            clips[voice.name] += 1
            frames[voice.name] += len(mel)
            bar.update()
    if not clips:
        raise InputError(f"no line of {args.texts} is of one chunk")
    rate = 3600 * engine.config.audio.frame_rate
    return {
        v.name: {"clips": clips[v.name], "hours": round(frames[v.name] / rate, 4)} for v in voices
    }


def build_parser() -> argparse.ArgumentParser:
    p = Parser("nanospeech prepare spoken", __doc__)
    p.add_argument("model", help="release folder: the teacher")
    p.add_argument("texts", type=Path, help="file with a sentence in each line")
    p.add_argument("--out", type=Path, required=True, help="folder for the shards")
    p.add_argument("--voices", nargs="*", default=[], help="default: all of the model's own")
    p.add_argument("--clips", type=int, default=1200, help="tried, of all voices (%(default)d)")
    p.add_argument(
        "--exclude", type=Path, nargs="*", default=[], help="files of sentences to leave out"
    )
    p.add_argument("--overwrite", action="store_true", help="replace the shards in --out")
    p.add_argument("--backend", default="auto", help="as of nanospeech speak")
    p.add_argument("--seed", type=int, default=0, help="of lines, paces and noise")
    return p


@command
def main(argv: list[str] | None = None) -> int:
    args = build_parser().parse_args(argv)
    print(json.dumps(run(args)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
