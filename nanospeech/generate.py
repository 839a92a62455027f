"""Generate: the command line, nothing else. python -m nanospeech.generate --text "Hello."

stdout carries only what was asked for (voice names, audio for "-"); the rest goes to stderr.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn

from .cli import Parser, command, say
from .config import BatchLimits, SampleOptions
from .errors import InputError
from .output import add_output_flags, read_output
from .sample_flags import FLAGS, add_sampling

ABOUT = """Speaks text, in the voice that ships, a model's voices or a recording's.

  nanospeech "Hello there."
  nanospeech speak --text "Hello there." --voice kumo --output hello.mp3
  nanospeech speak --file letter.txt --stream"""
FALLBACK = "nanospeech.wav"  # where speech goes that can neither be played nor has an --output


class Version(argparse.Action):
    """--version, looked up only when asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        from . import __version__

        print(f"nanospeech {__version__}")
        parser.exit()


def build_parser() -> argparse.ArgumentParser:
    """The flags, in groups. Defaults and help of many come from the dataclass that they fill."""
    parser = Parser("nanospeech speak", ABOUT)
    add_texts(parser.add_argument_group("what is said, and where to").add_argument)
    add_voices(parser.add_argument_group("by whom").add_argument)
    add_sampling(parser.add_argument_group("how"))
    add_output_flags(parser.add_argument_group("pauses, loudness, words").add_argument)
    add_machine(parser.add_argument_group("with what").add_argument)
    parser.add_argument("--quiet", action="store_true", help="no progress, no figures")
    parser.add_argument("--version", action=Version, nargs=0, help="print the version")
    return parser


def add_texts(add: Callable[..., Any]) -> None:
    add("words", nargs="?", metavar="TEXT", help="the same as --text TEXT")
    add("--text", help="what to say; - or nothing reads it from standard input")
    add("--file", metavar="FILE", help="instead of --text: a text file to speak")
    add(
        "--encoding",
        default="utf-8",
        metavar="NAME",
        help="of --file, --batch and standard input, for example latin-1 (default: %(default)s)",
    )
    add(
        "--output",
        metavar="FILE",
        help="wav, flac, ogg, opus or mp3; - writes WAV to standard output",
    )
    add(
        "--markup",
        action=argparse.BooleanOptionalAction,
        help="whether [pause 500ms], [spell: ABC], [say: word | phonemes], [slow], [fast] and"
        " [voice: NAME] are read (docs/writers.md); default: yes, but in SSML and in text that"
        " is spoken as it arrives",
    )
    add("--ssml", action="store_true", help="the text is SSML")
    add(
        "--subtitles",
        metavar="FILE",
        help="write when each word is heard: .srt, .vtt or .json; with --batch srt, vtt or json"
        " alone, for a file beside each WAV",
    )
    add(
        "--subtitle-words",
        action="store_true",
        help="with --subtitles: a cue for each word, not for each sentence",
    )
    add(
        "--stream",
        action="store_true",
        help="play, or write, during synthesis: a sentence or a clause first."
        " Standard input is spoken as it arrives",
    )
    add(
        "--batch",
        metavar="FILE",
        help="speak each line of a text file, 'text' or 'id|text', into the folder that --output"
        " names, as ID.wav or the line's number. Existing files are kept",
    )
    add("--overwrite", action="store_true", help="with --batch: replace existing files")
    size = dataclasses.fields(BatchLimits)[0]
    add(
        "--batch-size",
        type=int,
        default=size.default,
        metavar="N",
        help=f"with --batch: {size.metadata['help']} (default: %(default)s)",
    )


def add_voices(add: Callable[..., Any]) -> None:
    add("--model", help="release folder or Hugging Face repository; the default voice if not given")
    add(
        "--voice",
        metavar="NAME",
        help="one of the model's voices, or of those that you added (nanospeech voices add);"
        " default/NAME: the recording of one that ships",
    )
    add("--list-voices", action="store_true", help="print the names of the model's voices")
    add("--ref-audio", metavar="FILE", help="recording of a voice to imitate, best 3 to 10 seconds")
    add("--ref-text", metavar="TEXT", help="the words of --ref-audio; without them Whisper listens")
    add("--whisper", default="base", metavar="NAME", help="size or folder of Whisper (base)")


def add_machine(add: Callable[..., Any]) -> None:
    add("--seed", type=int, metavar="N", help="the same seed makes the same speech")
    add(
        "--backend",
        default="auto",
        metavar="NAME",
        help="torch, mlx, onnx or another that is installed; auto chooses one",
    )
    add("--device", help="for example cpu, cuda, cuda:1, mps or gpu; a GPU if there is one")
    add(
        "--dtype",
        help="float32, float16 or bfloat16; onnx: float32 or int8 (default: the fastest here)",
    )
    add(
        "--quantize",
        type=int,
        metavar="BITS",
        help="round the weights to 4 or 8 bits on load; see also nanospeech convert --quantize",
    )
    add(
        "--compile",
        action="store_true",
        help="compile the network: for long texts and batches on a GPU, slower to start (MLX"
        " does so there by itself)",
    )


