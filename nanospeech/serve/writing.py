"""Writing: a text that is still being written, from its connection to its thread."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator

from nanospeech.text.sentences import whole_characters

from .errors import Cancelled, bad


class Writing:
    """A text that is still being written: an iterator of its parts for another thread.

    Attributes:
        since: when the last of it came; None before the first.
    """

    def __init__(self, most: int):
        self.most, self.had, self.ended = most, 0, False
        self.parts: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.stopped = False
        self.since: float | None = None

    @property
    def ready(self) -> bool:
        """Whether the thread need not wait for the next part, or the end."""
        return not self.parts.empty()

    def add(self, text: str) -> None:
        """Takes a part; none after the end.

        Raises:
            ApiError: the text is too long.
        """
        if self.ended:
            return
        self.had += len(text)
        if self.had > self.most:
            message = f"the text has more than {self.most} characters"
            raise bad(message, "text", "string_above_max_length")
        if text:
            self.since = time.monotonic()
            self.parts.put(whole_characters(text))

    def end(self) -> None:
        """The text is complete."""
        self.ended = True
        self.since = time.monotonic()
        self.parts.put(None)

    def close_now(self) -> None:
        """Ends the iterator with Cancelled."""
        self.stopped = True
        self.parts.put(None)

    def __iter__(self) -> Iterator[str]:
        while (part := self.parts.get()) is not None:
            yield part
        if self.stopped:
            raise Cancelled
