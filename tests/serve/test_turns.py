"""Turns on one engine: short texts are not held back, batches change nothing, seeds go alone."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from nanospeech import SampleOptions, Speaker
from nanospeech.serve.errors import Cancelled
from nanospeech.serve.turns import Scheduler
from tests.serve.conftest import TEXT

COUNT = 4
STEPS = SampleOptions(steps=COUNT)


@pytest.fixture
def sizes() -> list[int]:
    """Chunks in each batch of the scheduler."""
    return []


@pytest.fixture
def scheduler(tiny_aligned, engine_of, sizes):
    """A scheduler that may batch."""
    found = Scheduler(lambda: engine_of(tiny_aligned, "torch"), 4, 8192, sizes.append)
    yield found
    found.close()


def spoken(scheduler, ticket, seed: int, into: dict, text: str = TEXT, on_step=None) -> None:
    """Speaks in this thread; into gets the wave, or the error."""
    try:
        speaker = Speaker(scheduler.use(ticket), options=STEPS, seed=seed, chunk_seconds=2)
        into[seed] = np.concatenate(list(speaker.stream(text, on_step=on_step)))
    except Cancelled as e:
        into[seed] = e


def together(scheduler, tickets, **more) -> dict:
    """Speaks with each ticket in a thread of its own."""
    into: dict = {}
    threads = [
        threading.Thread(target=spoken, args=(scheduler, ticket, i, into), kwargs=more)
        for i, ticket in enumerate(tickets)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return into


def test_batched_chunks_are_those_spoken_alone(scheduler, sizes, tiny_aligned, engine_of):
    engine = engine_of(tiny_aligned, "torch")
    waves = together(scheduler, [scheduler.enter(alone=False) for _ in range(3)])
    assert max(sizes) > 1
    for seed, wave in waves.items():
        speaker = Speaker(engine, options=STEPS, seed=seed, chunk_seconds=2)
        alone = np.concatenate(list(speaker.stream(TEXT)))
        assert wave.shape == alone.shape
        assert np.abs(wave - alone).max() <= 1e-3 * np.abs(alone).max()


def test_seeded_texts_share_no_batch_and_have_the_same_bytes(
    scheduler, sizes, tiny_aligned, engine_of
):
    waves = together(scheduler, [scheduler.enter(alone=True) for _ in range(3)])
    assert set(sizes) == {1}
    for seed, wave in waves.items():
        engine = engine_of(tiny_aligned, "torch")
        speaker = Speaker(engine, options=STEPS, seed=seed, chunk_seconds=2)
        assert np.array_equal(wave, np.concatenate(list(speaker.stream(TEXT))))


def test_a_long_text_holds_a_short_one_back_by_a_chunk_at_most(scheduler, monkeypatch):
    steps, begun, into = [], threading.Event(), {}
    asked, held = [], []  # long steps when a call of the short text came, and from then to its turn
    wait, do = scheduler._wait, scheduler._do

    def long_step(done: int, of: int) -> None:
        steps.append(done)
        if done > 2 * COUNT:
            begun.set()

    def coming(call):
        if call.ticket is greeting:
            asked.append(len(steps))
        return wait(call)

    def turn(calls):
        held.extend(len(steps) - asked[-1] for call in calls if call.ticket is greeting)
        return do(calls)

    ticket, greeting = scheduler.enter(), scheduler.enter()
    monkeypatch.setattr(scheduler, "_wait", coming)
    monkeypatch.setattr(scheduler, "_do", turn)
    long = threading.Thread(
        target=spoken, args=(scheduler, ticket, 0, into, TEXT * 20, long_step), daemon=True
    )
    long.start()
    assert begun.wait(30)
    speaker = Speaker(scheduler.use(greeting), options=STEPS, seed=1)
    into[1] = next(speaker.stream("Hello there."))
    assert len(held) >= 2  # its sound and its wave at the least
    assert sum(held) <= 2 * COUNT  # the chunk that runs, and one while the greeting is read
    scheduler.leave(ticket)
    long.join(30)
    assert isinstance(into[0], Cancelled) and len(into[1]) > 1000


def test_what_waits_ends_when_it_is_cancelled(scheduler):
    ticket, into = scheduler.enter(), {}

    def step(done: int, of: int) -> None:
        scheduler.leave(ticket)

    spoken(scheduler, ticket, 0, into, on_step=step)
    assert isinstance(into[0], Cancelled)
    assert not scheduler.calls and not scheduler.tickets
    with pytest.raises(Cancelled):
        scheduler.use(ticket).align(None, None)
