"""Tries: when to read on in a shard that broke off, and when to give it up. Reads nothing."""

from __future__ import annotations

import time


class Tries:
    """Tries to read one shard, counted since the last sample that came.

    Args:
        remote: everything may pass in a network; on a disk only its own errors, as damage remains.
        most: how many there are.
    """

    def __init__(self, remote: bool, most: int):
        self.remote, self.most = remote, most
        self.failed, self.ended = 0, False

    def over(self, error: Exception) -> bool:
        """Whether no other try follows after an error; once it is so, it remains so."""
        passes = self.remote or isinstance(error, OSError)
        gone = isinstance(error, FileNotFoundError)  # it will not come by waiting
        self.ended = self.ended or gone or not passes or self.failed + 1 >= self.most
        return self.ended

    def came(self) -> None:
        """Counts anew, after a sample."""
        self.failed = 0

    def wait(self) -> None:
        """Waits before another try, each time twice as long."""
        time.sleep(2**self.failed)
        self.failed += 1
