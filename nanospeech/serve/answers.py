"""Answers of speech: bytes as they are made, server-sent events, or one object with word times."""

from __future__ import annotations

import asyncio
import json
import logging
from base64 import b64encode
from collections.abc import AsyncIterator, Iterable
from functools import partial
from typing import Any
from urllib.parse import quote

from nanospeech.speech.chunks import Word

from .encoders import FORMATS, encode, encode_whole
from .errors import ApiError, Broken
from .request import SpeechRequest
from .service import Sound, Speech, SpeechService

log = logging.getLogger("nanospeech.serve")
HEADER_BYTES = 1024  # of the words that were left out: proxies take headers of 4 KiB in all


async def speech_answer(service: SpeechService, wanted: SpeechRequest) -> Any:
    """The response to POST /v1/audio/speech; it waits for the first sound.

    Raises:
        ApiError: the text cannot be spoken, before any byte is sent.
    """
    rate = service.sample_rate
    if wanted.format == "json":
        make = partial(encode_whole, name="wav", rate=rate)
    else:
        make = partial(encode_whole if wanted.wish.whole else encode, name=wanted.format, rate=rate)
    speech = service.speak(wanted.text, wanted.wish, make)
    return SpeechAnswer(speech, wanted)


class SpeechAnswer:
    """An ASGI response that is made while it is sent.

    The work ends when the client leaves, and the connection is cut when the work fails.
    """

    def __init__(self, speech: Speech, wanted: SpeechRequest):
        self.speech, self.wanted = speech, wanted

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        gone = asyncio.ensure_future(disconnected(receive))
        sending = asyncio.ensure_future(self._send(send))
        try:
            await asyncio.wait({gone, sending}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            self.speech.cancel()
            for task in (gone, sending):
                task.cancel()
            await asyncio.gather(gone, sending, return_exceptions=True)

    async def _send(self, send: Any) -> None:
        first = await anext_or(
            self.speech, Sound(b"", ())
        )  # errors of the text come here, before any byte
        start = {"type": "http.response.start", "status": 200}
        words = [*first.words]
        at_once = self.wanted.wish.whole and not self.wanted.events
        if at_once:
            async for sound in self.speech:  # its end: before that it counts as cancelled
                words += sound.words
        if self.wanted.format == "json":
            body = json.dumps(self._object(first.data, words)).encode()
            await whole(send, start, b"application/json", body)
            return
        media = FORMATS[self.wanted.format].media.encode()
        told = [(b"x-seed", str(self.speech.seed).encode())]
        if left_out := self.speech.left_out.named():
            told.append((b"x-left-out", header_of(left_out)))
        if at_once:
            await whole(send, start, media, first.data, *told)
            return
        kind = b"text/event-stream" if self.wanted.events else media
        headers = [(b"content-type", kind), (b"cache-control", b"no-cache"), *told]
        headers.append((b"x-accel-buffering", b"no"))  # nginx would hold the first sound back
        await send({**start, "headers": headers})
        try:
            async for data in self._chunks(first):
                await send({"type": "http.response.body", "body": data, "more_body": True})
        except ApiError as e:
            if not self.wanted.events:
                raise Broken(e.message) from e
            # an end without speech.audio.done does not look complete, and browsers drop what they
            # have not read of a connection that is cut
            log.error("a speech was cut: %s", e.message)
            why = event({"type": "error", **e.body})
            await send({"type": "http.response.body", "body": why, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def _chunks(self, first: Sound) -> AsyncIterator[bytes]:
        if not self.wanted.events:
            yield first.data
            async for sound in self.speech:
                if sound.data:
                    yield sound.data
            return
        yield event(self._delta(first))
        async for sound in self.speech:
            yield event(self._delta(sound))
        told = {"usage": self.speech.usage(), "left_out": list(self.speech.left_out.words)}
        yield event({"type": "speech.audio.done", **told})

    def _delta(self, sound: Sound) -> dict[str, Any]:
        found = {"type": "speech.audio.delta", "audio": b64encode(sound.data).decode()}
        return {**found, "words": times(sound.words)} if self.wanted.wish.words else found

    def _object(self, wav: bytes, words: list[Word]) -> dict[str, Any]:
        return {
            "audio": b64encode(wav).decode(),
            "words": times(words),
            "format": "wav",
            "sample_rate": self.speech.service.sample_rate,
            "seconds": round(self.speech.seconds, 4),
            "seed": self.speech.seed,
            "left_out": list(self.speech.left_out.words),
            "usage": self.speech.usage(),
        }


def header_of(words: Iterable[str]) -> bytes:
    """As many of these words, in URL's escapes, as fit into a header that any client takes."""
    found, size = [], 0
    for word in map(partial(quote, safe=""), words):
        size += len(word) + 1
        if size > HEADER_BYTES:
            break
        found.append(word)
    return " ".join(found).encode()


async def anext_or(speech: Speech, default: Sound) -> Sound:
    """The first item, or a default where there is none."""
    async for item in speech:
        return item
    return default


def times(words: Iterable[Word]) -> list[dict[str, Any]]:
    """Words with their beginnings and ends in seconds, and their places in the text."""
    return [
        {"word": w.text, "start": round(w.start, 3), "end": round(w.end, 3), "place": w.place}
        for w in words
    ]


async def disconnected(receive: Any) -> None:
    """Returns when the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def whole(
    send: Any, start: dict[str, Any], kind: bytes, body: bytes, *more: tuple[bytes, bytes]
) -> None:
    """Sends a response whose length is known."""
    length = (b"content-length", str(len(body)).encode())
    await send({**start, "headers": [(b"content-type", kind), length, *more]})
    await send({"type": "http.response.body", "body": body})


def event(values: dict[str, Any]) -> bytes:
    """A server-sent event."""
    return b"data: " + json.dumps(values).encode() + b"\n\n"
