"""Generate: the command line, nothing else. python -m nanospeech.generate --text "Hello."

stdout carries only what was asked for (voice names, audio for "-"); the rest goes to stderr.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from .cli import Parser, command, ends_interrupt, say
from .config import BatchLimits, SampleOptions
from .errors import InputError
from .files import check_apart
from .output import PAUSES, OutputOptions, add_output_flags, read_output
from .sample_flags import FLAGS, add_sampling
from .speak_flags import ELSEWHERE, add_machine, add_texts, add_voices

if TYPE_CHECKING:
    from nanospeech.speech.durations import Duration

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
    parser = Parser("nanospeech speak", ABOUT, ELSEWHERE)
    add_texts(parser.add_argument_group("what is said, and where to").add_argument)
    add_voices(parser.add_argument_group("by whom").add_argument)
    add_sampling(parser.add_argument_group("how"))
    add_output_flags(parser.add_argument_group("pauses, loudness, words").add_argument)
    add_machine(parser.add_argument_group("with what").add_argument)
    parser.add_argument("--quiet", action="store_true", help="no progress, no figures")
    parser.add_argument("--version", action=Version, nargs=0, help="print the version")
    return parser


@command(interrupted="interrupted; nothing was written")
def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command.

    Returns:
        0, also where the reader of a pipe closes it; 1 if lines of a batch failed, 2 for bad
        input, 130 if interrupted, by SIGTERM and SIGHUP as well.
    """
    args = build_parser().parse_args(argv)
    if args.words and args.text is not None:
        raise InputError("give one text: --text, or the same without a flag; both in quotes")
    if len(args.words) > 1:
        raise InputError(f"give one text, in quotes: {shlex.quote(' '.join(args.words))}")
    args.text = args.words[0] if args.words else args.text
    if args.list_voices:
        return list_voices(args)
    if args.subtitle_words and args.subtitles is None:
        raise InputError("--subtitle-words is of --subtitles; add --subtitles FILE")
    if args.overwrite and args.batch is None:
        raise InputError(
            "--overwrite is of --batch; leave it out (--output replaces what is there), or add"
            " --batch FILE"
        )
    with ends_interrupt():
        return speak_batch(args) if args.batch is not None else generate(args)


def list_voices(args: argparse.Namespace) -> int:
    """Prints the names of the model's voices and of the user's own, one a line."""
    from nanospeech.release.folder import resolve
    from nanospeech.release.voices import added_voices, own_voices
    from nanospeech.release.voices import list_voices as names

    folder = resolve(args.model)
    if not own_voices(folder):
        say(f"{folder} has no voices of its own; it takes the recordings of those that ship")
    models = names(folder)
    print("\n".join([*models, *added_voices(models)]))
    return 0


def read_options(args: argparse.Namespace) -> tuple[SampleOptions, Duration | None, float | None]:
    """Solver options, the source of durations, and a length in seconds, from the flags.

    Raises:
        InputError: flags that are out of range or exclude each other.
    """
    from nanospeech.release.prompt import check_reference
    from nanospeech.release.user_lexicon import open_lexicon
    from nanospeech.speech.speaker import DURATIONS

    options = SampleOptions(**{name: getattr(args, name) for name in FLAGS})
    named = isinstance(args.duration, str)
    how, seconds = (args.duration, None) if named else (None, args.duration)
    if named and how not in DURATIONS:
        raise InputError(
            f"--duration {how!r} not known; choose from {', '.join(DURATIONS)}, or give seconds"
        )
    check_reference(args.ref_audio, args.ref_text, args.voice)
    if args.whisper is not None and args.ref_audio is None:
        raise InputError("--whisper hears the words of a recording; add --ref-audio FILE")
    open_lexicon(read_output(args).lexicon)
    return options, how, seconds


