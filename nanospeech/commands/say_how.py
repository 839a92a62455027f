"""`nanospeech say-how`: how words will be said, and where that comes from."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence

from nanospeech.cli import Parser, command
from nanospeech.errors import InputError

ABOUT = """Prints how words are said: the word, its phonemes (ARPAbet) and where these come from.

  nanospeech say-how Nguyen CPU 9:30
  nanospeech say-how "I read it yesterday"           words that depend on their sentence
  nanospeech say-how Nguyen >> my_lexicon.txt        a line is one of a lexicon: edit it there
  nanospeech say-how Nguyen --lexicon my_lexicon.txt
  nanospeech say-how "Um 9:30 Uhr" --language de     how it is read; no phonemes but English"""


def build_parser() -> argparse.ArgumentParser:
    parser = Parser("nanospeech say-how", ABOUT)
    add = parser.add_argument
    add("words", nargs="+", metavar="WORD", help="words or sentences")
    add("--lexicon", metavar="FILE", help="goes before your own; off: neither")
    add("--model", help="whose text this is (default: any that reads phonemes)")
    add("--language", metavar="CODE", help="of the text (en): of others the text as it is read")
    return parser


@command
def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns 0, or 2 for bad input."""
    args = build_parser().parse_args(argv)
    from nanospeech.text.languages import base_code
    from nanospeech.text.sentences import prepare

    if args.language and base_code(args.language) != "en":
        reader = reader_of(args.language)
        for text in args.words:
            print(prepare(text, reader))
        return 0
    tokenizer = choose_tokenizer(args)
    for text in args.words:
        for line in how(text, tokenizer):
            print(line)
    return 0


def reader_of(code: str):
    """A tokenizer of a language's letters.

    Raises:
        InputError: there are no rules for it.
    """
    from nanospeech.text.languages import find_language, language_names
    from nanospeech.text.tokenizer import Tokenizer

    language = find_language(code)
    if not language.alphabet:
        raise InputError(
            f"there are no rules for language {code!r}; there are for {', '.join(language_names())}"
        )
    return Tokenizer("chars", list(language.alphabet)).with_language(language.code)


def choose_tokenizer(args: argparse.Namespace):
    """The model's tokenizer with the words to speak by.

    Raises:
        InputError: the model reads no phonemes, or a lexicon is wrong.
    """
    from nanospeech.release.user_lexicon import tokenizer_of
    from nanospeech.text.tokenizer import Tokenizer, phoneme_vocab

    tokenizer = Tokenizer("phonemes", phoneme_vocab())
    if args.model is not None:
        from nanospeech.release.folder import open_release

        tokenizer = open_release(args.model).tokenizer
        if tokenizer.kind != "phonemes":
            raise InputError(
                f"{args.model} reads {tokenizer.kind}, not phonemes: it learned from recordings how"
                " words sound, and no dictionary says it"
            )
    return tokenizer_of(tokenizer, args.lexicon)


def how(text: str, tokenizer) -> Iterator[str]:
    """Lines of a lexicon that say what a text's words sound like; comments for what differs."""
    from nanospeech.text.heteronyms import table
    from nanospeech.text.sentences import fit, is_speakable, prepare
    from nanospeech.text.spoken import HETERONYM

    said, lost = fit(" ".join(prepare(text, tokenizer).split()), tokenizer)
    if not is_speakable(said):
        raise InputError(f"there is no word in {text!r}")
    if said != text:
        yield f"# {' '.join(text.split())} is read as: {said}"
    if lost:
        yield f"# left out: {' '.join(sorted(lost))}"
    for piece in tokenizer.spoken(said):
        word = said[piece.start : piece.stop]
        if any(c.isalnum() for c in word):
            phonemes = " ".join("|" if token == " " else token for token in piece.tokens)
            yield f"{word}\t{phonemes}\t{piece.source}"
            for name, other in table().get(word.lower(), {}).items():
                if piece.source.startswith(HETERONYM) and other != piece.tokens:
                    yield f"# {word} as {name} is {' '.join(other)}"


if __name__ == "__main__":
    sys.exit(main())
