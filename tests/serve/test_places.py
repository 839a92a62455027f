"""Places: who waits for one gets one, in the order in which they came."""

import threading
import time
from collections.abc import Callable

import pytest

from nanospeech.serve.errors import Cancelled
from nanospeech.serve.places import Places


class Waiter(threading.Thread):
    """A thread that takes a place, and tells what became of it; it waits when start() returns."""

    def __init__(self, places: Places, over: Callable[[], bool] = lambda: False):
        super().__init__(daemon=True)
        self.places, self.over, self.end = places, over, ""

    def start(self) -> None:
        before = len(self.places.waiting)
        super().start()
        until = time.monotonic() + 30
        while len(self.places.waiting) == before and time.monotonic() < until:
            time.sleep(0.001)
        with self.places.changed:  # it has looked for a place once, as it gave the lock up
            assert len(self.places.waiting) == before + 1

    def run(self) -> None:
        try:
            self.places.take(self.over)
            self.end = "has one"
        except Cancelled:
            self.end = "over"

    def ends(self) -> str:
        self.join(30)
        return self.end


def full(count: int) -> Places:
    places = Places(count)
    for _ in range(count):
        places.take(lambda: False)
    return places


def test_who_comes_while_others_wait_gets_no_place_before_them():
    places = full(1)
    first = Waiter(places)
    first.start()
    with places.changed:  # a place is free, and nobody was told
        places.taken -= 1
    second = Waiter(places)
    second.start()  # it looks for one now
    assert second.is_alive()
    places.wake()
    assert first.ends() == "has one" and second.is_alive()
    places.give()
    assert second.ends() == "has one" and places.taken == 1


def test_none_waits_beside_a_free_place():
    places = full(2)
    waiters = [Waiter(places) for _ in range(3)]
    for one in waiters:
        one.start()
    with places.changed:  # two are free, of which the first that waits alone hears
        places.taken -= 2
        places.changed.notify()
    assert [one.ends() for one in waiters[:2]] == ["has one"] * 2
    assert waiters[2].is_alive() and places.taken == 2
    places.give()
    assert waiters[2].ends() == "has one"


def test_who_is_over_leaves_the_line_and_takes_no_place():
    places, over = full(1), threading.Event()
    first, second = Waiter(places, over.is_set), Waiter(places)
    first.start()
    second.start()
    places.wake()  # it is not over yet
    over.set()
    places.wake()
    assert first.ends() == "over" and places.taken == 1
    places.give()
    assert second.ends() == "has one" and not places.waiting
    places.give()
    with pytest.raises(Cancelled):  # although one is free
        places.take(over.is_set)
    assert places.taken == 0 and not places.waiting
