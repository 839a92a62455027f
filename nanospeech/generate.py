"""Generate: the command line, nothing else. python -m nanospeech.generate --text "Hello."

stdout carries only what was asked for (voice names, audio for "-"); the rest goes to stderr.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from .config import GUIDANCES, METHODS, SCHEDULES, SampleOptions
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
OWN = {"cfg_strength": 3, "temperature": 1}  # what config.json tells, and mostly says
CHOICES = {"method": METHODS, "schedule": SCHEDULES, "guidance": GUIDANCES}


class Parser(argparse.ArgumentParser):
    """Reports a wrong flag as any other bad input: one line, exit code 2."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message}; see --help")


class Version(argparse.Action):
    """--version, looked up only when asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        from nanospeech import __version__

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
        description="Speaks text, in the voice that ships, a model's voices or a recording's.",
    )
    add = parser.add_argument
    add("--text", help="what to say; - or nothing reads it from standard input")
    add("--output", metavar="FILE", help="wav, flac, ogg or mp3; - writes WAV to standard output")
    add("--model", help="release folder or Hugging Face repository; the default voice if not given")
    add("--voice", help="name of a built-in voice")
    add("--list-voices", action="store_true", help="print the names of the voices")
    add("--ref-audio", metavar="FILE", help="recording of a voice to imitate, best 3 to 10 seconds")
    add("--ref-text", metavar="TEXT", help="what is said in it")
    for field in dataclasses.fields(SampleOptions):
        if field.name not in FLAGS:
            continue
        kind: Any = type(field.default)
        default = "%(default)s"
        if field.name in ("sway_sampling_coef", *OWN):
            kind = number_or_none
        if field.name in OWN:
            default = f"the model's own, mostly {OWN[field.name]}"
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
        help="length of the speech: SECONDS in all, instead of --speed; or who tells it: model,"
        " tokens (an aligned model's own), both, or rule (the prompt's pace) (default: the first"
        " there is of both, model, rule)",
    )
    add("--seed", type=int, metavar="N", help="the same seed makes the same speech")
    add(
        "--backend",
        default="auto",
        choices=("auto", "torch", "mlx"),
        help="auto takes what is there",
    )
    add("--device", help="for example cpu, cuda, cuda:1, mps or gpu; a GPU if there is one")
    add("--dtype", help="float32, float16 or bfloat16")
    add("--quiet", action="store_true", help="no progress, no figures")
    add("--version", action=Version, nargs=0, help="print the version")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command.

    Returns:
        0, 2 for bad input, 130 if interrupted.
    """
    try:
        args = build_parser().parse_args(argv)
        return list_voices(args) if args.list_voices else generate(args)
    except NanospeechError as e:
        say(f"nanospeech: error: {e}")
        return 2
    except KeyboardInterrupt:
        say("nanospeech: interrupted; nothing was written")
        return 130


def say(message: str) -> None:
    """One line on stderr, whatever is in the message."""
    line = " ".join(str(message).split())
    sys.stderr.write(line.encode("utf-8", "backslashreplace").decode("utf-8") + "\n")


def list_voices(args: argparse.Namespace) -> int:
    """Prints the names of the voices, one a line."""
    from .checkpoint import resolve
    from .voices import list_voices as names

    for name in names(resolve(args.model)):
        print(name)
    return 0


def generate(args: argparse.Namespace) -> int:
    """Speaks. Bad input is found before the model is loaded, as far as it can be."""
    options = SampleOptions(**{name: getattr(args, name) for name in FLAGS})
    text = read_text(args.text)

    from . import audio
    from .pipeline import DURATIONS, Speaker, check_speech
    from .voices import check_reference

    named = isinstance(args.duration, str)
    how, seconds = (args.duration, None) if named else (None, args.duration)
    if named and how not in DURATIONS:
        raise InputError(
            f"--duration {how!r} not known; choose from {', '.join(DURATIONS)}, or give seconds"
        )
    check_speech(text, args.speed, args.seed, seconds)
    check_reference(args.ref_audio, args.ref_text, args.voice)
    output, plays = args.output, False
    if output is None and not (plays := audio.player() is not None):
        output = FALLBACK
    if output not in (None, "-"):
        audio.check_writable(output)

    from .backend import load_engine

    engine = load_engine(args.model, args.backend, args.device, args.dtype)
    reference = args.ref_audio, args.ref_text
    speaker = Speaker(engine, args.voice, *reference, options, args.speed, args.seed, duration=how)
    if args.output is None and not plays and not args.quiet:
        say(f"no player here (pip install 'nanospeech[play]'): writing to {output}")
    spoken = speaker.speak(text, seconds, progress=not args.quiet)
    if output == "-":
        sys.stdout.buffer.write(audio.wav_bytes(spoken.wave, spoken.sample_rate))
        sys.stdout.buffer.flush()
    elif output is not None:
        spoken.save(output)
    if not args.quiet:
        where = f", wrote {output}" if output not in (None, "-") else ""
        say(
            f"{spoken.seconds:.2f} s of audio in {spoken.elapsed:.2f} s, RTF {spoken.rtf:.3f}"
            f" ({engine.backend}, {engine.device}, seed {spoken.seed}){where}"
        )
    if plays:
        audio.play(spoken.wave, spoken.sample_rate)
    return 0


def read_text(text: str | None) -> str:
    """The text of --text, or standard input's.

    Raises:
        InputError: there is none, or it is not UTF-8.
    """
    if text is None and (sys.stdin is None or sys.stdin.isatty()):
        raise InputError("no text; give --text, or pipe it in")
    if text is None or text == "-":
        text = read_stdin()
    if not text.strip():
        raise InputError("no text: it is empty")
    return text


def read_stdin() -> str:
    """All of standard input, as UTF-8."""
    try:
        buffer = getattr(sys.stdin, "buffer", None)
        return buffer.read().decode("utf-8-sig") if buffer else sys.stdin.read()
    except UnicodeDecodeError as e:
        raise InputError(f"standard input is not UTF-8 text: {e}") from e


if __name__ == "__main__":
    sys.exit(main())