def load_speaker(args: argparse.Namespace, options: SampleOptions, how: str | None) -> Any:
    """The model and the voice that are asked for, as a Speaker."""
    from nanospeech.speech.speaker import Speaker
    from nanospeech.speech.words import choose_aligner, is_aligned

    from .load import load_engine

    reference = args.ref_audio, args.ref_text
    if args.ref_audio is not None:
        from nanospeech.measure.transcription import hear_reference
        from nanospeech.release.folder import load_config, resolve
        from nanospeech.text.languages import spoken_code

        config = load_config(resolve(args.model))
        needed = not config.hears_alone
        # with its words, other projects' models take a recording as it is, as these projects do
        if args.ref_text is None or not (needed or config.echo):
            codes = args.language, config.language
            # other projects' models say no language, and there are some of many
            code = spoken_code(*codes) if any(codes) or not needed else None
            how_heard = args.whisper or "base", say, code, "--ref-text", needed
            found = hear_reference(*reference, *how_heard, spoken=True)
            reference = found.wave, found.text or None
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

    from .audio import loudspeakers
    from .audio import wave as audio

    options, how, seconds = read_options(args)
    text: Any = choose_text(args)
    arrives = not isinstance(text, str)
    if not arrives and (read := choose_markup(args.markup, args.ssml)) is not None:
        text = read(text)
    check_speech(None if arrives else spoken_text(text), args.speed, args.seed, seconds)
    if seconds is not None:
        tell_unused(args, seconds)
    target, device = args.output, None
    if target is None and (device := loudspeakers.player()) is None:
        target = FALLBACK
    if target == "-" and sys.stdout is None:
        raise InputError("--output - writes to standard output, which is closed")
    if target not in (None, "-"):
        audio.check_writable(target)
    if args.subtitles is not None:
        check_subtitles(args.subtitles)
    check_apart((args.file, args.ref_audio), (target, args.subtitles))
    speaker = load_speaker(args, options, how)
    if target is not args.output and not args.quiet:
        say(f"no player here ({loudspeakers.no_player()}): writing to {target}")
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
        try:
            loudspeakers.play(out.wave, out.sample_rate)
        except Exception as e:  # of sounddevice's own: it is busy, or does not take this rate
            audio.write(FALLBACK, out.wave, out.sample_rate)
            say(f"cannot play: {e}; it is in {FALLBACK}")
    return 0


def tell_unused(args: argparse.Namespace, seconds: float) -> None:
    """Says which flags have no effect on speech of a given length."""
    usual = {f"pause_{kind}": OutputOptions().pause(kind) for kind in PAUSES} | {"speed": 1.0}
    if unused := [name for name, value in usual.items() if getattr(args, name) != value]:
        flags = ", ".join("--" + name.replace("_", "-") for name in unused)
        say(f"note: the speech lasts {seconds:g} s, without {flags}: --duration sets its length")


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
        parts = arriving_text(args.encoding)
        return parts if args.markup is False else noting_markup(parts)
    if args.file is not None:
        return some(read_file(args.file, args.encoding))
    if names_file(args.text):
        say(f"--text is spoken as it stands; to speak what the file holds: --file {args.text}")
    return read_text(args.text, args.encoding)


def noting_markup(parts: Iterable[str]) -> Iterator[str]:
    """The parts of a text that is spoken as it arrives; says once that its markup is not read."""
    from nanospeech.text.markup import MARKUP, is_formed

    told, end = False, ""
    for part in parts:
        end += part
        if not told and (told := any(map(is_formed, MARKUP.finditer(end)))):
            say("note: brackets are text as it arrives; --markup reads all of it first, and them")
        end = end[-100:]  # with what a bracket has begun
        yield part


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
    """What is told of speech: its duration and the real-time factor."""
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
    if args.output in (None, "", "-"):
        raise InputError("--batch writes into a folder; name it with --output FOLDER")
    if args.subtitles not in (None, *FORMATS):
        raise InputError(
            f"--subtitles is {args.subtitles}; with --batch choose {', '.join(FORMATS)}: each line"
            " has its own file"
        )
    check_speech(None, args.speed, args.seed)
    if args.batch_size < 1:
        raise InputError(f"--batch-size is {args.batch_size}; choose 1 or more")
    limits = BatchLimits(items=args.batch_size)
    outcome = batch_files.speak_file(
        read_file(args.batch, args.encoding),
        args.output,
        lambda: load_speaker(args, options, how),
        limits,
        args.overwrite,
        sources=(args.batch, args.ref_audio),
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
