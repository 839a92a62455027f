"""Speech: a text that is being spoken, from the thread that speaks it to the loop that sends it."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import itertools
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from threading import Semaphore
from typing import Any, NamedTuple, Protocol

import numpy as np

from nanospeech.config import SampleOptions
from nanospeech.engine.base import Engine
from nanospeech.errors import InputError, NanospeechError, VoiceError
from nanospeech.speech.chunks import Word
from nanospeech.speech.script import spoken_text
from nanospeech.speech.speaker import Speaker
from nanospeech.speech.streaming import is_long
from nanospeech.speech.words import Piece
from nanospeech.text.left_out import LeftOut
from nanospeech.text.markup import Marked

from .errors import ApiError, Cancelled, bad
from .metrics import Metrics
from .places import Places
from .settings import Limits
from .turns import Scheduler, Ticket
from .writing import Writing

log = logging.getLogger("nanospeech.serve")
AHEAD = 4  # pieces that are made before a client reads them
END = object()
Encode = Callable[[Iterator[np.ndarray]], Iterator[Any]]


class Sound(NamedTuple):
    """What comes of a text, piece by piece: encoded sound, and the words that end in it."""

    data: Any
    words: tuple[Word, ...]


@dataclass(frozen=True)
class Wish:
    """What a client asks for, but for the text.

    Attributes:
        voice: one of SpeechService.voices() or an alias; None is the default one.
        seed: None draws one. With a seed the same bytes come always: its chunks share no batch.
        lexicon: phonemes by word, over those that the user keeps; never a path.
        words: whether the times of words are wanted.
        language: code of the text's; None is the model's own.
        whole: whether all of it is wanted at once: it is made in the chunks of Speaker.speak(),
            which take less time in all. A long text is made as a stream, which reads it by and by.
    """

    voice: str | None = None
    speed: float = 1.0
    seed: int | None = None
    options: SampleOptions = SampleOptions()
    lexicon: dict[str, str] | None = None
    words: bool = False
    language: str | None = None
    whole: bool = False


class Service(Protocol):
    """What a Speech needs of its SpeechService."""

    limits: Limits
    metrics: Metrics
    scheduler: Scheduler
    places: Places
    engine: Engine

    @property
    def sample_rate(self) -> int: ...

    def speaker(self, wish: Wish, ticket: Ticket) -> Speaker: ...

    def end(self, speech: Speech) -> None: ...

    def sent(self, speech: Speech) -> None: ...


class Speech(AsyncIterator[Sound]):
    """A text that is spoken; an asynchronous iterator of Sounds.

    Who leaves before its end, or has sent all of it, calls cancel(): the engine is then free after
    the solver's step, and a server that is being stopped waits no longer.
    """

    def __init__(
        self,
        service: Service,
        text: str | Marked | Iterable[str],
        wish: Wish,
        encode: Encode,
    ):
        self.service, self.text, self.wish, self.encode = service, text, wish, encode
        self.began = time.monotonic()  # or when the first words of a Writing came
        self.seconds = 0.0  # of sound
        self.sounds = False  # whether some of it is made
        self.seed = wish.seed
        self.left_out = LeftOut()
        self.waits, self.over = True, False
        self.ends = "cancelled"  # as what it counts where it is ended before its end
        self.idle = isinstance(text, Writing)  # waits for words alone
        self._held = False  # a place among the texts in work
        self._ticket: Ticket | None = None
        self._loop = asyncio.get_running_loop()
        self._items: asyncio.Queue[Any] = asyncio.Queue()
        self._room = Semaphore(AHEAD)
        self._work: Future | None = None

    def begin(self, pool: ThreadPoolExecutor) -> None:
        """Puts it into the queue of the threads."""
        # with the request's id, which the log tells
        self._work = pool.submit(contextvars.copy_context().run, self._speak)
        self._work.add_done_callback(self._done)

    def cancel(self) -> None:
        """Ends the work, and whoever waits for its items; may be called at any time, and again.

        Who has sent all of it calls it, too: the server is not stopped before.
        """
        self.service.sent(self)
        self._leave()

    def _leave(self) -> None:
        if not self.over:
            self.over = True
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._items.put_nowait, Cancelled())
        if self._ticket is not None:
            self.service.scheduler.leave(self._ticket)
        self._room.release()
        if self._work is not None:
            self._work.cancel()
        if isinstance(self.text, Writing):
            self.text.close_now()
        self.service.places.wake()

    def usage(self) -> dict[str, int]:
        """OpenAI's counts: bytes of text in, mel frames of sound out."""
        audio = self.service.engine.config.audio
        given = len(spoken_text(self.text).encode()) if isinstance(self.text, (str, Marked)) else 0
        made = round(self.seconds * audio.frame_rate)
        return {"input_tokens": given, "output_tokens": made, "total_tokens": given + made}

    def _done(self, work: Future) -> None:
        if work.cancelled():  # before a thread had it
            self.service.metrics.ended(self.ends, 0, 0)
        self.service.end(self)

    def fail(self, error: Exception) -> None:
        """Ends it with an error, which its reader has still to send; called in the event loop."""
        self.ends = "failed"
        self._items.put_nowait(error)
        self._leave()

    async def __anext__(self) -> Sound:
        """The next item.

        Raises:
            ApiError: the text cannot be spoken, or its time is over.
            Cancelled: someone has called cancel().
        """
        if self.over and self._items.empty():
            raise Cancelled
        item = await self._next()
        self._room.release()
        if item is END:
            raise StopAsyncIteration
        if isinstance(item, BaseException):
            raise item
        return item

    async def _next(self) -> Any:
        limits = self.service.limits
        while (left := self._left()) > 0:
            # what is encoded as a whole is an item at its end, long after its first sound, and what
            # is still being written may have had more words: there may be more time by then
            with contextlib.suppress(asyncio.TimeoutError):
                return await asyncio.wait_for(self._items.get(), left)
        self.ends = "failed"
        self.cancel()
        most = limits.deadline if self.sounds else limits.start_deadline
        message = f"the speech was not made within {most:g} s; try a shorter text, or later"
        raise ApiError(503, message, "deadline", retry=self.service.metrics.wait(1))

    def _left(self) -> float:
        """Seconds until a deadline; the writer of a text has its own (--idle-deadline)."""
        limits, now = self.service.limits, time.monotonic()
        until = self.began + limits.deadline
        if not self.sounds:
            since = self.began
            if isinstance(self.text, Writing):
                since = now if self.idle else max(since, self.text.since or now)
            until = min(until, since + limits.start_deadline)
        return until - now

    def _put(self, item: Any) -> None:
        """Hands an item over; waits while the client is far behind."""
        self._room.acquire()
        if self.over:
            raise Cancelled
        self._loop.call_soon_threadsafe(self._items.put_nowait, item)

    def _hold(self) -> None:
        """Takes a place among the texts in work."""
        self.idle = False
        if self._held:
            return
        if self.waits:
            self.service.places.take(lambda: self.over)
            self.waits = False
        else:
            self.service.places.take_again()
        self._held = True

    def _release(self) -> None:
        if self._held:
            self._held = False
            self.service.places.give()

    def _parts(self, text: Writing) -> Iterator[str]:
        """Its parts; while it waits for more of them, others have its place."""
        for part in text:
            if self.waits:
                self.began = time.monotonic()
            self._hold()
            yield part
            if not text.ready:
                self.idle = True
                self._release()
        self._hold()

    def _speak(self) -> None:
        """The thread of the text."""
        scheduler, metrics = self.service.scheduler, self.service.metrics
        outcome, text = "ok", self.text
        try:
            if isinstance(text, Writing):
                parts = self._parts(text)
                text = itertools.chain([next(parts, "")], parts)
            else:
                self._hold()
            ticket = self._ticket = scheduler.enter(alone=self.wish.seed is not None)
            if self.over:
                raise Cancelled
            speaker = self.service.speaker(self.wish, ticket)
            self.seed, speaker.left_out = speaker.seed, self.left_out
            early = not self.wish.whole or is_long(text)
            for sound in self._sounds(speaker.pieces(text, None, self._on_step, early)):
                self._put(sound)
            self._put(END)
        except Cancelled:
            outcome = self.ends
        except (ApiError, NanospeechError) as e:
            answer = as_answer(e)
            outcome = "refused" if answer.status < 500 else "failed"
            self._end(answer)
        except BaseException:
            outcome = "failed"
            log.exception("speech failed")
            self._end(ApiError(500, "the speech failed; the server's log says why", "internal"))
        finally:
            self._release()
            if self._ticket is not None:
                scheduler.leave(self._ticket)
            metrics.ended(outcome, time.monotonic() - self.began, self.seconds)

    def _on_step(self, done: int, steps: int) -> None:
        """A whole is levelled before any of it is handed on; it sounds when its turn has come."""
        self.sounds = self.sounds or self.wish.whole

    def _end(self, error: Exception) -> None:
        try:
            self._put(error)
        except (Cancelled, RuntimeError):  # nobody waits, or the loop is closed
            pass

    def _sounds(self, pieces: Iterator[Piece]) -> Iterator[Sound]:
        """The encoded pieces, each with the words that were completed by then."""
        words: list[Word] = []

        def waves() -> Iterator[np.ndarray]:
            for wave, said in pieces:
                words.extend(said)
                if not self.seconds:
                    self.service.metrics.first(time.monotonic() - self.began)
                self.sounds = True
                self.seconds += len(wave) / self.service.sample_rate
                if len(wave):
                    yield wave

        for data in self.encode(waves()):
            found, words[:] = tuple(words), ()
            yield Sound(data, found)
        if words:
            yield Sound(b"", tuple(words))


def as_answer(error: Exception) -> ApiError:
    """The answer to a client for an error of ours."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, VoiceError):
        log.error("a voice cannot be spoken: %s", error)
        message = "the voice cannot be spoken; the server's log says why"
        return ApiError(500, message, "internal", "voice")
    if isinstance(error, InputError):
        return bad(str(error), "input")
    log.error("speech failed: %s", error)
    return ApiError(500, "the model cannot speak; the server's log says why", "internal")
