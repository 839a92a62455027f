"""Turns: an engine in a thread of its own that concurrent texts use by turns, chunk by chunk.

Each text is spoken by a Speaker in its own thread, with a Turns in the place of the engine: every
call waits for its turn. Next is the text that has had least of the engine so far, in mel frames,
so a long text holds a short one back by one chunk at most (start-time fair queueing, Goyal, Vin and
Cheng, 1996); new texts are in the order in which they came. Chunks that wait at the same time may
share a batch.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Condition, Thread
from typing import Any

import numpy as np

from nanospeech.engine.base import Engine
from nanospeech.text.tokenizer import pad_tokens

from .errors import Cancelled

GATHER = 0.01  # seconds that chunks wait for others to share a batch with


@dataclass(eq=False)
class Ticket:
    """A text's place among others.

    Attributes:
        alone: whether its chunks share no batch, so that a seed gives the same bytes always.
        frames: mel frames that it has had of the engine, those that others had before it included.
        begun: whether it has had any.
        cancelled: whether nobody waits for it any more.
    """

    alone: bool = True
    frames: int = 0
    begun: bool = False
    cancelled: bool = False


@dataclass(eq=False)
class Call:
    """A call of the engine that waits or runs."""

    ticket: Ticket
    method: Any
    args: tuple
    options: dict[str, Any]
    done: Future = field(default_factory=Future)

    @property
    def frames(self) -> int:
        """Mel frames that it computes; 0 of what is not sampled."""
        lens = self.options.get("lens_B")
        named = getattr(self.method, "__name__", "") == "sample"
        return int(np.max(lens)) if named and lens is not None else 0

    @property
    def order(self) -> tuple[bool, int, bool]:
        """Less is first: what is not sampled, then whose text has had least, then a new text's."""
        return self.frames > 0, self.ticket.frames, self.ticket.begun

    def batches_with(self, other: Call) -> bool:
        """Whether both can be one call of the engine."""
        return (
            self.frames > 0
            and other.frames > 0
            and not (self.ticket.alone or other.ticket.alone)
            and self.method.__self__ is other.method.__self__
            and self.args[3] == other.args[3]
        )

    def fail_if_cancelled(self) -> bool:
        """Whether it is over; one whose ticket is cancelled ends here."""
        if self.ticket.cancelled and not self.done.done():
            self.done.set_exception(Cancelled())
        return self.done.done()


