"""Cloning: how well a model speaks in the voices of people whom it has not heard.

    nanospeech evaluate cloning MODEL --people callie.tar asp.tar --imitate callie stella --out eval
    nanospeech evaluate cloning MODEL --people shards/*.tar --prompts clean 10 noise room

PEOPLE is in any layout that `nanospeech prepare shards` reads, with the speakers' names; or one
speaker's recordings after NAME=. Each one that is to be imitated gives --references recordings;
after each the model speaks a sentence for every seed. An utterance is compared with the mean of
the other recordings of each of the people (Resemblyzer, or --speaker-model): how like it is to the
one who was imitated, and whether that one is the nearest of all. A recogniser counts wrong words,
and those of the prompt that were heard again.

--prompts changes the recordings: `clean` is as they are, a number is that many seconds of the
speaker (recordings joined), `noise` has 15 dB more speech than pink noise, `rumble` 14 dB more than
what lies below 42 Hz, `telephone` keeps 300 to 3,400 Hz at 8 kHz, `room` is as from a metre away in
a living room, and `wordless` is as they are, but what they say is not told, as where it is of
another language. All are then prepared as `nanospeech voices add` and --ref-audio do it: rumble is
taken out, hiss lowered, ends are trimmed, the level is set.

OUT gets cloning.csv (a row an utterance, kept: the same command does only what is missing),
cloning.json, cloning.md and cloning.png. The last line of the output is the summary.
"""

from __future__ import annotations

import argparse
import csv
import json
import logging
import sys
import zlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from nanospeech.audio import wave as audio
from nanospeech.audio.wave import SAMPLE_RATE
from nanospeech.cli import Parser, command, say
from nanospeech.corpus.layouts import Sample, find
from nanospeech.corpus.mp3 import BadAudio, decode
from nanospeech.errors import InputError
from nanospeech.files import drop_cut_line
from nanospeech.load import pick_backend
from nanospeech.locks import alone
from nanospeech.measure import metrics
from nanospeech.measure import wer as wer_text
from nanospeech.release.folder import load_config, resolve
from nanospeech.release.tensors import digest
from nanospeech.text.languages import spoken_code
from nanospeech.text.sentences import is_speakable

from . import cloning_report as report
from .items import SENTENCES, named, read_texts
from .prompts import WORDLESS, degraded, seconds_of
from .reading import measured_in
from .results import check_settings

log = logging.getLogger("nanospeech")

SHORTEST, LONGEST = 3.0, 10.0  # seconds of a recording that serves as a prompt as it is
KEY_BYTES = 120  # of a key in a file name: several that are joined can have hundreds
IN_A_MEAN = 12  # recordings that a speaker's mean embedding is made of
JOINED_PAUSE = 0.2  # seconds between recordings that are joined


@dataclass(frozen=True)
class Row:
    """One utterance: who was imitated, after which recording, and what came of it."""

    prompt: str  # what was done to the recording
    speaker: str
    reference: str  # key of the recording
    seed: int
    text: str
    heard: str
    edits: int
    words: int
    leaked: str  # words of the prompt that were heard again
    similarity: float  # to the mean of the speaker's other recordings
    nearest: str  # of all people

    @property
    def key(self) -> tuple[str, str, str, int, str]:
        return self.prompt, self.speaker, self.reference, self.seed, self.text


@dataclass(frozen=True)
class Reference:
    """A recording to imitate: float32 (n,) at SAMPLE_RATE, with its words where it has some."""

    key: str
    wave: np.ndarray
    text: str
    used: tuple[str, ...]  # keys of the recordings that it was made of


