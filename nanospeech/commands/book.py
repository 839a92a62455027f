"""`nanospeech book`: an EPUB, text or Markdown file to an audiobook."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import errno
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nanospeech.cli import Parser, command, counted, ends_interrupt, say
from nanospeech.config import BatchLimits
from nanospeech.errors import InputError
from nanospeech.generate import load_speaker, read_options
from nanospeech.output import add_output_flags, read_output
from nanospeech.sample_flags import add_sampling
from nanospeech.speak_flags import add_machine, add_voices

ABOUT = """Reads a book aloud: an EPUB, text or Markdown file to an audiobook with chapters.

  nanospeech book novel.epub --list                    its chapters, and nothing is spoken
  nanospeech book novel.epub --output novel.m4b        one file: chapter marks, cover, title
  nanospeech book notes.md --output notes              a folder of opus files with a playlist
  nanospeech book novel.epub --output novel.m4b --chapters 2-5,9 --voice kumo

What is spoken is kept in a folder beside the output (novel.m4b.work): after Ctrl-C or a full disk
the same command goes on where it stopped. The folder is deleted when the book is complete."""
SEED = 0  # a drawn one would make each run's passages others


def build_parser() -> argparse.ArgumentParser:
    parser = Parser("nanospeech book", ABOUT)
    add = parser.add_argument_group("what is read, and where to").add_argument
    add("file", metavar="FILE", help=".epub, .txt or .md")
    add("--output", metavar="PATH", type=Path, help="an .m4b file (pip: [book]), or a folder")
    add("--list", action="store_true", help="print the chapters and speak nothing")
    add("--chapters", metavar="N,N-N", help="numbers of the chapters to read, for example 2-5,9")
    add(
        "--depth",
        type=int,
        default=2,
        metavar="N",
        help="levels of an EPUB's table of contents that become chapters (default: %(default)s)",
    )
    add("--format", choices=("opus", "mp3"), default="opus", help="of a folder (default: opus)")
    add(
        "--bitrate",
        type=int,
        default=64,
        metavar="KBIT",
        help="of an .m4b, in kbit/s (default: %(default)s)",
    )
    add(
        "--subtitles",
        choices=("srt", "vtt", "json"),
        help="write when each word is heard, beside the .m4b or beside each chapter's file",
    )
    add("--no-markup", action="store_true", help="brackets such as [pause 1s] are text")
    add("--encoding", default="utf-8", metavar="NAME", help="of a .txt or .md file (utf-8)")
    add("--overwrite", action="store_true", help="replace a finished book")
    add("--keep-work", action="store_true", help="keep the passages of a finished book")
    add = parser.add_argument_group("what players show, instead of what the file says").add_argument
    add("--title", help="of the book")
    add("--author", help="of the book")
    add("--cover", metavar="FILE", help="a JPEG or PNG file")
    add_voices(parser.add_argument_group("by whom").add_argument)
    add_sampling(parser.add_argument_group("how"))
    add_output_flags(parser.add_argument_group("pauses and loudness").add_argument)
    machine = parser.add_argument_group("with what")
    add_machine(machine.add_argument)
    machine.add_argument(
        "--batch-size",
        type=int,
        metavar="N",
        help="most chunks of text that are spoken at once (default: 1 on a CPU, else 16)",
    )
    parser.add_argument("--quiet", action="store_true", help="no progress, no figures")
    parser.set_defaults(seed=SEED)
    return parser


@command(interrupted="interrupted; the same command goes on from here")
def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command.

    Returns:
        0; 1 if something could not be read or spoken; 2 for bad input; 130 if interrupted,
        by SIGTERM and SIGHUP as well.
    """
    from nanospeech.book.opening import open_book

    args = build_parser().parse_args(argv)
    if args.depth < 1:
        raise InputError(f"--depth is {args.depth}; choose 1 or more")
    book = open_book(args.file, args.encoding, args.depth)
    book = dataclasses.replace(
        book,
        title=args.title or book.title,
        author=args.author if args.author is not None else book.author,
        cover=read_cover(args.cover) if args.cover else book.cover,
    )
    numbers = choose_chapters(args.chapters, len(book.chapters))
    return list_chapters(book, numbers) if args.list else narrate(args, book, numbers)


def choose_chapters(wanted: str | None, count: int) -> list[int]:
    """The numbers of --chapters, in the order of the book.

    Raises:
        InputError: it is no list of numbers, or names a chapter that is not there.
    """
    if wanted is None:
        return list(range(1, count + 1))
    found: set[int] = set()
    for part in wanted.split(","):
        bounds = re.fullmatch(r"\s*(\d{1,6})(?:\s*-\s*(\d{1,6}))?\s*", part)
        if bounds is None:
            raise InputError(f"--chapters {wanted!r} should be numbers such as 2-5,9")
        low, high = int(bounds[1]), int(bounds[2] or bounds[1])
        if low > high:
            raise InputError(f"--chapters {part.strip()} should be {high}-{low}: from low to high")
        if not 1 <= low <= high <= count:
            there = f"chapters 1 to {count}" if count > 1 else "one chapter"
            raise InputError(f"--chapters {part.strip()}: the book has {there}")
        found.update(range(low, high + 1))
    return sorted(found)


