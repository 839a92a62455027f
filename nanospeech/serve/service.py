"""Service: texts in, speech out, for any number of clients at once. Knows no network.

HTTP, WebSocket, Wyoming and Ray Serve use the same one. A text has a thread of its own, which
normalises, joins and encodes; the engine is used by turns (turns.py).
"""

from __future__ import annotations

import asyncio
import copy
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Lock
from weakref import WeakSet

from nanospeech.audio.loudness import Leveller
from nanospeech.config import SampleOptions
from nanospeech.engine.base import Engine
from nanospeech.errors import InputError, VoiceError
from nanospeech.release.user_lexicon import open_lexicon, tokenizer_of
from nanospeech.speech.beginning import choose_first
from nanospeech.speech.speaker import Speaker
from nanospeech.speech.words import choose_aligner
from nanospeech.text.markup import Marked

from .errors import ApiError, bad
from .metrics import Metrics
from .places import Places
from .settings import Limits
from .speech import Encode, Speech, Wish
from .speech import Sound as Sound
from .turns import Scheduler, Ticket
from .voices import Voices, recorded
from .writing import Writing

log = logging.getLogger("nanospeech.serve")
PROMPTS = 16  # voices that are kept ready
LAST_WORD = 2.0  # seconds that clients are given to be told that their text was ended