class People:
    """The speakers of some data sets and their recordings.

    Args:
        samples: of corpus.layouts.find; those without a speaker are left out.
        embed: of metrics.load_encoder.
    """

    def __init__(self, samples: Iterable[Sample], embed: metrics.Embed):
        self.embed = embed
        self.waves: dict[str, np.ndarray | None] = {}
        self.of: dict[str, list[Sample]] = defaultdict(list)
        for sample in samples:
            if sample.speaker:
                self.of[sample.speaker].append(sample)
        for found in self.of.values():  # an order that no file's order has a part in
            found.sort(key=lambda s: zlib.crc32(s.key.encode()))
        self.embeddings: dict[str, dict[str, np.ndarray]] = {
            name: self._embedded(found) for name, found in self.of.items()
        }

    def decoded(self, sample: Sample) -> np.ndarray | None:
        """A recording, which is decoded once; None with a warning where it cannot be."""
        if sample.key not in self.waves:
            try:
                self.waves[sample.key] = decode(sample.audio.read())[0]
            except BadAudio as e:
                log.warning("%s of %s is left out: %s", sample.key, sample.speaker, e)
                self.waves[sample.key] = None
        return self.waves[sample.key]

    def _embedded(self, samples: list[Sample]) -> dict[str, np.ndarray]:
        found: dict[str, np.ndarray] = {}
        for sample in samples:
            wave = self.decoded(sample)
            if wave is not None and len(wave) >= 2 * SAMPLE_RATE:
                found[sample.key] = self.embed(wave)
            if len(found) > IN_A_MEAN:
                break
        return found

    def mean(self, name: str, without: Sequence[str] = ()) -> np.ndarray | None:
        """The direction of a speaker's recordings but for some; None if there are no others."""
        left = [e for key, e in self.embeddings[name].items() if key not in without]
        if not left:
            return None
        mean = np.mean(left[:IN_A_MEAN], 0)
        return mean / np.linalg.norm(mean)

    def references(self, name: str, count: int, prompt: str) -> list[Reference]:
        """Recordings of a speaker to imitate, of SHORTEST to LONGEST seconds or joined to a length.

        Args:
            prompt: of prompts.KINDS, or seconds.

        Raises:
            InputError: the speaker has none.
        """
        found: list[Reference] = []
        parts: list[tuple[Sample, np.ndarray]] = []
        seconds = seconds_of(prompt)
        for sample in self.of[name]:
            wave = self.decoded(sample)
            if wave is None or not (prompt == WORDLESS or is_speakable(sample.text)):
                continue
            if seconds is None:
                if SHORTEST <= len(wave) / SAMPLE_RATE <= LONGEST:
                    found.append(Reference(sample.key, wave, sample.text, (sample.key,)))
            else:
                length = sum(len(w) for _, w in parts) + len(wave)
                if length <= 1.15 * seconds * SAMPLE_RATE:
                    parts.append((sample, wave))
                if sum(len(w) for _, w in parts) >= 0.85 * seconds * SAMPLE_RATE:
                    found.append(joined(parts))
                    parts = []
            if len(found) == count:
                break
        # with nothing to compare with, likeness is unknown
        found = [r for r in found if self.mean(name, r.used) is not None]
        if not found:
            length = f"{seconds:g}" if seconds else f"{SHORTEST:g} to {LONGEST:g}"
            raise InputError(
                f"{name} has no recordings for a prompt of {length} seconds and others to compare"
                " with"
            )
        return found


def samples_of(paths: Sequence[str]) -> list[Sample]:
    """The samples of each "PATH", and of each "NAME=PATH" as that speaker's; each key is one's."""
    together: list[Path] = []
    found: list[Sample] = []
    for path in paths:
        name, place = named(path)
        if name is None:
            together.append(place)
            continue
        own = find([place], untranscribed=True)[0]
        found += [replace(s, speaker=name, key=f"{name}-{s.key}") for s in own]
    return [*(find(together, untranscribed=True)[0] if together else []), *found]


def joined(parts: Sequence[tuple[Sample, np.ndarray]]) -> Reference:
    """Recordings one after the other."""
    pause = np.zeros(int(JOINED_PAUSE * SAMPLE_RATE), np.float32)
    waves: list[np.ndarray] = []
    for _, wave in parts:
        waves += [wave, pause]
    keys = tuple(sample.key for sample, _ in parts)
    text = " ".join(s.text if s.text[-1:] in ".?!" else s.text + "." for s, _ in parts)
    return Reference("+".join(keys), np.concatenate(waves[:-1]), text, keys)


def rows_of(path: Path) -> list[Row]:
    """The utterances of an earlier run; a last line that was cut off is removed."""
    if not path.exists():
        return []
    drop_cut_line(path, [x.name for x in fields(Row)])
    kinds = {"seed": int, "edits": int, "words": int, "similarity": float}
    with path.open(newline="", encoding="utf-8") as f:
        found = [r for r in csv.DictReader(f) if None not in r.values()]
    try:
        return [Row(**{k: kinds.get(k, str)(v) for k, v in r.items()}) for r in found]
    except (TypeError, ValueError) as e:
        raise InputError(f"{path} is no table of this command ({e}); name another --out") from e