class Scheduler:
    """The thread of an engine.

    Args:
        load: makes the engine, in that thread, as lazy arrays of MLX belong to one.
        batch: most chunks in a batch.
        batch_frames: most mel frames in a batch, padding included.
        on_batch: told the number of chunks of each call that samples.
    """

    def __init__(
        self,
        load: Callable[[], Engine],
        batch: int = 1,
        batch_frames: int = 8192,
        on_batch: Callable[[int], None] = lambda size: None,
    ):
        self.batch, self.batch_frames, self.on_batch = batch, batch_frames, on_batch
        self.calls: list[Call] = []
        self.tickets: set[Ticket] = set()
        self.changed = Condition()
        self.frames = 0  # of the ticket that was served last, before that
        self.closed = False
        self.thread = Thread(target=self._work, name="nanospeech-engine", daemon=True)
        self.thread.start()
        self.engine: Engine = self._wait(Call(Ticket(), load, (), {}))

    def enter(self, alone: bool = True) -> Ticket:
        """A place for a new text: before those that have had a turn, behind other new ones."""
        with self.changed:
            ticket = Ticket(alone, self.frames)
            self.tickets.add(ticket)
            return ticket

    def leave(self, ticket: Ticket) -> None:
        """Gives a place up; what still runs for it ends after the solver's step."""
        with self.changed:
            ticket.cancelled = True
            self.tickets.discard(ticket)
            self.calls = [call for call in self.calls if not call.fail_if_cancelled()]

    def use(self, ticket: Ticket, engine: Engine | None = None) -> Any:
        """The engine, or one of its voices' engines, as a ticket's holder may use it."""
        return Turns(self, engine or self.engine, ticket)

    def close(self) -> None:
        """Ends all work, and the thread."""
        for ticket in list(self.tickets):
            self.leave(ticket)
        with self.changed:
            self.closed = True
            self.changed.notify_all()

    def _wait(self, call: Call) -> Any:
        with self.changed:
            if call.ticket.cancelled or self.closed:
                raise Cancelled
            if call.frames:  # turns are not saved up by who lets others go before
                call.ticket.frames = max(call.ticket.frames, self.frames)
            self.calls.append(call)
            self.changed.notify_all()
        return call.done.result()

    def _work(self) -> None:
        while True:
            with self.changed:
                while not self.calls and not self.closed:
                    self.changed.wait()
                if self.batch > 1 and not self.closed:
                    self._gather()
                if self.closed:
                    return
                if not self.calls:  # cancelled meanwhile
                    continue
                taken = self._take()
            self._do(taken)
            del taken  # its arrays are not kept

    def _gather(self) -> None:
        """Waits for a moment, so that chunks of texts that are not far apart share a batch."""
        until = time.monotonic() + GATHER
        while self.calls and not self.closed and all(call.frames for call in self.calls):
            first = min(self.calls, key=lambda call: call.order)
            here = [call.ticket for call in self.calls]
            missing = [t for t in self.tickets if not t.alone and t not in here]
            left = until - time.monotonic()
            if first.ticket.alone or not missing or len(here) >= self.batch or left <= 0:
                return
            self.changed.wait(left)

    def _take(self) -> list[Call]:
        """The calls to do next; several only if they make one batch.

        What is not sampled comes first, such as decoding: it takes little, and brings a chunk that
        was paid for to its listener.
        """
        first, *others = sorted(self.calls, key=lambda call: call.order)
        taken, longest = [first], first.frames
        for call in others:
            if len(taken) >= self.batch or not first.batches_with(call):
                continue
            most = max(longest, call.frames)
            if most * (len(taken) + 1) <= self.batch_frames:
                taken.append(call)
                longest = most
        self.calls = [call for call in self.calls if call not in taken]
        if first.frames:
            self.frames = first.ticket.frames
        for call in taken:
            call.ticket.frames += call.frames
            call.ticket.begun = call.ticket.begun or call.frames > 0
        return taken

    def _do(self, calls: list[Call]) -> None:
        try:
            if calls[0].frames:
                self.on_batch(len(calls))
                results = sample_together(calls)
            else:
                results = [calls[0].method(*calls[0].args, **calls[0].options)]
        except BaseException as e:
            for call in calls:
                if not call.fail_if_cancelled():
                    call.done.set_exception(e)
            return
        for call, result in zip(calls, results):
            if not call.fail_if_cancelled():
                call.done.set_result(result)


def sample_together(calls: list[Call]) -> list[np.ndarray]:
    """Engine.sample for several calls of one item each, as one batch.

    An item's result does not depend on the others but for rounding, as padding is masked. The work
    of a batch ends when all its calls are cancelled.

    Raises:
        Cancelled: nobody waits for any of them.
    """
    noises, conds, texts, options = zip(*(call.args for call in calls))

    def on_step(done: int, steps: int) -> None:
        if all([call.fail_if_cancelled() for call in calls]):
            raise Cancelled
        for call in calls:
            heard = call.options.get("on_step")
            if heard is not None and not call.done.done():
                heard(done, steps)

    # of models of latents the prompts have a length of their own, and no tokens
    names = calls[0].options.keys() - {"on_step"}
    each = {name: np.concatenate([call.options[name] for call in calls]) for name in names}
    joined = padded(noises), padded(conds), pad_tokens([row for text in texts for row in text])
    mels = calls[0].method(*joined, options[0], **each, on_step=on_step)
    return [mel[None, : noise.shape[1]] for mel, noise in zip(mels, noises)]


def padded(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Arrays (1, n, M) as one, with zeros behind the shorter ones."""
    longest = max(x.shape[1] for x in arrays)
    return np.concatenate([np.pad(x, ((0, 0), (0, longest - x.shape[1]), (0, 0))) for x in arrays])


class Turns:
    """An engine whose calls wait for their turn; a Speaker takes it for one.

    Args:
        scheduler: of the engine.
        engine: whose methods are called.
        ticket: of the text.
    """

    def __init__(self, scheduler: Scheduler, engine: Engine, ticket: Ticket):
        self._scheduler, self._engine, self._ticket = scheduler, engine, ticket

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        value = getattr(self._engine, name)
        if not inspect.ismethod(value):
            return value

        def call(*args: Any, **options: Any) -> Any:
            result = self._scheduler._wait(Call(self._ticket, value, args, options))
            return self._scheduler.use(self._ticket, result) if name == "with_voice" else result

        return call