class SpeechService(Voices):
    """A warm engine that many clients use at once.

    Args:
        load: makes the engine, for example `lambda: load_engine()`; it is called in the engine's
            thread, and its exceptions are raised here.
        limits: texts at once, texts that wait, chunks in a batch.
    """

    def __init__(self, load: Callable[[], Engine], limits: Limits = Limits()):
        self.limits, self.metrics = limits, Metrics()
        self.scheduler = Scheduler(load, limits.batch, limits.batch_frames, self.metrics.batched)
        self.engine = self.scheduler.engine
        self.created = int(time.time())
        self.ready = self.draining = False
        self._speakers: OrderedDict[tuple[str, tuple[int, ...]], Speaker] = OrderedDict()
        self._lock = Lock()
        self._open: set[Speech] = set()
        self._unsent: WeakSet[Speech] = WeakSet()  # until whoever reads them calls cancel()
        self.places = Places(limits.active)
        self._pool = ThreadPoolExecutor(limits.active, "nanospeech-text")
        # texts that are still being written wait for words in threads of their own
        self._writers = ThreadPoolExecutor(2 * limits.sockets, "nanospeech-writing")
        self.metrics.watch(lambda: len(self._open))

    @property
    def model(self) -> str:
        """The model's name."""
        return self.engine.config.name

    @property
    def sample_rate(self) -> int:
        return self.engine.config.audio.sample_rate

    @property
    def open(self) -> int:
        """Texts that are spoken or wait, for others or for words."""
        return len(self._open)

    def warm(self) -> None:
        """Speaks a word with the default voice, so that the first client waits for nothing."""
        steps = None if self.engine.config.student else 1  # of the network that will speak
        ticket, once = self.scheduler.enter(), Wish(seed=0, options=SampleOptions(steps=steps))
        try:
            for _ in self.speaker(once, ticket).stream("Hello there, hello."):
                pass
        finally:
            self.scheduler.leave(ticket)
        self.ready = True

    def speaker(self, wish: Wish, ticket: Ticket) -> Speaker:
        """A Speaker for a wish, whose engine is used by turns."""
        name = self.find(wish.voice)
        key = name, recorded(name)
        with self._lock:
            kept = self._speakers.get(key)
        if kept is None:
            try:
                kept = Speaker(self.scheduler.use(ticket), name, seed=0)
            except InputError as e:
                self.find(name)  # which refuses one that was removed since
                raise VoiceError(str(e)) from e
            kept.first = choose_first(kept.engine, kept.prompt, self.limits.first_steps)
            kept.engine = kept.engine._engine
            with self._lock:
                self._speakers[key] = kept
                while len(self._speakers) > PROMPTS:
                    self._speakers.popitem(last=False)
        found = copy.copy(kept)
        found.engine = self.scheduler.use(ticket, kept.engine)
        found.use(wish.options)
        found.speed = wish.speed
        found.chunk_seconds = self.limits.chunk_seconds
        found.seed = secrets.randbits(31) if wish.seed is None else wish.seed
        found.output = replace(found.output, lexicon=wish.lexicon, language=wish.language)
        try:  # the owner's words are read for each text, as they may change at any time
            own = found.engine.tokenizer
            found.tokenizer = tokenizer_of(own, wish.lexicon or None, wish.language)
        except InputError as e:
            check_own_lexicon()
            raise bad(str(e)[:500], "lexicon") from None
        found.aligner = choose_aligner(found.engine) if wish.words else None
        loudness = found.prompt.settings.loudness
        found.level = Leveller(found.sample_rate, found.output.loudness, loudness)
        return found

    def speak(
        self,
        text: str | Marked | Iterable[str],
        wish: Wish = Wish(),
        encode: Encode = iter,
    ) -> Speech:
        """Takes a text; call it in an event loop.

        Args:
            text: what to say, or an iterable of its parts, which is read in the text's own thread.
                A Writing takes no place from others while it waits for words.
            wish: how.
            encode: makes of the waves what the Speech yields, as Sounds; it runs in that thread.

        Raises:
            ApiError: an unknown voice, or more texts than may wait (429).
        """
        wish = replace(wish, voice=self.find(wish.voice))
        if self.draining:
            raise ApiError(503, "the server is being stopped; try again", "stopping", retry=1)
        if not self.ready:
            raise ApiError(503, "the model is being loaded; try again", "loading", retry=1)
        busy = sum(not speech.idle for speech in list(self._open))
        if busy >= self.limits.active + self.limits.queue:
            seconds = self.metrics.wait(busy)
            message = f"{busy} texts are waiting; try again in {seconds} s"
            self.metrics.ended("refused", 0, 0)
            raise ApiError(429, message, "queue_full", retry=seconds)
        speech = Speech(self, text, wish, encode)
        self._open.add(speech)
        self._unsent.add(speech)
        speech.begin(self._writers if isinstance(text, Writing) else self._pool)
        return speech

    def end(self, speech: Speech) -> None:
        """Frees the place of a text; called by it."""
        self._open.discard(speech)

    def sent(self, speech: Speech) -> None:
        """Waits no longer for the reader of a text; called by it."""
        self._unsent.discard(speech)

    async def drain(self, seconds: float) -> None:
        """Takes no more texts; what waits is refused, what runs may end within so many seconds.

        It is over when all is sent, which takes its reader longer than it took the engine.
        """
        self.draining = True
        for speech in list(self._open):
            if speech.waits:
                speech.fail(ApiError(503, "the server is being stopped", "stopping", retry=1))
        until = time.monotonic() + seconds
        while (self._open or self._unsent) and time.monotonic() < until:
            await asyncio.sleep(0.05)
        for speech in {*self._open, *self._unsent}:
            speech.fail(ApiError(503, "the server was stopped", "stopping", retry=1))
        until = time.monotonic() + LAST_WORD
        while self._unsent and time.monotonic() < until:
            await asyncio.sleep(0.02)

    def close(self) -> None:
        """Ends all work and the threads."""
        self.draining = True
        for speech in list(self._open):
            speech.cancel()
        self.scheduler.close()
        for pool in (self._pool, self._writers):
            pool.shutdown(wait=False, cancel_futures=True)


def check_own_lexicon() -> None:
    """Reads the words that the server's owner keeps; what is wrong with them is no client's affair.

    Raises:
        ApiError: they cannot be read.
    """
    try:
        open_lexicon(None)
    except InputError as e:
        log.error("the lexicon cannot be read: %s", e)
        message = "the server's own lexicon cannot be read; its log says why"
        raise ApiError(500, message, "internal", "lexicon") from None
