"""Generate: the command line, nothing else. python -m nanospeech.generate --text "Hello."

stdout carries only what was asked for (voice names, audio for "-"); the rest goes to stderr.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NoReturn

from .config import GUIDANCES, METHODS, SCHEDULES, BatchLimits, SampleOptions
from .errors import InputError, NanospeechError

FALLBACK = "nanospeech.wav"  # where speech goes that can neither be played nor has an --output
# flags of SampleOptions' fields
FLAGS = {
    "steps": "--steps",
    "method": "--method",
    "cfg_strength": "--cfg",
    "sway_sampling_coef": "--sway-coef",
    "schedule": "--schedule",
    "guidance": "--guidance",
    "zero_init": "--zero-init",
    "cfg_from": "--cfg-from",
    "cfg_until": "--cfg-until",
    "temperature": "--temperature",
}
OWN = {  # what a folder tells
    "cfg_strength": "the voice's or the model's own, mostly 3",
    "temperature": "the model's own, mostly 1",
}
CHOICES = {"method": METHODS, "schedule": SCHEDULES, "guidance": GUIDANCES}


class Parser(argparse.ArgumentParser):
    """Reports a wrong flag as any other bad input: one line, exit code 2."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message}; see --help")


class Version(argparse.Action):
    """--version, looked up only when asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        from . import __version__

        print(f"nanospeech {__version__}")
        parser.exit()


def name_or_seconds(text: str) -> str | float:
    """The value of --duration: a number of seconds, or a name."""
    try:
        return float(text)
    except ValueError:
        return text


def number_or_none(text: str) -> float | None:
    """A number, or None for "none"."""
    return None if text.lower() == "none" else float(text)


def build_parser() -> argparse.ArgumentParser:
    """The flags. Defaults and help of the sampling options come from their dataclass."""
    parser = Parser(
        prog="nanospeech",
        allow_abbrev=False,  # "--tex" would be another flag's when one is added
        description="Speaks text, in the voice that ships, a model's voices or a recording's.",
    )
    add = parser.add_argument
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
    add("--model", help="release folder or Hugging Face repository; the default voice if not given")
    add(
        "--voice",
        metavar="NAME",
        help="one of the model's voices; default/NAME: the recording of one that ships",
    )
    add("--list-voices", action="store_true", help="print the names of the model's voices")
    add("--ref-audio", metavar="FILE", help="recording of a voice to imitate, best 3 to 10 seconds")
    add("--ref-text", metavar="TEXT", help="the words of --ref-audio")
    for field in dataclasses.fields(SampleOptions):
        if field.name not in FLAGS:
            continue
        kind: Any = type(field.default)
        default = "%(default)s"
        if field.name in ("sway_sampling_coef", *OWN):
            kind = number_or_none
        if field.name in OWN:
            default = OWN[field.name]
        add(
            FLAGS[field.name],
            dest=field.name,
            type=kind,
            default=field.default,
            choices=CHOICES.get(field.name),
            metavar=None if field.name in CHOICES else "N",
            help=f"{field.metadata['help']} (default: {default})",
        )
    add("--speed", type=float, default=1.0, metavar="N", help="2 is twice as fast (default: 1)")
    add(
        "--duration",
        type=name_or_seconds,
        metavar="HOW",
        help="length of the speech: SECONDS in all, instead of --speed; or its source: model,"
        " tokens (an aligned model's own), both, or rule (the prompt's pace) (default: the first"
        " available of both, model, rule)",
    )
    add("--seed", type=int, metavar="N", help="the same seed makes the same speech")
    add(
        "--backend",
        default="auto",
        metavar="NAME",
        help="torch, mlx or another that is installed; auto chooses one",
    )
    add("--device", help="for example cpu, cuda, cuda:1, mps or gpu; a GPU if there is one")
    add("--dtype", help="float32, float16 or bfloat16 (default: the fastest on this device)")
    add(
        "--quantize",
        type=int,
        metavar="BITS",
        help="round the weights to 4 or 8 bits on load; see also python -m convert --quantize",
    )
    add(
        "--compile",
        action="store_true",
        help="compile the network: for long texts and batches on a GPU, slower to start (MLX"
        " does so there by itself)",
    )
    add("--quiet", action="store_true", help="no progress, no figures")
    add("--version", action=Version, nargs=0, help="print the version")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command.

    Returns:
        0, also where the reader of a pipe closes it; 1 if lines of a batch failed, 2 for bad
        input, 130 if interrupted.
    """
    try:
        args = build_parser().parse_args(argv)
        if args.list_voices:
            return list_voices(args)
        return speak_batch(args) if args.batch is not None else generate(args)
    except NanospeechError as e:
        say(f"nanospeech: error: {e}")
        return 2
    except KeyboardInterrupt:
        say("nanospeech: interrupted; nothing was written")
        return 130
    except BrokenPipeError:
        # what is left in Python's buffer must not be written when it ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def say(message: str) -> None:
    """One line on stderr, whatever is in the message."""
    line = " ".join(str(message).split())
    sys.stderr.write(line.encode("utf-8", "backslashreplace").decode("utf-8") + "\n")


