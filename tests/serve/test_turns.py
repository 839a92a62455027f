"""Turns on one engine: short texts are not held back, batches change nothing, seeds go alone."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from nanospeech import SampleOptions, Speaker
from nanospeech.load import load_engine
from nanospeech.serve.errors import Cancelled
from nanospeech.serve.turns import Call, Scheduler, Ticket
from nanospeech.speech.chunks import Chunk
from nanospeech.speech.latents import any_prompt, sample_latents
from tests.conftest import tone
from tests.echo import tiny
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


def test_models_of_latents_share_a_batch_where_their_prompts_differ(tmp_path, sizes, monkeypatch):
    """Their sampling knows no tokens of a prompt, and its latents have a length of their own."""
    monkeypatch.setattr("nanospeech.serve.turns.GATHER", 30.0)  # until both are there
    folder = tiny.write_with_codec(tmp_path)
    engine = load_engine(folder, "torch", "cpu", "float32")
    scheduler = Scheduler(lambda: engine, 4, 8192, sizes.append)
    prompts = [any_prompt(engine, tone(2 + i), "a tone that is held") for i in (0, 1)]
    chunks = [Chunk("Hello.", engine.tokenizer.encode("Hello."), 800 + i, i) for i in (0, 1)]
    into: dict = {}

    def say(i: int, ticket: Ticket) -> None:
        into[i] = sample_latents(scheduler.use(ticket), prompts[i], [chunks[i]], STEPS)[0]

    tickets = [scheduler.enter(alone=False) for _ in prompts]
    threads = [threading.Thread(target=say, args=each) for each in enumerate(tickets)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    scheduler.close()
    assert sizes == [2] and len(prompts[0].mel) < len(prompts[1].mel)
    for i, prompt in enumerate(prompts):
        alone = sample_latents(engine, prompt, [chunks[i]], STEPS)[0]
        assert np.abs(into[i] - alone).max() <= 1e-3 * np.abs(alone).max()


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


class Still:
    """An engine whose mels are their noise; it notes what it was asked for."""

    def __init__(self, noted: list):
        self.noted = noted

    def sample(self, noise, cond, text, options, *, lens_B, on_step, **_):
        self.noted.append((len(noise), options))
        assert noise.shape[:2] == cond.shape[:2] == (len(text), max(lens_B))
        for step in (1, 2, 3):
            on_step(step, 3)
            self.noted.append(step)
        return noise

    def vocode(self, mel):
        self.noted.append("vocode")
        return mel

    def ask(self, frames: int, ticket: Ticket, options=STEPS, on_step=None) -> Call:
        """A call for so many frames."""
        noise = np.full((1, frames, 2), float(frames))
        names = "lens_B", "prompt_frames_B", "prompt_tokens_B"
        more = {**{name: np.array([frames]) for name in names}, "on_step": on_step}
        return Call(ticket, self.sample, (noise, noise, np.zeros((1, 3), int), options), more)


def done_at_once(calls: list[Call], batch: int = 1, frames: int = 8192) -> list:
    """What became of calls that waited for the same turn."""
    nothing: Any = Ticket  # in the place of what loads an engine: calls bring their own
    scheduler, busy, go = Scheduler(nothing, batch, frames), threading.Event(), threading.Event()
    held = Call(Ticket(), lambda: (busy.set(), go.wait(30)), (), {})
    try:
        with scheduler.changed:
            scheduler.calls.append(held)
            scheduler.changed.notify_all()
        assert busy.wait(30)
        with scheduler.changed:
            scheduler.calls += calls
        go.set()
        return [call.done.exception(30) or call.done.result() for call in calls]
    finally:
        scheduler.close()


def test_a_batch_is_of_one_voice_and_one_way_and_of_so_many_frames():
    noted: list = []
    one, other, nine = Still(noted), Still(noted), SampleOptions(steps=9)
    calls = [
        one.ask(40, Ticket(alone=False)),
        one.ask(30, Ticket(alone=False)),
        one.ask(40, Ticket(alone=False), nine),
        other.ask(40, Ticket(alone=False)),
        one.ask(60, Ticket(alone=False)),  # with the first two it would take 180
        one.ask(20, Ticket(alone=True)),
    ]
    mels = done_at_once(calls, 4, 130)
    assert [mel.shape[:2] for mel in mels] == [(1, n) for n in (40, 30, 40, 40, 60, 20)]
    assert all(np.all(mel == mel.shape[1]) for mel in mels)
    assert [n for n in noted if isinstance(n, tuple)] == [
        *((2, STEPS), (1, nine), (1, STEPS), (1, STEPS), (1, STEPS))
    ]


def test_what_takes_no_sampling_is_first_and_then_who_has_had_least():
    noted: list = []
    engine = Still(noted)
    calls = [
        engine.ask(5, Ticket(frames=500), SampleOptions(steps=5)),
        engine.ask(7, Ticket(frames=20), SampleOptions(steps=7)),
        Call(Ticket(frames=900), engine.vocode, (np.zeros(1),), {}),
    ]
    done_at_once(calls)
    order = [n if n == "vocode" else n[1].steps for n in noted if not isinstance(n, int)]
    assert order == ["vocode", 7, 5]
    assert [call.ticket.frames for call in calls] == [505, 27, 900]


def turns(scheduler: Scheduler, *calls: Call) -> list[Ticket]:
    """Whose turn it is, one after another, of calls that wait."""
    with scheduler.changed:
        scheduler.calls += calls
        return [scheduler._take()[0].ticket for _ in calls]


def test_a_new_text_is_before_those_that_had_a_turn_and_behind_other_new_ones(scheduler):
    ask = Still([]).ask
    old, long = scheduler.enter(), scheduler.enter()
    assert turns(scheduler, ask(900, old), ask(900, long)) == [old, long]
    new = [scheduler.enter() for _ in range(3)]
    waiting = [ask(900, old), *(ask(50, ticket) for ticket in new), ask(900, long)]
    assert turns(scheduler, *waiting) == [*new, old, long]
    again = [ask(50, ticket) for ticket in (old, *new)]
    assert turns(scheduler, *again) == [*new, old]


def test_turns_are_not_saved_up(scheduler):
    ask = Still([]).ask
    slow, long = scheduler.enter(), scheduler.enter()
    turns(scheduler, ask(9, slow), ask(900, long))
    turns(scheduler, ask(900, long))
    turns(scheduler, ask(900, long))  # while nobody reads what was made for the other
    assert scheduler.enter().frames == 1800
    scheduler._wait(ask(9, slow))
    assert slow.frames == 1809


def test_who_leaves_a_batch_ends_it_for_no_other():
    for leavers, steps in ((1, [1, 2, 3]), (2, [1])):
        noted: list = []
        engine, tickets = Still(noted), [Ticket(alone=False) for _ in range(2)]

        def leave(done: int, of: int, leaving=tuple(tickets[:leavers])) -> None:
            for ticket in leaving:
                ticket.cancelled = True

        calls = [engine.ask(9, tickets[0], on_step=leave), engine.ask(9, tickets[1])]
        first, second = done_at_once(calls, 2)
        assert isinstance(first, Cancelled) and isinstance(second, Cancelled) == (leavers == 2)
        assert noted == [(2, STEPS), *steps]