def list_chapters(book: Any, numbers: Sequence[int]) -> int:
    """Prints the book's facts and its chapters, with their length in characters."""
    code = 0
    print(" - ".join(filter(None, (book.title, book.author, book.language))))
    for number in numbers:
        chapter = book.chapters[number - 1]
        try:
            said = f"{len(chapter.read()):,} characters"
        except InputError as e:
            said, code = f"cannot be read: {e}", 1
        print(f"{number:4}  {chapter.title}  ({said})")
    return code


def read_cover(path: str) -> bytes:
    """A picture's file.

    Raises:
        InputError: it cannot be read, or is neither JPEG nor PNG.
    """
    from nanospeech.book.epub import picture_kind

    try:
        data = Path(path).read_bytes()
    except OSError as e:
        raise InputError(f"cannot read {path}: {e.strerror}") from e
    if not picture_kind(data):
        raise InputError(f"{path} should be a JPEG or PNG file")
    return data


def compare_languages(code: str, speaker: Any) -> None:
    """Notes that a book is in another language than the one that its text is read in."""
    from nanospeech.text.languages import base_code
    from nanospeech.text.sentences import front_end

    ours = front_end(speaker.tokenizer).code
    try:
        theirs = base_code(code)
    except InputError:  # none, or no code
        return
    if ours not in (theirs, "und"):
        say(f"note: the book is in {code}, and read by the rules of {ours}; see --language")


def narrate(args: argparse.Namespace, book: Any, numbers: Sequence[int]) -> int:
    """Speaks and binds the book, alone. Bad input is found before the model is loaded."""
    from nanospeech.book.narrate import Target
    from nanospeech.locks import alone

    if args.output is None:
        raise InputError("name the audiobook: --output book.m4b, or --output FOLDER")
    if args.batch_size is not None and args.batch_size < 1:
        raise InputError(f"--batch-size is {args.batch_size}; choose 1 or more")
    if not 16 <= args.bitrate <= 320:
        raise InputError(f"--bitrate is {args.bitrate}; choose 16 to 320 kbit/s")
    target = Target(
        args.output,
        args.format,
        args.bitrate * 1000,
        args.overwrite,
        args.keep_work,
        args.subtitles,
    )
    target.check()
    try:
        with ends_interrupt(), alone(target.work, "--output", say):
            return bind(args, book, numbers, target)
    finally:
        with contextlib.suppress(OSError):  # it keeps something, or is gone
            target.work.rmdir()


def bind(args: argparse.Namespace, book: Any, numbers: Sequence[int], target: Any) -> int:
    """Speaks and binds the book as the flags say."""
    from nanospeech.book.narrate import Narrator

    options, how, seconds = read_options(args)
    if seconds is not None:
        raise InputError("the length of a book cannot be chosen; leave the seconds of --duration")
    speaker = load_speaker(args, options, how)
    compare_languages(book.language, speaker)

    def voiced(name: str) -> Any:
        from nanospeech.speech.speaker import Speaker

        how_fast = args.speed, args.seed, read_output(args)
        return Speaker(
            speaker.engine,
            name,
            None,
            None,
            options,
            *how_fast,
            duration=how,
            aligner=speaker.aligner,
        )

    how_read = {"progress": not args.quiet, "markup": not args.no_markup}
    narrator = Narrator(book, speaker, target, voiced, **how_read)
    size = args.batch_size or (1 if speaker.engine.device == "cpu" else BatchLimits().items)
    try:
        outcome = narrator.run(numbers, BatchLimits(items=size))
    except (KeyboardInterrupt, OSError) as e:
        kept = narrator.outcome.kept + narrator.outcome.spoken
        say(f"{kept} of {narrator.outcome.wanted} passages are kept in {target.work}")
        if isinstance(e, OSError) and e.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise InputError(
                f"the disk is full ({e.strerror}); make room, and the same command goes on"
            ) from e
        raise
    for line in outcome.failures:
        say(line)
    if not args.quiet:
        long = f"{int(outcome.seconds // 3600)} h {outcome.seconds % 3600 / 60:.1f} min"
        again = "" if not outcome.failures else f"; what was spoken stays in {target.work}"
        say(
            f"wrote {target.path}: {counted(outcome.chapters, 'chapter')}, {long},"
            f" {counted(outcome.spoken, 'passage')} spoken, {outcome.kept} there already{again}"
        )
    return 1 if outcome.failures else 0


if __name__ == "__main__":
    sys.exit(main())
