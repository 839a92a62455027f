"""Cuts long recordings into clips of a sentence or two, and writes down what is said in each.

    nanospeech prepare cut interview.mp3 --out clips --speaker anna
    nanospeech prepare cut audiobook/ --out clips --language de --whisper small

Whisper hears where the words are (pip install 'nanospeech-tts[transcribe]'); clips begin and end
in pauses, at ends of sentences where there are any. INPUT is a recording of one person, of any
length, or a folder of them. Where X.txt lies beside X.mp3, as of a book that is read aloud, words
are taken from it (in writing with spaces): Whisper then only finds them, and what is read otherwise
is left out. --out gets the clips (FLAC, 24 kHz), metadata.csv with their texts, to be looked
through, and skipped.csv with what was left out and why. A run that was stopped goes on; with more
recordings it adds theirs. The last line is the counts as JSON. Then one of

    nanospeech prepare curate clips --out data --whisper small   (listens again, holds some out)
    nanospeech finetune --data clips --voice anna --output anna
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from tqdm import tqdm

from nanospeech.audio import wave as audio
from nanospeech.audio.pieces import Ahead, read_pieces, seconds_of
from nanospeech.cli import Parser, command, say
from nanospeech.corpus.layouts import Skip, recordings_in
from nanospeech.corpus.samples import TIMES, words_beside
from nanospeech.corpus.skips import nothing_usable, tell
from nanospeech.errors import DataError, InputError, reason
from nanospeech.locks import alone
from nanospeech.machine import cores
from nanospeech.measure import wer
from nanospeech.measure.metrics import RATE, check_language, load_whisper
from nanospeech.measure.transcription import words_in
from nanospeech.speech.reference import EDGE, Word
from nanospeech.text.languages import spoken_code

from .cut_folder import ClipFolder
from .cut_places import cut_window, found_again

WINDOW = 29 * audio.SAMPLE_RATE  # samples that the recogniser takes at once
LONGEST = 20.0  # seconds that clips may have, so that a window has room
UNSPACED = (*wer.UNSPACED, "km")  # languages that put nothing between words
CLIP = re.compile(r"_\d{7,}\.flac$")  # the end of a clip's name
Listener = Callable[[np.ndarray], list[Word]]


def whisper_of(name: str, language: str, threads: int) -> Listener:
    """What hears the words in a wave, float32 (n,) at audio.SAMPLE_RATE.

    Raises:
        BackendError, InputError: see load_whisper and check_language.
    """
    model = load_whisper(name, threads, "transcribe")
    check_language(model, language)
    return lambda wave: words_in(model, audio.resample(wave, audio.SAMPLE_RATE, RATE), language)


def text_of(path: Path) -> list[str] | None:
    """The words of X.txt beside a recording, if there is one.

    Raises:
        InputError: it is not UTF-8, or of labels or subtitles.
    """
    file = words_beside(path)
    if file is None:
        return None
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as e:
        raise InputError(f"cannot read {file} as UTF-8 text: {reason(e)}") from e
    if TIMES.search(text):
        raise InputError(f"{file} has times in its text: leave the words alone, or move it away")
    return text.split()


def cut(path: Path, folder: ClipFolder, listen: Listener, told: Callable[[float], object]) -> None:
    """Cuts what is left of a recording, and writes down how far it is after each window.

    Args:
        path: of the recording.
        folder: gets its clips.
        listen: hears the words of a window.
        told: is called with the seconds that are done, more and more.

    Raises:
        InputError: its text cannot be read. Where the recording is damaged, it ends there.
    """
    progress, settings = folder.progress(path), folder.settings
    spaced = settings["language"] not in UNSPACED
    text = text_of(path) if spaced else None
    ahead = Ahead(read_pieces(path))
    folder.go_back(progress)
    ahead.move(progress.samples)
    told(progress.samples / audio.SAMPLE_RATE)
    while len(wave := ahead.look(WINDOW + 1)):
        last, wave = len(wave) <= WINDOW, wave[:WINDOW]
        words = [] if audio.is_silent(wave) else listen(wave)
        if text is not None:
            progress.words = found_again(words, text, progress.words)
        rest = None if text is None else text[progress.words :]
        bounds = settings["min_seconds"], settings["max_seconds"] - 2 * EDGE
        window = cut_window(wave, words, last, bounds, rest, spaced, progress.torn)
        folder.add(progress, wave, window.clips)
        done = len(wave) if last else int(window.seconds * audio.SAMPLE_RATE)
        ahead.move(done)
        progress.samples, progress.words = progress.samples + done, progress.words + window.words
        progress.torn = window.torn
        folder.save()
        told(done / audio.SAMPLE_RATE)
    if ahead.damage is not None:
        folder.skips.append(Skip(progress.name, "damaged", str(ahead.damage)))
    progress.done = True
    folder.save()


def recordings_of(inputs: Iterable[Path], out: Path) -> list[Path]:
    """The recordings that are named, and those of folders, less the clips among them.

    Raises:
        InputError: an input is missing.
        DataError: there are none.
    """
    found: list[Path] = []
    inputs, out = list(inputs), out.resolve()
    for path in inputs:
        if not path.exists():
            raise InputError(f"there is no file or folder {path}")
        inside = recordings_in(path) if path.is_dir() else [path]
        found += [f for f in inside if f.parent.resolve() != out or not CLIP.search(f.name)]
    if not found:
        raise DataError(f"there are no recordings in {', '.join(map(str, inputs))}")
    return list(dict.fromkeys(found))


def build_parser() -> argparse.ArgumentParser:
    parser = Parser("nanospeech prepare cut", __doc__)
    add = parser.add_argument
    add("inputs", nargs="+", type=Path, metavar="INPUT", help="a recording, or a folder of them")
    add("--out", type=Path, required=True, help="folder of the clips")
    add("--speaker", help="who speaks, for the column of that name")
    add("--language", help="that is spoken, such as de (default: English)")
    add("--whisper", default="base", help="faster-whisper size or folder (%(default)s)")
    add("--min-seconds", type=float, default=1.5, help="of speech in a clip (%(default)s)")
    add("--max-seconds", type=float, default=12.0, help="of a clip, at most 20 (%(default)s)")
    add("--threads", type=int, default=cores(), help="of the recogniser (default: one a core)")
    return parser


@command
def main(argv: list[str] | None = None) -> int:
    args = build_parser().parse_args(argv)
    if not 0 < args.min_seconds < args.max_seconds - 2 * EDGE or args.max_seconds > LONGEST:
        raise InputError(
            f"--min-seconds {args.min_seconds:g} and --max-seconds {args.max_seconds:g} should be"
            f" more than 0, the second well above the first, and at most {LONGEST:g}"
        )
    if args.threads < 1:
        raise InputError(f"--threads is {args.threads}; choose at least 1")
    language = spoken_code(args.language)
    recordings = recordings_of(args.inputs, args.out)
    settings = {
        "speaker": args.speaker,
        "language": args.language and language,
        "whisper": Path(args.whisper).name,
        "min_seconds": args.min_seconds,
        "max_seconds": args.max_seconds,
    }
    with alone(args.out, "--out", say):
        folder = ClipFolder(args.out, settings)
        todo = [path for path in recordings if not folder.progress(path).done]
        lengths: dict[Path, float] = {}
        for path in todo:
            try:
                text_of(path)  # hours before its turn
                lengths[path] = seconds_of(path)
            except InputError as e:
                say(f"left out: {e}")
        if not folder.clips and not lengths and todo:
            raise DataError("none of the recordings can be read")
        if lengths:
            listen, total = whisper_of(args.whisper, language, args.threads), sum(lengths.values())
            with tqdm(total=round(total), desc="cut", unit=" s", disable=None) as bar:
                for path in lengths:
                    cut(path, folder, listen, lambda seconds: bar.update(round(seconds)))
        minutes = round(folder.seconds / 60, 1)
        if not folder.clips and not folder.skips:
            where = ", ".join(map(str, args.inputs))
            raise DataError(f"no words are heard in {where}; is somebody speaking there?")
        if not folder.clips:
            raise nothing_usable(folder.skips, args.inputs)
        tell({"clips": folder.clips, "minutes": minutes, "out": str(args.out)}, folder.skips)
    return 0


if __name__ == "__main__":
    sys.exit(main())