def measure(args: argparse.Namespace, people: People, rows: list[Row], path: Path) -> list[Row]:
    """Speaks and compares what `rows` do not have yet; each row is written when it is known.

    Returns:
        The rows that are asked for, not those of other sentences, seeds or people.
    """
    from tqdm import tqdm

    from nanospeech.load import load_engine
    from nanospeech.speech.reference import finished
    from nanospeech.speech.speaker import Speaker

    texts = read_texts(args.sentences)
    engine = load_engine(args.model, args.backend, args.device)
    whisper = metrics.load_whisper(args.whisper, args.threads)
    language = spoken_code(engine.config.language)
    output = measured_in(engine.config.language)
    there = {row.key for row in rows}
    asked, tasks = set(), []
    for prompt in args.prompts:
        for name in args.imitate:
            try:
                found = people.references(name, args.references, prompt)
            except InputError as e:
                log.warning("prompts %s are left out: %s", prompt, e)
                continue
            for seed in args.seeds:
                for n, reference in enumerate(found):
                    text = texts[(n + zlib.crc32(name.encode()) + 7 * seed) % len(texts)]
                    asked.add(key := (prompt, name, reference.key, seed, text))
                    if key not in there:
                        tasks.append((prompt, name, reference, seed, text))
    rows = [row for row in rows if row.key in asked]
    with path.open("a", newline="", encoding="utf-8") as f:
        table = csv.DictWriter(f, [x.name for x in fields(Row)])
        if not f.tell():
            table.writeheader()
        for prompt, name, reference, seed, text in tqdm(tasks, "speaking", disable=None):
            wave = finished(degraded(reference.wave, prompt), [])
            said = {"ref_audio": wave, "ref_text": reference.text}
            if prompt == WORDLESS:
                said["ref_text"] = None
            try:
                speaker = Speaker(engine, **said, seed=seed, output=output)
            except InputError as e:  # hardly anything is left of it, say
                log.warning("%s of %s is left out: %s", reference.key, name, e)
                continue
            utterance = speaker.speak(text)
            spoken = audio.resample(utterance.wave, utterance.sample_rate, SAMPLE_RATE)
            heard = metrics.transcribe(whisper, spoken, language=language)
            edits, words = wer_text.word_edits(text, heard, language)
            # what is silent sounds like nobody
            embedding = None if audio.is_silent(spoken) else people.embed(spoken)
            means = {who: people.mean(who, reference.used) for who in people.of}
            likeness = {
                who: 0.0 if embedding is None else float(embedding @ m)
                for who, m in means.items()
                if m is not None
            }
            row = Row(
                prompt,
                name,
                reference.key,
                seed,
                text,
                heard,
                edits,
                words,
                " ".join(wer_text.leaked(text, heard, reference.text, language)),
                round(likeness[name], 4),
                "" if embedding is None else max(likeness, key=lambda who: likeness[who]),
            )
            if args.wavs:
                args.wavs.mkdir(parents=True, exist_ok=True)
                file = f"{prompt}-{name}-{short(reference.key)}-{seed}.wav"
                audio.write(args.wavs / file.replace("/", "_"), spoken)
            table.writerow(asdict(row))
            f.flush()
            rows.append(row)
    if not rows:
        raise InputError("none of --imitate has recordings for any of --prompts")
    return rows


def short(key: str) -> str:
    """A recording's key as a part of a file's name, which has at most 255 bytes."""
    if len(key.encode()) <= KEY_BYTES:
        return key
    begun = key.encode()[:KEY_BYTES].decode(errors="ignore")
    return f"{begun}-{zlib.crc32(key.encode()):08x}"


def build_parser() -> argparse.ArgumentParser:
    p = Parser("nanospeech evaluate cloning", __doc__)
    add = p.add_argument
    add("model", nargs="?", help="release folder or Hub repository; the packaged one if not given")
    add("--people", nargs="+", required=True, metavar="[NAME=]PATH", help="recordings; see above")
    add("--imitate", nargs="+", metavar="NAME", help="of the speakers (default: all)")
    add("--prompts", nargs="+", default=["clean"], help="see above (default: clean)")
    add("--references", type=int, default=8, help="recordings of each (default: 8)")
    add("--seeds", type=int, nargs="+", default=[0], help="of the noise (default: 0)")
    add("--sentences", type=Path, default=SENTENCES, help="one a line (default: 100 that ship)")
    add("--whisper", default="base", help="faster-whisper size or folder (base)")
    add("--speaker-model", default="resemblyzer", help="as of nanospeech evaluate (resemblyzer)")
    add("--backend", default="auto", help="auto (default), torch, mlx or onnx")
    add("--device", help="for example cpu or cuda")
    add("--threads", type=int, default=1, help="of the recogniser (1)")
    add("--wavs", type=Path, help="folder that keeps the utterances")
    add("--out", type=Path, required=True, help="folder of the table and the summary")
    return p


def settings(args: argparse.Namespace) -> dict[str, Any]:
    """What changes an utterance's figures and is in no column of the table."""
    folder = resolve(args.model)
    return {
        "model": digest(folder),
        "backend": pick_backend(args.backend, load_config(folder), args.device),
        "whisper": args.whisper,
        "speaker_model": args.speaker_model,
        "people": sorted(args.people),
    }


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measures what is missing and writes the summary."""
    for name in ("whisper", metrics.speaker_package(args.speaker_model)):
        metrics.check(name)
    if args.references < 1:
        raise InputError(f"--references is {args.references}; choose at least 1")
    for prompt in args.prompts:
        seconds_of(prompt)
    for name in ("prompts", "imitate", "seeds"):  # what is named twice is measured once
        setattr(args, name, list(dict.fromkeys(getattr(args, name) or ())))
    people = People(samples_of(args.people), metrics.load_encoder(args.speaker_model))
    args.imitate = args.imitate or sorted(people.of)
    if unknown := [name for name in args.imitate if name not in people.of]:
        raise InputError(f"no recordings of {', '.join(unknown)}; there are {sorted(people.of)}")
    path = args.out / "cloning.csv"
    with alone(args.out, "--out", say):
        check_settings(args.out, settings(args), path.name)
        rows = measure(args, people, rows_of(path), path)
        compared = [name for name in sorted(people.of) if people.mean(name) is not None]
        return report.write(rows, compared, args.out)


@command(interrupted="interrupted; the same command goes on from here")
def main(argv: list[str] | None = None) -> int:
    print(json.dumps(run(build_parser().parse_args(argv))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
