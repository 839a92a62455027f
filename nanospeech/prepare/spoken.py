r"""Spoken mels: what a model makes of texts, as shards to distil it from.

    nanospeech prepare spoken my_voice/release texts.txt --out spoken
    nanospeech train distill --set teacher=my_voice/release distill.voice=all \
        data.shards='spoken/*.tar'
    nanospeech prepare spoken my_imitator texts.txt --recordings shards/*.tar --out spoken

A student learns where its teacher goes, so that no recordings are needed: texts are enough, spoken
in each of the teacher's voices after the voice's own prompt, as it will be asked to; or, by a
teacher that imitates, after --recordings, whose speakers take turns. --as-heard has whoever speaks
for users speak, students and imitators too: mels to train a vocoder on. Writes tars of
{key}.npy, the mel as float16; {key}.ref.npy, the prompt's, which training puts before it; and
{key}.json with the text, the voice as "speaker" and the prompt's words as "ref_text". Lines that
are more than one chunk, and those of --exclude, are left out, and counted on standard error. After
an interruption the same command goes on after the last whole shard, unless it is to --overwrite.
The last line is one JSON document.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from tqdm import tqdm

from nanospeech.cli import Parser, command
from nanospeech.corpus.layouts import Sample
from nanospeech.corpus.mp3 import BadAudio, decode
from nanospeech.corpus.skips import find_some
from nanospeech.corpus.tables import lines_of
from nanospeech.corpus.written_out import written_out
from nanospeech.errors import InputError
from nanospeech.load import pick_backend, start
from nanospeech.output import OutputOptions
from nanospeech.release.folder import open_release
from nanospeech.release.tensors import digest
from nanospeech.release.voices import model_voices
from nanospeech.speech.chunks import sample
from nanospeech.speech.reference import finished
from nanospeech.speech.speaker import Speaker

from .choose_prompts import of_each
from .made import made_shards
from .shards import OVERWRITE, npy, plain_key

PACES = 0.85, 1.15  # speeds of clips
SECONDS = 1.5, 12.0  # of the recordings that are imitated
SIZE = 200  # clips of a shard
REASONS = 5  # that are told why clips were left out, the commonest


class Voices:
    """The voices of a teacher, each with its prompt.

    Args:
        engine: the teacher.
        names: of its voices.
        output: with the language of the texts.
    """

    def __init__(self, engine: Any, names: Sequence[str], output: OutputOptions):
        self.names = list(names)
        self.speakers = {name: Speaker(engine, name, seed=0, output=output) for name in names}

    def speaker(self, name: str, rng: np.random.Generator) -> tuple[Speaker, str]:
        """One that speaks in a voice, and the words of its prompt."""
        speaker = self.speakers[name]
        assert speaker.voice is not None
        return speaker, speaker.voice.text


class Recordings:
    """Speakers whose recordings a teacher imitates.

    Args:
        engine: the teacher.
        paths: whatever `nanospeech prepare shards` reads.
        without: speakers to leave out.
        output: with the language of the texts.

    Raises:
        InputError: nobody is left, or a speaker to leave out is not there.
    """

    def __init__(
        self,
        engine: Any,
        paths: Sequence[Path],
        without: Collection[str] = (),
        output: OutputOptions = OutputOptions(),
    ):
        self.engine, self.output = engine, output
        found = of_each(find_some(paths)[0], "unnamed")
        if strangers := sorted(set(without) - found.keys()):
            raise InputError(f"no recordings of {strangers}; there are {sorted(found)}")
        self.of = {name: samples for name, samples in found.items() if name not in without}
        if not self.of:
            raise InputError(f"{', '.join(map(str, paths))}: all speakers are left out")
        self.names = sorted(self.of)

    def speaker(self, name: str, rng: np.random.Generator) -> tuple[Speaker, str]:
        """One that imitates some recording of a speaker, prepared as users' are, and its words.

        Raises:
            BadAudio: the recording is unreadable, silent, too short or too long.
            InputError: it cannot be imitated.
        """
        recording: Sample = self.of[name][rng.integers(len(self.of[name]))]
        said = written_out(recording, self.engine.tokenizer).text
        wave, _ = decode(recording.audio.read(), *SECONDS)
        prompt = finished(wave, [])
        return Speaker(self.engine, None, prompt, said, seed=0, output=self.output), said


def read_lines(path: Path, excluded: list[Path]) -> list[str]:
    """The lines of a file that are in none of the others.

    Raises:
        InputError: a file cannot be read, or no line is left.
    """
    without = {line.strip() for file in excluded for line in lines_of(file)} | {""}
    lines = [line for line in map(str.strip, lines_of(path)) if line]
    kept = [line for line in lines if line not in without]
    if lines and not kept:
        of = ", ".join(map(str, excluded))
        raise InputError(f"all {len(lines)} lines of {path} are in those of --exclude: {of}")
    if not kept:
        raise InputError(f"{path} has no line to speak")
    return kept


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Writes the shards; returns clips and hours of each voice."""
    release = open_release(args.model)
    release = release if args.as_heard else release.itself()
    # no comma before short texts: it would be in the sound and not in the text
    config = dataclasses.replace(release.config, leading_pause=0.0)
    release = dataclasses.replace(release, config=config)
    engine = start(release, pick_backend(args.backend, config))
    if engine.config.echo or (engine.distilled and not args.as_heard):
        raise InputError(f"{engine.folder} is no teacher: it speaks latents, or is distilled")
    output = OutputOptions(language=args.language)
    if args.recordings:
        voices: Voices | Recordings = Recordings(engine, args.recordings, args.without, output)
        samples = [sample for found in voices.of.values() for sample in found]
    else:
        voices = Voices(engine, args.voices or list(model_voices(engine.folder)), output)
        samples = []
    names = voices.names
    if not names:
        raise InputError(f"{engine.folder} has no voices of its own")
    texts = read_lines(args.texts, args.exclude)
    clips: Counter[str] = Counter()
    seconds = dict.fromkeys(names, 0.0)
    left_out: Counter[str] = Counter()
    bar = tqdm(total=args.clips, unit=" clips", disable=None)
    free = "clips", "out", "overwrite"  # a clip is the same whatever these are
    settings = {k: v for k, v in vars(args).items() if k not in free}
    settings |= {"weights": digest(release.folder), "lines": crc32("\n".join(texts).encode())}
    made = made_shards(args.out, "spoken", SIZE, settings, args.overwrite, samples)
    with made as (writer, done):
        for turn in range(args.clips):
            name, rng = names[turn % len(names)], np.random.default_rng((args.seed, turn))
            key = f"{name}_{turn:06d}"
            if before := done.get(plain_key(key)):
                clips[name] += 1
                seconds[name] += before["target_duration"]
                bar.update()
                continue
            text = texts[rng.integers(len(texts))]
            seed, pace = int(rng.integers(2**31)), float(rng.uniform(*PACES))
            try:
                who, said = voices.speaker(name, rng)
                who.speed = pace
                part, *more = who.parts(text)
                if more:
                    left_out["its line is more than one chunk"] += 1
                    continue
                chunk = who.part_chunk(part, seed)
                (mel,) = sample(who.engine, who.prompt, [chunk], who.options)
            except (InputError, BadAudio) as e:  # of a line, or of a recording
                kind = f"its recording is {e.args[0]}" if isinstance(e, BadAudio) else str(e)
                left_out[kind] += 1
                continue
            about: dict[str, Any] = {"text": part.text, "speaker": name, "ref_text": said}
            about["target_duration"] = len(mel) / engine.config.audio.frame_rate
            files = {"npy": npy(mel), "ref.npy": npy(who.prompt.mel)}
            writer.add(key, files | {"json": json.dumps(about).encode()})
            clips[name] += 1
            seconds[name] += about["target_duration"]
            bar.update()
    if not clips:
        raise InputError(
            f"no line of {args.texts} is of one chunk, or no recording can be imitated: "
            f"{left_out.most_common(1)[0][0]}"
        )
    if left_out:
        why = "; ".join(f"{n} {reason}" for reason, n in left_out.most_common(REASONS))
        print(f"{left_out.total()} of {args.clips} clips were left out: {why}", file=sys.stderr)
    return {n: {"clips": clips[n], "hours": round(seconds[n] / 3600, 4)} for n in names}


