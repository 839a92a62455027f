"""Writes X.mp3 beside each X.wav and X.flac below some folders; goes on where it stopped.

    nanospeech prepare mp3 extracted/LibriTTS_R

nanospeech prepare shards then reads the MP3s, and encodes none on its way. An X.mp3 of another rate
or of two channels, of which X.wav was made, is kept. The last line is the counts as JSON.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from nanospeech.cli import Parser, command
from nanospeech.corpus.layouts import Skip, files_in
from nanospeech.corpus.mp3 import convert, in_parallel, is_done
from nanospeech.corpus.skips import list_skips, nothing_usable, tell
from nanospeech.errors import DataError, InputError
from nanospeech.machine import cores


def make_mp3s(folders: Sequence[Path], jobs: int = 1) -> tuple[dict[str, int], list[Skip]]:
    """Writes X.mp3 beside each X.wav and X.flac below some folders; finished ones are kept.

    Returns:
        The counts "written" and "kept", and what could not be used.

    Raises:
        DataError: there are no recordings, or none can be used.
    """
    if missing := [str(f) for f in folders if not f.is_dir()]:
        raise InputError(f"there is no folder {', '.join(missing)}")
    found = {p for f in folders for p in files_in(f) if p.suffix.lower() in (".wav", ".flac")}
    todo = sorted(p for p in found if not is_done(p, p.with_suffix(".mp3")))
    skips = []
    results = in_parallel(convert, todo, min(jobs, len(todo)))
    for path, bad in zip(todo, tqdm(results, "MP3", len(todo), unit=" files", disable=None)):
        if bad:
            skips.append(Skip(path.as_posix(), *bad))
    if not found:
        raise DataError(
            f"there is no .wav or .flac in {', '.join(map(str, folders))} to make an MP3 of;"
            " nanospeech prepare shards reads MP3s, and other formats, as they are"
        )
    counts = {"written": len(todo) - len(skips), "kept": len(found) - len(todo)}
    if not counts["written"] and not counts["kept"]:
        raise nothing_usable(skips, folders)
    return counts, skips


def build_parser() -> argparse.ArgumentParser:
    parser = Parser("nanospeech prepare mp3", __doc__)
    parser.add_argument("inputs", nargs="+", type=Path, metavar="FOLDER", help="of recordings")
    parser.add_argument("--jobs", type=int, default=cores(), help="processes (default: one a core)")
    parser.add_argument(
        "--skipped", type=Path, default=Path("skipped.csv"), help="list of bad files"
    )
    return parser


@command
def main(argv: Sequence[str] | None = None) -> int:
    args = build_parser().parse_args(argv)
    if args.jobs < 1:
        raise InputError(f"--jobs is {args.jobs}; choose at least 1")
    counts, skips = make_mp3s(args.inputs, args.jobs)
    if skips:
        list_skips(args.skipped, skips)
    tell(counts, skips)
    return 0


if __name__ == "__main__":
    sys.exit(main())
