"""Serve: a benchmark's worker, which measures on request. Knows no model.

The first line on standard input describes the work as JSON. The worker warms up, by its
own method `warm` or by doing it once, and answers with a line about itself; then a line that names
a method ("measure", "memory") is answered with what that returns. Needs the standard library and
NumPy alone: other releases' environments run it too.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

FRAME_RATE = 93.75  # mel frames a second
TOKENS_PER_SECOND = 14  # about what English has, in characters


class Work(Protocol):
    """The interface of a worker."""

    def about(self) -> dict[str, Any]:
        """Device, threads and the like."""
        ...

    def measure(self) -> dict[str, float]:
        """Does the work once: its figures."""
        ...

    def memory(self) -> dict[str, int]:
        """The most memory so far, in bytes."""
        ...


def serve(make: Callable[[dict[str, Any]], Work]) -> int:
    """Answers standard input's lines until it ends; words on the command line get the usage.

    Args:
        make: from the description to the work.
    """
    if sys.argv[1:]:
        return usage(sys.argv[1:])
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # libraries may print; keep standard output for answers

    def answer(values: dict[str, Any]) -> None:
        answers.write(json.dumps(values) + "\n")
        answers.flush()

    work = make(json.loads(sys.stdin.readline()))
    getattr(work, "warm", work.measure)()
    answer(work.about())
    for line in sys.stdin:
        answer(getattr(work, line.strip())())
    return 0


def usage(words: Sequence[str]) -> int:
    """Prints what the running program says of itself; the exit code for such a command line."""
    asked = any(word in ("-h", "--help") for word in words)
    print((sys.modules["__main__"].__doc__ or "").strip(), file=None if asked else sys.stderr)
    return 0 if asked else 2


def resident() -> int:
    """The most resident memory of this process, in bytes.

    On Linux ru_maxrss is inherited from the parent process; VmHWM is not.
    """
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        return 1024 * int(next(n for n in lines if n.startswith("VmHWM")).split()[1])
    except (OSError, StopIteration):
        unit = 1 if sys.platform == "darwin" else 1024
        return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def example(seconds: float, prompt_seconds: float, vocab: int, mels: int) -> dict[str, Any]:
    """An utterance for a speech model alone, always the same.

    Args:
        seconds: of prompt and new speech.
        prompt_seconds: of the prompt.
        vocab: tokens to choose from.
        mels: bands.

    Returns:
        frames and prompt (numbers of frames), prompt_tokens (how many of the tokens), cond
        (1, prompt, mels) float32, text (1, T) int64.
    """
    import numpy as np

    rng = np.random.default_rng(0)
    frames, prompt = round(seconds * FRAME_RATE), round(prompt_seconds * FRAME_RATE)
    tokens = max(2, round(seconds * TOKENS_PER_SECOND))
    return {
        "frames": frames,
        "prompt": prompt,
        "prompt_tokens": tokens * prompt // frames,
        "cond": rng.normal(-3, 2, (1, prompt, mels)).astype(np.float32),
        "text": rng.integers(0, vocab, (1, tokens)),
    }
