"""Places: how many texts are in work at once; the others wait in the order in which they came."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Condition

from .errors import Cancelled


class Places:
    """A count of places that threads take, and wait for."""

    def __init__(self, count: int):
        self.count, self.taken = count, 0
        self.changed = Condition()
        self.waiting: deque[object] = deque()

    def take(self, over: Callable[[], bool]) -> None:
        """Waits for a place.

        Args:
            over: whether to wait no longer; looked at when wake() is called.

        Raises:
            Cancelled: it is over.
        """
        mine = object()
        with self.changed:
            self.waiting.append(mine)
            try:
                self.changed.wait_for(
                    lambda: over() or (self.waiting[0] is mine and self.taken < self.count)
                )
                if over():
                    raise Cancelled
                self.taken += 1
            finally:
                self.waiting.remove(mine)
                self.changed.notify_all()

    def take_again(self) -> None:
        """A place without a wait, for a text that is half spoken: it gave its own up meanwhile."""
        with self.changed:
            self.taken += 1

    def give(self) -> None:
        """Gives a place up."""
        with self.changed:
            self.taken -= 1
            self.changed.notify_all()

    def wake(self) -> None:
        """Has those that wait look whether they are over."""
        with self.changed:
            self.changed.notify_all()
