"""Curate: selects the clips to train on and those to hold out. Trains nothing.

    nanospeech prepare curate recordings/ --out data --whisper base
    nanospeech prepare curate shards/kathleen-*.tar shards/asp-*.tar --out data --speakers kathleen

INPUT is as of nanospeech prepare shards: folders, manifests, shards. Writes data/train/*.tar and
data/heldout/*.tar (every clip whose key has a CRC-32 divisible by --held-out, so that a clip is
always on the same side), data/dropped.csv with a reason for each clip left out, and
data/curate.json: clips, hours, sources and licences of each speaker.

With --whisper each clip is transcribed, and clips whose transcript differs from their text are left
out; --language names what is spoken, where that is not English. Transcripts are kept in
data/heard.csv for interrupted runs and for runs with other limits. The last line of the output is
one JSON document.

--denoise 0.7 removes that share of steady hiss or hum, estimated in quiet parts of each clip; a
small model learns noise along with the voice. Rumble is filtered out wherever it is loud: below
55 Hz no one speaks, and a model takes it for a part of the voice; --rumble 0 keeps it.

--vary 0.1 adds to data/train a copy of each clip 10 % slower or faster, under the name of another
speaker (NAME-slow, NAME-fast), for models that would have few speakers to tell apart; --vary 0.08
0.16 adds two copies (NAME-slow8, NAME-fast8, NAME-slow16, NAME-fast16). Hours are counted without
them.

With --ray the machines of a Ray cluster do the work (docs/cluster.md): that of RAY_ADDRESS, or one
of this machine alone. A run that was stopped goes on where it
was.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from tqdm import tqdm

from nanospeech.cli import Parser, add_fields, command, read_fields, say
from nanospeech.corpus.held_out import is_held_out
from nanospeech.corpus.layouts import Sample, Skip
from nanospeech.corpus.mp3 import in_parallel
from nanospeech.corpus.skips import by_reason, find_some, list_skips
from nanospeech.errors import DataError, InputError
from nanospeech.files import whole_folder, write_json
from nanospeech.locks import alone
from nanospeech.machine import cores
from nanospeech.text.sentences import is_speakable

from .curate_clips import Clip, CurateOptions, curate_portion, examine, store
from .curate_report import SIDES, Speakers, table
from .portions import Portions, Runner, link, members_of
from .ray_data import on_ray
from .recogniser import Heard, Recogniser, languages_of, whisper
from .shards import ShardWriter


def select(
    samples: Sequence[Sample], speakers: Sequence[str], options: CurateOptions
) -> tuple[list[Sample], list[tuple[Sample, Skip]], dict[str, str]]:
    """The samples of some speakers (all if none is named), in an order of the seed's.

    Returns:
        Those kept, those left out, and the languages that are spoken, by key.

    Raises:
        InputError: a speaker is not there: one who is to be left out may be misspelt.
    """
    name = Speakers(None, options.speaker).name
    known = {name(s) for s in samples}
    languages = languages_of(samples, options.language)
    if missing := [who for who in (*speakers, *options.without) if who not in known]:
        raise InputError(f"no clips of {', '.join(missing)}; there are {', '.join(sorted(known))}")
    ordered = list(samples)
    random.Random(options.seed).shuffle(ordered)
    kept, skips = [], []
    for s in ordered:
        if name(s) in options.without or (speakers and name(s) not in speakers):
            skips.append((s, Skip(s.name, "another speaker", name(s))))
        elif not is_speakable(s.text):
            skips.append((s, Skip(s.name, "no words", s.text)))
        elif s.key not in languages:
            skips.append((s, Skip(s.name, "invalid language", str(s.extra["language"]))))
        else:
            kept.append(s)
    return kept, skips, languages


def curate(
    samples: Sequence[Sample],
    out: Path,
    options: CurateOptions = CurateOptions(),
    speakers: Sequence[str] = (),
    load: Callable[[], Recogniser] | None = None,
    recogniser: str = "",
    jobs: int = 1,
    overwrite: bool = False,
) -> tuple[dict[str, Any], list[Skip]]:
    """Writes out/train and out/heldout, both whole or neither.

    Args:
        load: returns a recogniser (float32 24 kHz wave and code of its language to words); None:
            no transcripts. With several jobs a new process must be able to import it.
        recogniser: its name in heard.csv.

    Returns:
        The summary (that of curate.json), and what was dropped.

    Raises:
        InputError: there are shards already, or a speaker is not there.
        DataError: no clip can be used.
    """
    keep_old(samples, out, overwrite)
    kept, dropped, languages = select(samples, speakers, options)
    people = Speakers(options.max_hours, options.speaker)
    work = partial(examine, options=options, load=load)
    with (
        whole_folder(out / "train") as train_folder,
        whole_folder(out / "heldout") as held_out_folder,
        Heard(out / "heard.csv", recogniser, languages, load is not None) as heard,
        tqdm(total=len(kept), desc="curate", unit=" clips", disable=None) as bar,
    ):
        with (
            ShardWriter(train_folder, "train", options.size) as train,
            ShardWriter(held_out_folder, "heldout", options.size) as held_out,
        ):
            writers = {"train": train, "heldout": held_out}
            for sample, result in opened(kept, work, people, heard.known, options, jobs):
                bar.update()
                if isinstance(result, Clip) and result.fresh:
                    heard.add(sample.key, result.data, sample.text, result.heard or "")
                if isinstance(result, Clip):
                    result = store(result, writers, people, options)
                if result is not None:
                    dropped.append((sample, result))
        check_left(train.paths, samples, dropped)
    return summarise(people, dropped, options)


def keep_old(samples: Sequence[Sample], out: Path, overwrite: bool) -> None:
    """Makes the folder.

    Raises:
        InputError: it has shards already, or samples are read from it, which would replace both of
            its sets by one of them; or something else lies in it, which would be lost.
    """
    sides = {(out / side).resolve() for side in SIDES}
    if used := {s.audio.path for s in samples if sides & {*s.audio.path.resolve().parents}}:
        raise InputError(f"{min(used)} is read and would be replaced; choose another --out")
    old = [p for side in SIDES for p in sorted((out / side).glob("[!.]*"))]
    if other := [p for p in old if p.suffix != ".tar"]:
        raise InputError(f"{other[0]} is no shard and would be deleted; choose another --out")
    if old and not overwrite:
        raise InputError(f"{old[0].parent} holds shards already; pass --overwrite to replace them")
    out.mkdir(parents=True, exist_ok=True)


def check_left(
    paths: Sequence[Path], samples: Sequence[Sample], dropped: Sequence[tuple[Sample, Skip]]
) -> None:
    """
    Raises:
        DataError: there is nothing to train on.
    """
    if not paths:
        reasons = by_reason(skip for _, skip in dropped)
        if held_out := len(samples) - len(dropped):
            reasons["held out"] = held_out
        raise DataError(f"no clip is left to train on, of {len(samples)}: {reasons}")


def summarise(
    people: Speakers, dropped: Sequence[tuple[Sample, Skip]], options: CurateOptions
) -> tuple[dict[str, Any], list[Skip]]:
    """What curate returns."""
    for sample, skip in dropped:
        people.drop(sample, skip.reason)
    skips = [skip for _, skip in dropped]
    summary = {"speakers": people.summary(), "dropped": by_reason(skips)}
    return summary | ({"vary": list(options.vary)} if options.vary else {}), skips


def spread_curate(
    samples: Sequence[Sample],
    out: Path,
    options: CurateOptions,
    runner: Runner,
    speakers: Sequence[str] = (),
    load: Callable[[], Recogniser] | None = None,
    recogniser: str = "",
    overwrite: bool = False,
) -> tuple[dict[str, Any], list[Skip]]:
    """curate on many machines, in portions: the same clips, summary and drops.

    Clips past --max-hours are worked on all the same, and left out in the end.

    Args:
        out: a folder that all machines have under this path.
        runner: has portions worked on.
        load, recogniser: as of curate; all machines must be able to import it.
    """
    keep_old(samples, out, overwrite)
    kept, dropped, languages = select(samples, speakers, options)
    each = replace(options, max_hours=None)
    settings = {"tool": "curate", "recogniser": recogniser, **asdict(each)}
    with Heard(out / "heard.csv", recogniser, languages, load is not None) as heard:
        portions = Portions(out / ".portions", kept, options.size, settings, heard.known)
        work = partial(curate_portion, options=each, load=load)
        for number, report in portions.run(work, runner):
            for sample, row in zip(portions.samples_of(number), report.rows):
                if "heard" in row and row["heard"][0] not in heard.known.get(sample.key, {}):
                    heard.add_crc(sample.key, row["heard"][0], sample.text, row["heard"][1])
    people = Speakers(options.max_hours, options.speaker)
    over: set[str] = set()
    for sample, row in portions.results():
        train = not is_held_out(sample.key, options.held_out)
        if train and people.full(sample):
            dropped.append((sample, Skip(sample.name, "enough of this speaker")))
            over |= {sample.key, *row.get("copies", [])}
        elif "reason" in row:
            dropped.append((sample, Skip(sample.name, row["reason"], row["detail"])))
        else:
            people.keep(sample, row["seconds"], row["side"])
    with whole_folder(out / "train") as train_folder, whole_folder(out / "heldout") as held_out:
        join(portions.files("heldout"), held_out, "heldout", options.size)
        if over:
            paths = join(portions.files("train"), train_folder, "train", options.size, over)
        else:
            paths = link(portions.files("train"), train_folder, "train")
        check_left(paths, samples, dropped)
    portions.remove()
    return summarise(people, dropped, options)


def join(
    files: Sequence[Path], folder: Path, side: str, size: int, without: Container[str] = ()
) -> list[Path]:
    """Packs the clips of some shards again, but for some keys; returns the new shards."""
    with ShardWriter(folder, side, size) as writer:
        for file in files:
            for key, members in members_of(file):
                if key not in without:
                    writer.add(key, members)
    return writer.paths


def opened(
    samples: Sequence[Sample],
    work: Callable[[Any], Clip | Skip],
    people: Speakers,
    known: dict[str, dict[int, str]],
    options: CurateOptions,
    jobs: int,
) -> Iterator[tuple[Sample, Clip | Skip]]:
    """Each sample with its Clip or Skip; none is opened whose speaker has enough hours."""
    sent: list[Sample | Skip] = []

    def todo() -> Iterator[tuple[Sample, dict[int, str]]]:
        for s in samples:
            room = is_held_out(s.key, options.held_out) or not people.full(s)
            sent.append(s if room else Skip(s.name, "enough of this speaker"))
            if room:
                yield s, known.get(s.key, {})

    place = 0

    def passed() -> Iterator[tuple[Sample, Clip | Skip]]:
        nonlocal place
        while place < len(sent) and isinstance(skip := sent[place], Skip):
            yield samples[place], skip
            place += 1

    for result in in_parallel(work, todo(), jobs):
        yield from passed()
        place += 1
        yield samples[place - 1], result
    yield from passed()


def build_parser() -> argparse.ArgumentParser:
    p = Parser("nanospeech prepare curate", __doc__)
    p.add_argument("inputs", nargs="+", type=Path, metavar="INPUT", help="see prepare shards")
    p.add_argument("--out", type=Path, required=True, help="folder to write")
    p.add_argument("--speakers", nargs="+", default=[], metavar="NAME", help="only these")
    p.add_argument("--whisper", help="faster-whisper size or folder, to transcribe each clip")
    p.add_argument("--jobs", type=int, default=cores(), help="processes (default: one a core)")
    p.add_argument("--ray", action="store_true", help="work on a Ray cluster, see above")
    p.add_argument("--overwrite", action="store_true", help="replace the shards in --out")
    add_fields(p, CurateOptions, {"held_out": "--hold-out"})  # its name before
    return p


def run(args: argparse.Namespace) -> tuple[dict[str, Any], list[Skip]]:
    """Runs the command; returns the summary and the dropped clips."""
    if args.jobs < 1:
        raise InputError(f"--jobs is {args.jobs}; choose at least 1")
    options = read_fields(args, CurateOptions)
    samples, skips = find_some(args.inputs)
    load, name = None, ""
    if args.whisper:
        load, name = partial(whisper, args.whisper), Path(args.whisper).name
        if args.jobs == 1:
            load()  # a missing recogniser should be reported before anything is opened
    args.out.mkdir(parents=True, exist_ok=True)
    with alone(args.out, "--out", say):
        if args.ray:
            runner = on_ray(args.jobs)
            summary, dropped = spread_curate(
                samples, args.out, options, runner, args.speakers, load, name, args.overwrite
            )
        else:
            summary, dropped = curate(
                samples, args.out, options, args.speakers, load, name, args.jobs, args.overwrite
            )
        skips = [*skips, *dropped]
        list_skips(args.out / "dropped.csv", skips)
        summary["dropped"] = by_reason(skips)
        write_json(args.out / "curate.json", summary)
    return summary, skips


@command
def main(argv: list[str] | None = None) -> int:
    summary, skips = run(build_parser().parse_args(argv))
    print(table(summary, skips))
    print(json.dumps(summary, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
