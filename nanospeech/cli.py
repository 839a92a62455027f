"""Command lines: how each of ours explains itself, reports an error and is interrupted.

What a user can mend is one line on stderr and exit code 2, never a traceback; our own bugs keep
theirs.
"""

from __future__ import annotations

import _thread
import argparse
import contextlib
import dataclasses
import errno
import functools
import io
import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from nanospeech.errors import InputError, NanospeechError

Main = Callable[..., int]
T = TypeVar("T")
NUMBERS = {"int": "a whole number", "float": "a number"}
CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class Parser(argparse.ArgumentParser):
    """A parser whose help is laid out as its description is, and whose flags are written in full.

    A wrong flag is an InputError, as any other bad input. So is an empty path, as of a shell's
    variable that is not set: it would be the current folder.

    Args:
        elsewhere: what to write for flags that other programs have for the same.
    """

    def __init__(
        self,
        prog: str,
        description: str | None = None,
        elsewhere: Mapping[str, str] = {},
        **more: Any,
    ):
        self.elsewhere = elsewhere
        more.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        # "--tex" would be another flag's when one is added
        super().__init__(prog, description=description, allow_abbrev=False, **more)
        self.register("type", Path, path_of)

    def error(self, message: str) -> NoReturn:
        if unknown := re.match(r"unrecognized arguments: (?:.*? )??(--?[A-Za-z][\w-]*)", message):
            import difflib

            mistyped = unknown[1].replace("_", "-")
            near = difflib.get_close_matches(mistyped, self.flags(), 1)
            if meant := self.elsewhere.get(mistyped.lstrip("-")):
                message += f" (here: {meant})"
            elif tools := self.tools(unknown[1]):
                message += f" ({unknown[1]} is of {', '.join(tools)})"
            elif near:
                message += f" (did you mean {near[0]}?)"
        if wrong := re.fullmatch(r"(.*): invalid (int|float) value: (.*)", message, re.DOTALL):
            message = f"{wrong[1]}: {wrong[3]} should be {NUMBERS[wrong[2]]}"
        raise InputError(f"{message}; see {self.prog} --help")

    def flags(self) -> list[str]:
        """All flags that the help shows, those of subcommands included."""
        shown = (action for action in self._actions if action.help != argparse.SUPPRESS)
        own = [flag for action in shown for flag in action.option_strings]
        return own + [flag for tool in self.tools().values() for flag in tool.flags()]

    def tools(self, flag: str | None = None) -> dict[str, Parser]:
        """Its subcommands by name, or those of them that have a flag."""
        groups = [a for a in self._actions if isinstance(a, argparse._SubParsersAction)]
        found = {name: tool for group in groups for name, tool in group.choices.items()}
        return {name: t for name, t in found.items() if flag is None or flag in t.flags()}


def path_of(text: str) -> Path:
    """A path that an argument names; argparse's error where it names none."""
    if not text:
        raise argparse.ArgumentTypeError("it is empty; name a file or a folder")
    return Path(text)


def add_fields(
    parser: argparse.ArgumentParser, options: type, aliases: Mapping[str, str] = {}
) -> None:
    """Adds a flag for each field of a dataclass: its help, its default, the type of its annotation.

    Args:
        options: the dataclass; annotations are int, float or str, each perhaps | None, and
            tuple[float, ...].
        aliases: other flags of fields, by the fields' names.
    """
    for field in dataclasses.fields(options):
        said = str(field.type)
        several = said.startswith("tuple")
        kind = next((k for k in (int, float) if re.match(rf"(tuple\[)?{k.__name__}\b", said)), str)
        flag = "--" + field.name.replace("_", "-")
        told = field.metadata["help"]
        if field.default not in (None, (), "") and "default" not in told:
            told = f"{told} (default: {field.default})"
        parser.add_argument(
            *([flag, aliases[field.name]] if field.name in aliases else [flag]),
            dest=field.name,
            type=kind,
            nargs="+" if several else None,
            default=field.default,
            help=told,
        )


def add_pause_after(parser: argparse.ArgumentParser, help: str) -> None:
    """Adds --pause-after MINUTES, read as `minutes`: when work that can be resumed stops."""
    flags = "--pause-after", "--minutes"  # its name before
    parser.add_argument(*flags, dest="minutes", type=float, metavar="MINUTES", help=help)


def read_fields(args: argparse.Namespace, options: type[T]) -> T:
    """The dataclass whose flags add_fields has added."""
    fields = dataclasses.fields(options)  # type: ignore[arg-type]
    given = {f.name: getattr(args, f.name) for f in fields}
    return options(**{k: tuple(v) if isinstance(v, list) else v for k, v in given.items()})


def command(
    main: Main | None = None,
    *,
    interrupted: str = "interrupted",
    expected: tuple[type[Exception], ...] = (OSError,),
) -> Any:
    """Decorates the main of a command line, which takes arguments and returns an exit code.

    The function that results returns 2 for a user's error (NanospeechError and what is expected),
    130 where it is interrupted, and 0 where the reader of a pipe has heard enough.

    Args:
        main: the function.
        interrupted: what to say at Ctrl-C.
        expected: other errors that are reported in one line.
    """
    if main is None:
        return functools.partial(command, interrupted=interrupted, expected=expected)

    @functools.wraps(main)
    def guarded(argv: Sequence[str] | None = None) -> int:
        with lasting_stderr():
            try:
                with no_interrupt_lost(), warnings_as_lines():
                    return finished(main, argv)
            except BrokenPipeError:
                drop_output()
                return 0
            except (NanospeechError, *expected, OSError) as e:
                full = isinstance(e, OSError) and e.errno == errno.ENOSPC
                if not full and not isinstance(e, (NanospeechError, *expected)):
                    raise
                try:
                    if sys.stdout is not None:
                        sys.stdout.flush()
                except OSError:
                    drop_output()
                say(f"error: {describe(e)}")
                return 2
            except KeyboardInterrupt:
                say(interrupted)
                return 130

    return guarded


