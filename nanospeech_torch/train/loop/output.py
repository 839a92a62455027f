"""Output: what a run prints outlives its reader, as `tee` or a terminal. Prints nothing itself."""

from __future__ import annotations

import contextlib
import os
from typing import Any


class Lasting:
    """A stream whose writes never fail; once nobody reads it any more, it leads nowhere.

    Args:
        stream: sys.stdout or sys.stderr.
    """

    def __init__(self, stream: Any):
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
