"""Writes vocab.txt: the characters of the transcripts, or the phonemes.

    nanospeech prepare vocab recordings --out vocab.txt
    nanospeech prepare vocab --kind phonemes --out vocab.txt

INPUT is whatever nanospeech prepare shards reads. The last line is the counts as JSON.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from nanospeech.cli import Parser, command, say
from nanospeech.corpus.layouts import LAYOUTS, Sample
from nanospeech.corpus.skips import find_some, tell
from nanospeech.errors import DataError, InputError
from nanospeech.text.languages import DIGITS
from nanospeech.text.sentences import fold
from nanospeech.text.tokenizer import Tokenizer, phoneme_vocab


def make_vocab(samples: Iterable[Sample]) -> list[str]:
    """Every character of the transcripts, sorted: as written, and as training reads them.

    It reads ’ as ' and two characters for ü as one; tokenizers of users' own may read what is
    written.

    Raises:
        DataError: there are none.
    """
    vocab: set[str] = set()
    for text in (sample.text for sample in samples):
        if not (text.isascii() and vocab.issuperset(text)):  # else it adds nothing
            vocab.update(text, fold(text))
    if not vocab:
        raise DataError("no transcript can be read; there is nothing to make a vocabulary of")
    return sorted(vocab)


def build_parser() -> argparse.ArgumentParser:
    parser = Parser("nanospeech prepare vocab", __doc__)
    parser.add_argument("inputs", nargs="*", type=Path, metavar="INPUT", help="see prepare shards")
    parser.add_argument("--out", type=Path, default=Path("vocab.txt"), help="(default: vocab.txt)")
    parser.add_argument(
        "--kind", choices=["chars", "phonemes"], default="chars", help="(default: chars)"
    )
    parser.add_argument(
        "--layout",
        choices=["auto", *LAYOUTS],
        default="auto",
        help="of each INPUT (default: auto, told from what lies there)",
    )
    return parser


@command
def main(argv: Sequence[str] | None = None) -> int:
    args = build_parser().parse_args(argv)
    if args.kind == "chars" and not args.inputs:
        raise InputError("vocab needs at least one INPUT whose transcripts to read")
    samples, skips = ([], []) if args.kind == "phonemes" else find_some(args.inputs, args.layout)
    vocab = phoneme_vocab() if args.kind == "phonemes" else make_vocab(samples)
    if numbers := sum(not DIGITS.isdisjoint(sample.text) for sample in samples):
        say(
            f"digits are in {numbers} of {len(samples)} transcripts, so a model of this vocabulary "
            "gets numbers as they are, and learns to read them from these alone; without the lines "
            f"of digits in {args.out}, English and German numbers are written out in words"
        )
    args.out.parent.mkdir(parents=True, exist_ok=True)
    Tokenizer(args.kind, vocab).save(args.out)
    tell({"tokens": len(vocab), "transcripts": len(samples), "out": str(args.out)}, skips)
    return 0


if __name__ == "__main__":
    sys.exit(main())