def drop_output() -> None:
    """Lets standard output lead nowhere: what is in its buffer is not written as Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Lasting:
    """A stream whose writes never fail; once nobody reads it any more, it leads nowhere.

    Args:
        stream: sys.stdout or sys.stderr; None, where it is closed or there is no console, leads
            nowhere from the start.
    """

    def __init__(self, stream: Any):
        if stream is None:
            stream = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
        self.stream = stream

    def write(self, text: str) -> int:
        """Writes a text, if it can."""
        try:
            self.stream.write(text)
        except OSError:  # a broken pipe, a terminal that is gone, a full disk
            self.leave()
        return len(text)

    def flush(self) -> None:
        """Flushes, if it can."""
        try:
            self.stream.flush()
        except OSError:
            self.leave()

    def leave(self) -> None:
        """Lets the stream lead nowhere, so that what is flushed as Python ends does not fail."""
        with contextlib.suppress(OSError):  # one that is no file
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.stream.fileno())
            os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextlib.contextmanager
def lasting_stderr() -> Iterator[None]:
    """Has what a command tells of its work never end that work: a bar, a note, a warning."""
    before = sys.stderr
    sys.stderr = Lasting(before)  # type: ignore
    try:
        yield
    finally:
        sys.stderr = before


@contextlib.contextmanager
def no_interrupt_lost() -> Iterator[None]:
    """Raises a Ctrl-C again that Python ignores, as it comes in a callback or in a __del__.

    soundfile has both: it writes to memory by callbacks of cffi's. Such a Ctrl-C was told as an
    ignored exception, and the command went on.
    """
    before = sys.unraisablehook
    timers: list[threading.Timer] = []

    def again(ignored: Any) -> None:
        if not issubclass(ignored.exc_type, KeyboardInterrupt):
            return before(ignored)
        # in a moment: here it would be ignored once more
        while True:
            try:
                timers.append(timer := threading.Timer(0.01, _thread.interrupt_main))
                timer.daemon = True
                return timer.start()
            except KeyboardInterrupt:  # an earlier one's moment was over
                continue

    sys.unraisablehook = again
    try:
        yield
    except Exception as e:
        if timers:  # it comes of that: soundfile finds that too few bytes were written
            raise KeyboardInterrupt from e
        raise
    finally:
        sys.unraisablehook = before
        for timer in timers:
            timer.cancel()


@contextlib.contextmanager
def ends_interrupt() -> Iterator[None]:
    """Has SIGTERM, and SIGHUP of a terminal that is closed, do what Ctrl-C does.

    By themselves they end a process at once: what it made is lost, and parts of files stay. What
    is ignored, as SIGHUP under nohup, stays so; and all is left as it is in a thread, where Python
    sets no handlers.
    """

    def interrupt(*_: Any) -> NoReturn:
        raise KeyboardInterrupt

    numbers = [getattr(signal, name, None) for name in ("SIGTERM", "SIGHUP")]  # one on Windows
    main_thread = threading.current_thread() is threading.main_thread()
    ours = [n for n in numbers if n and main_thread and signal.getsignal(n) is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


class Lines(logging.Handler):
    """What is logged, a line each."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            say(self.format(record))
        except Exception:
            self.handleError(record)


@contextlib.contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Has `say` tell what is logged, where no program has set logging up."""
    before = logging.lastResort
    logging.lastResort = Lines(logging.WARNING)
    try:
        yield
    finally:
        logging.lastResort = before


def finished(main: Main, argv: Sequence[str] | None) -> int:
    """What main returns, or argparse after --help; what was printed has left by then."""
    code, end = 0, None
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        # a file or a pipe on Windows has few characters, and a book's titles may have others
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = main(argv)
    except SystemExit as e:
        end = e
    if sys.stdout is not None:  # closed, or there is no console
        sys.stdout.flush()
    if end is not None:
        raise end
    return code


def describe(error: Exception) -> str:
    """An error in words."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"cannot read or write {error.filename}: {error.strerror}"
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return f"cannot write: {error.strerror}; make room, or write to another disk"
    return str(error)


def counted(count: int, noun: str) -> str:
    """ "1 chapter", "2 chapters"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def say(message: str) -> None:
    """One line on stderr, whatever is in the message, above progress bars that are drawn there.

    Characters that would steer a terminal, as of a name in a model from elsewhere, are escaped.
    """
    if sys.stderr is None:  # closed, or there is no console
        return
    line = CONTROLS.sub(lambda c: f"\\x{ord(c[0]):02x}", " ".join(str(message).split()))
    bars = getattr(sys.modules.get("tqdm"), "tqdm", None)
    with bars.external_write_mode(sys.stderr) if bars else contextlib.nullcontext():
        sys.stderr.write(line.encode("utf-8", "backslashreplace").decode("utf-8") + "\n")