@command(interrupted="interrupted; nothing was written")
def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command.

    Returns:
        0, also where the reader of a pipe closes it; 1 if lines of a batch failed, 2 for bad
        input, 130 if interrupted.
    """
    args = build_parser().parse_args(argv)
    if args.words is not None and args.text is not None:
        raise InputError("give one text: --text, or the same without a flag")
    args.text = args.words if args.text is None else args.text
    if args.list_voices:
        return list_voices(args)
    if args.subtitle_words and args.subtitles is None:
        raise InputError("--subtitle-words is of --subtitles; add --subtitles FILE")
    if args.overwrite and args.batch is None:
        raise InputError(
            "--overwrite is of --batch; leave it out (--output replaces what is there), or add"
            " --batch FILE"
        )
    return speak_batch(args) if args.batch is not None else generate(args)


def list_voices(args: argparse.Namespace) -> int:
    """Prints the names of the model's voices and of the user's own, one a line."""
    from nanospeech.release.folder import resolve
    from nanospeech.release.voices import list_voices as names
    from nanospeech.release.voices import own_voices, user_voices

    folder = resolve(args.model)
    if not own_voices(folder):
        say(f"{folder} has no voices of its own; it takes the recordings of those that ship")
    print("\n".join(dict.fromkeys([*names(folder), *sorted(user_voices())])))
    return 0


def read_options(args: argparse.Namespace) -> tuple[SampleOptions, str | None, float | None]:
    """Solver options, the source of durations, and a length in seconds, from the flags.

    Raises:
        InputError: flags that are out of range or exclude each other.
    """
    from nanospeech.release.user_lexicon import open_lexicon
    from nanospeech.release.voices import check_reference
    from nanospeech.speech.speaker import DURATIONS

    options = SampleOptions(**{name: getattr(args, name) for name in FLAGS})
    named = isinstance(args.duration, str)
    how, seconds = (args.duration, None) if named else (None, args.duration)
    if named and how not in DURATIONS:
        raise InputError(
            f"--duration {how!r} not known; choose from {', '.join(DURATIONS)}, or give seconds"
        )
    check_reference(args.ref_audio, args.ref_text, args.voice, listens=True)
    open_lexicon(read_output(args).lexicon)
    return options, how, seconds


def load_speaker(args: argparse.Namespace, options: SampleOptions, how: str | None) -> Any:
    """The model and the voice that are asked for, as a Speaker."""
    from nanospeech.speech.speaker import Speaker
    from nanospeech.speech.words import choose_aligner, is_aligned

    from .load import load_engine

    reference = args.ref_audio, args.ref_text
    if args.ref_audio is not None and args.ref_text is None:
        from nanospeech.measure.transcription import hear_reference
        from nanospeech.text.languages import base_code

        spoken = base_code(args.language) if args.language else "en"
        found = hear_reference(args.ref_audio, None, args.whisper, say, spoken)
        reference = found.wave, found.text
    where = args.model, args.backend, args.device, args.dtype
    engine = load_engine(*where, args.quantize, args.compile or None)
    more: dict[str, Any] = {"duration": how, "output": read_output(args)}
    speaker = Speaker(engine, args.voice, *reference, options, args.speed, args.seed, **more)
    if getattr(args, "subtitles", None) is not None and speaker.aligner is None:
        finder = engine if is_aligned(engine) else load_engine(None, args.backend, args.device)
        speaker.aligner = choose_aligner(speaker.engine, finder)
    return speaker


def generate(args: argparse.Namespace) -> int:
    """Speaks. Bad input is found before the model is loaded, as far as it can be."""
    from nanospeech.audio.sinks import Memory
    from nanospeech.speech.reading import choose_markup
    from nanospeech.speech.script import check_speech, spoken_text
    from nanospeech.speech.speaker import step_bar
    from nanospeech.speech.subtitles import check_subtitles, write_subtitles

    from .audio import wave as audio

    options, how, seconds = read_options(args)
    text: Any = choose_text(args)
    arrives = not isinstance(text, str)
    if not arrives and (read := choose_markup(args.markup, args.ssml)) is not None:
        text = read(text)
    check_speech(None if arrives else spoken_text(text), args.speed, args.seed, seconds)
    target, device = args.output, None
    if target is None and (device := audio.player()) is None:
        target = FALLBACK
    if target not in (None, "-"):
        audio.check_writable(target)
    if args.subtitles is not None:
        check_subtitles(args.subtitles)
    speaker = load_speaker(args, options, how)
    if target is not args.output and not args.quiet:
        say(f"no player here (pip install 'nanospeech-tts[play]'): writing to {target}")
    out = choose_output(target, device if args.stream else None, args.stream, speaker.sample_rate)
    began = time.perf_counter()
    words: list[Any] = []
    try:
        with step_bar(not args.quiet and not arrives) as on_step:
            pieces = speaker.pieces(text, seconds, on_step, early=args.stream)
            first = deliver(pieces, out, words)
    except KeyboardInterrupt:
        if isinstance(out, Memory) or not out.samples:
            raise
        if args.subtitles is not None:
            write_subtitles(args.subtitles, words, args.subtitle_words)
        where = "" if target in (None, "-") else f"; they are in {target}"
        say(f"interrupted; {out.seconds:.2f} s were spoken{where}")
        return 130
    elapsed = time.perf_counter() - began
    if args.subtitles is not None:
        write_subtitles(args.subtitles, words, args.subtitle_words)
    if target == "-" and isinstance(out, Memory):
        sys.stdout.buffer.write(audio.wav_bytes(out.wave, out.sample_rate))
        sys.stdout.buffer.flush()
    if not args.quiet:
        early = f", the first of it after {first - began:.2f} s" if args.stream else ""
        where = "" if target in (None, "-") else f", wrote {target}"
        say(figures(speaker, out.seconds, elapsed, early) + where)
    if device is not None and isinstance(out, Memory):
        audio.play(out.wave, out.sample_rate)
    return 0


def choose_text(args: argparse.Namespace) -> str | Iterator[str]:
    """What to say: a text, or where it is streamed what comes in from standard input.

    Raises:
        InputError: there is none, two are given, or it cannot be read.
    """
    from nanospeech.speech.reading import (
        arriving_text,
        check_stdin,
        names_file,
        read_file,
        read_text,
        some,
    )

    if args.text is not None and args.file is not None:
        raise InputError("give --text or --file, not both")
    given = args.file if args.text is None else args.text
    if given is None:
        check_stdin()
    if args.stream and given in (None, "-") and not (args.markup or args.ssml):
        return arriving_text(args.encoding)
    if args.file is not None:
        return some(read_file(args.file, args.encoding))
    if names_file(args.text):
        say(f"--text is spoken as it stands; to speak what the file holds: --file {args.text}")
    return read_text(args.text, args.encoding)


def choose_output(target: str | None, device: Any, streams: bool, sample_rate: int) -> Any:
    """The sink of the speech: a file, or for streams a pipe or the loudspeakers."""
    from nanospeech.audio.sinks import File, Loudspeaker, Memory, Pipe

    if target not in (None, "-"):
        return File(target, sample_rate)
    if not streams:
        return Memory(sample_rate)
    if target == "-":
        return Pipe(sys.stdout.buffer, sample_rate)
    return Loudspeaker(device, sample_rate)


def deliver(pieces: Iterable[Any], out: Any, words: list[Any]) -> float:
    """Writes pieces as they come, and collects their words; returns when the first was there."""
    first = 0.0
    with out:
        for wave, said in pieces:
            first = first or time.perf_counter()
            words += said
            if len(wave):
                out.write(wave)
    return first


def figures(speaker: Any, seconds: float, elapsed: float, early: str = "") -> str:
    """Prints the duration and the real-time factor."""
    engine, rtf = speaker.engine, elapsed / max(seconds, 1e-9)
    return (
        f"{seconds:.2f} s of audio in {elapsed:.2f} s{early}, RTF {rtf:.3f}"
        f" ({engine.backend}, {engine.device}, seed {speaker.seed})"
    )


def speak_batch(args: argparse.Namespace) -> int:
    """Speaks the lines of a file into a folder; a line that fails stops no other.

    Returns:
        0, 1 if lines failed, 130 if interrupted.
    """
    from nanospeech.speech.reading import choose_markup, read_file
    from nanospeech.speech.speaker import check_speech
    from nanospeech.speech.subtitles import FORMATS

    from .speech import batch_files

    options, how, seconds = read_options(args)
    given = args.text is not None or args.file is not None
    if given or args.stream or seconds is not None:
        raise InputError(
            "--batch speaks the lines of its file; give it without --text, --file, --stream"
            " and the seconds of --duration"
        )
    if args.output in (None, "-"):
        raise InputError("--batch writes into a folder; name it with --output FOLDER")
    if args.subtitles not in (None, *FORMATS):
        raise InputError(
            f"--subtitles is {args.subtitles}; with --batch choose {', '.join(FORMATS)}: each line"
            " has its own file"
        )
    check_speech(None, args.speed, args.seed)
    limits = BatchLimits(items=args.batch_size)
    outcome = batch_files.speak_file(
        read_file(args.batch, args.encoding),
        args.output,
        lambda: load_speaker(args, options, how),
        limits,
        args.overwrite,
        progress=not args.quiet,
        subtitles=args.subtitles and (args.subtitles, args.subtitle_words),
        read=choose_markup(args.markup, args.ssml),
    )
    for number, why in sorted(outcome.failures.items()):
        say(f"line {number}: {why}")
    if not args.quiet:
        took = f"{outcome.seconds:.2f} s of audio in {outcome.elapsed:.2f} s"
        say(
            f"{outcome.spoken} spoken ({took}), {outcome.there} there already,"
            f" {len(outcome.failures)} failed: {args.output}"
        )
    if outcome.interrupted:
        say("interrupted; the same command goes on from here")
        return 130
    return 1 if outcome.failures else 0


if __name__ == "__main__":
    sys.exit(main())