def list_voices(args: argparse.Namespace) -> int:
    """Prints the names of the model's voices, one a line."""
    from nanospeech.release.folder import resolve
    from nanospeech.release.voices import list_voices as names
    from nanospeech.release.voices import own_voices

    folder = resolve(args.model)
    if not own_voices(folder):
        say(f"{folder} has no voices of its own; these ship, and lend it their recordings")
    for name in names(folder):
        print(name)
    return 0


def read_options(args: argparse.Namespace) -> tuple[SampleOptions, str | None, float | None]:
    """What the flags ask for: solver options, the source of durations, or seconds.

    Raises:
        InputError: flags that cannot be, or not beside each other.
    """
    from nanospeech.release.voices import check_reference
    from nanospeech.speech.speaker import DURATIONS

    options = SampleOptions(**{name: getattr(args, name) for name in FLAGS})
    named = isinstance(args.duration, str)
    how, seconds = (args.duration, None) if named else (None, args.duration)
    if named and how not in DURATIONS:
        raise InputError(
            f"--duration {how!r} not known; choose from {', '.join(DURATIONS)}, or give seconds"
        )
    check_reference(args.ref_audio, args.ref_text, args.voice)
    return options, how, seconds


def load_speaker(args: argparse.Namespace, options: SampleOptions, how: str | None) -> Any:
    """The model and the voice that are asked for, as a Speaker."""
    from nanospeech.speech.speaker import Speaker

    from .load import load_engine

    where = args.model, args.backend, args.device, args.dtype
    engine = load_engine(*where, args.quantize, args.compile or None)
    reference = args.ref_audio, args.ref_text
    return Speaker(engine, args.voice, *reference, options, args.speed, args.seed, duration=how)


def generate(args: argparse.Namespace) -> int:
    """Speaks. Bad input is found before the model is loaded, as far as it can be."""
    from nanospeech.audio.sinks import Memory
    from nanospeech.speech.speaker import check_speech, step_bar

    from .audio import wave as audio

    options, how, seconds = read_options(args)
    text = choose_text(args)
    arrives = not isinstance(text, str)
    said = text if isinstance(text, str) else None
    check_speech(said, args.speed, args.seed, seconds)
    target, device = args.output, None
    if target is None and (device := audio.player()) is None:
        target = FALLBACK
    if target not in (None, "-"):
        audio.check_writable(target)
    speaker = load_speaker(args, options, how)
    if target is not args.output and not args.quiet:
        say(f"no player here (pip install 'nanospeech-tts[play]'): writing to {target}")
    out = choose_output(target, device if args.stream else None, args.stream, speaker.sample_rate)
    began = time.perf_counter()
    try:
        with step_bar(not args.quiet and not arrives) as on_step:
            first = deliver(speaker.stream(text, seconds, on_step, early=args.stream), out)
    except KeyboardInterrupt:
        if isinstance(out, Memory) or not out.samples:
            raise
        where = "" if target in (None, "-") else f"; they are in {target}"
        say(f"nanospeech: interrupted; {out.seconds:.2f} s were spoken{where}")
        return 130
    elapsed = time.perf_counter() - began
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
    if args.stream and given in (None, "-"):
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


def deliver(waves: Iterable[Any], out: Any) -> float:
    """Writes waves as they come; returns when the first was there."""
    first = 0.0
    with out:
        for wave in waves:
            first = first or time.perf_counter()
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
    from nanospeech.speech.reading import read_file
    from nanospeech.speech.speaker import check_speech

    from .speech import batch_files

    options, how, seconds = read_options(args)
    given = args.text is not None or args.file is not None
    if given or args.stream or seconds is not None:
        raise InputError(
            "--batch speaks the lines of its file; give it without --text, --file, --stream and the"
            " seconds of --duration"
        )
    if args.output in (None, "-"):
        raise InputError("--batch writes into a folder; name it with --output FOLDER")
    check_speech(None, args.speed, args.seed)
    limits = BatchLimits(items=args.batch_size)
    outcome = batch_files.speak_file(
        read_file(args.batch, args.encoding),
        args.output,
        lambda: load_speaker(args, options, how),
        limits,
        args.overwrite,
        progress=not args.quiet,
    )
    for number, why in sorted(outcome.failures.items()):
        say(f"nanospeech: line {number}: {why}")
    if not args.quiet:
        took = f"{outcome.seconds:.2f} s of audio in {outcome.elapsed:.2f} s"
        say(
            f"{outcome.spoken} spoken ({took}), {outcome.there} there already,"
            f" {len(outcome.failures)} failed: {args.output}"
        )
    if outcome.interrupted:
        say("nanospeech: interrupted; the same command goes on from here")
        return 130
    return 1 if outcome.failures else 0


if __name__ == "__main__":
    sys.exit(main())