def build_parser() -> argparse.ArgumentParser:
    p = Parser("nanospeech prepare spoken", __doc__)
    p.add_argument("model", help="release folder: the teacher")
    p.add_argument("texts", type=Path, help="file with a sentence in each line")
    p.add_argument("--out", type=Path, required=True, help="folder for the shards")
    p.add_argument("--voices", nargs="*", default=[], help="default: all of the model's own")
    p.add_argument(
        "--recordings",
        type=Path,
        nargs="+",
        help=f"imitate these instead, of {SECONDS[0]:g} to {SECONDS[1]:g} seconds: whatever prepare"
        " shards reads",
    )
    p.add_argument("--without", nargs="*", default=[], help="speakers that are not imitated")
    p.add_argument(
        "--as-heard",
        action="store_true",
        help="not by the model itself, but by the network that speaks for users, maybe a student",
    )
    p.add_argument("--clips", type=int, default=1200, help="tried, of all voices (%(default)d)")
    p.add_argument(
        "--exclude", type=Path, nargs="*", default=[], help="files of sentences to leave out"
    )
    p.add_argument("--language", help="of the texts, such as de (default: the model's)")
    p.add_argument("--overwrite", action="store_true", help=OVERWRITE)
    p.add_argument("--backend", default="auto", help="as of nanospeech speak")
    p.add_argument("--seed", type=int, default=0, help="of lines, paces and noise (%(default)s)")
    return p


@command(interrupted="stopped; without --overwrite the same command goes on")
def main(argv: list[str] | None = None) -> int:
    args = build_parser().parse_args(argv)
    if args.clips < 1:
        raise InputError(f"--clips is {args.clips}; choose at least 1")
    print(json.dumps(run(args)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
