"""WebSocket /v1/audio/stream: text that is still being written in, sound out.

A client sends {"type": "start", ...}, {"type": "text", "text": ...} as it is written, and
{"type": "end"}, or {"type": "cancel"}; then it may start again. It gets {"type": "started"},
sound as binary messages, {"type": "words", ...} with timestamps, and {"type": "done"}, "cancelled"
or "error". What it sends of a text that is over meanwhile, or was refused, is no error: it cannot
know yet.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from functools import partial
from typing import Any

from .answers import times
from .encoders import check_format, encode
from .errors import ApiError, Cancelled, bad
from .request import check_model, flag, format_of, read_json, read_wish
from .service import Speech, SpeechService
from .settings import ServeSettings
from .writing import Writing

STREAMED = ("pcm", "wav", "mp3", "opus", "aac")


class Sockets:
    """Answers WebSockets."""

    def __init__(self, service: SpeechService, settings: ServeSettings):
        self.service, self.settings, self.open = service, settings, 0

    async def answer(self, socket: Any) -> None:
        """A connection, from its beginning to its end."""
        if self.open >= self.settings.limits.sockets:
            await socket.close(1013, "too many connections")
            return
        self.open += 1
        try:
            await socket.accept()
            await Talk(self.service, self.settings, socket).run()
        finally:
            self.open -= 1


class Talk:
    """One connection."""

    def __init__(self, service: SpeechService, settings: ServeSettings, socket: Any):
        self.service, self.settings, self.socket = service, settings, socket
        self.admitted = settings.token is None
        self.started = False
        self.text: Writing | None = None
        self.speech: Speech | None = None
        self.sender: asyncio.Task | None = None

    async def run(self) -> None:
        """Reads messages until the client leaves, or is silent for too long."""
        from starlette.websockets import WebSocketDisconnect

        limits = self.settings.limits
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):
            try:
                while True:
                    known = limits.idle_deadline if self.admitted else limits.header_deadline
                    message = await self._receive(known)
                    await self._act(message)
            except ApiError as e:
                await self.socket.send_json({"type": "error", **e.body})
                await self.socket.close(1008)
            finally:
                await self._stop()

    async def _receive(self, idle: float) -> dict[str, Any]:
        """The next message; while sound is made the client need not write."""
        from starlette.websockets import WebSocketDisconnect

        while True:
            try:
                raw = await asyncio.wait_for(self.socket.receive(), idle)
                break
            except asyncio.TimeoutError:
                if self.sender is not None and self.text is not None and self.text.ended:
                    continue
                raise ApiError(408, f"no message within {idle:g} s", "idle_deadline") from None
        if raw["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(raw.get("code", 1000))
        body = raw.get("text")
        if body is None:
            raise bad("messages should be JSON text, not bytes", code="invalid_json")
        return read_json(body.encode("utf-8", "replace"))

    async def _act(self, message: dict[str, Any]) -> None:
        kind = message.get("type")
        if kind == "start":
            self._admit(message)
            if self.text is not None and not self.text.ended:  # to which its words would be added
                raise bad("a text is being written; send end or cancel before start", "type")
            self.started = True
            await self._try(self._start(message))
        elif kind in ("text", "end", "cancel") and not self.started:
            raise bad(f"{kind} before start", "type")
        elif kind == "text":
            await self._try(self._add(message))
        elif kind == "end":
            if self.text is not None:
                self.text.end()
        elif kind == "cancel":
            await self._stop()
            await self.socket.send_json({"type": "cancelled"})
        else:
            raise bad("type should be start, text, end or cancel", "type")

    async def _try(self, doing: Coroutine[Any, Any, None]) -> None:
        """Errors of a text are messages, and the connection stays."""
        try:
            await doing
        except ApiError as e:
            await self.socket.send_json({"type": "error", **e.body})

    async def _add(self, message: dict[str, Any]) -> None:
        text = message.get("text")
        try:
            if not isinstance(text, str):
                raise bad("text should be a string", "text")
            if self.text is not None:
                self.text.add(text)
        except ApiError:
            await self._stop()  # rather than to speak it with a part missing
            raise

    def _admit(self, message: dict[str, Any]) -> None:
        """
        Raises:
            ApiError: the token is wrong, or not there.
        """
        if self.admitted:
            return
        import hmac

        given, wanted = message.get("token"), (self.settings.token or "").encode()
        sent = self.socket.headers.get("authorization", "").partition(" ")[2]
        given = given if isinstance(given, str) else sent
        if not hmac.compare_digest(given.encode("utf-8", "replace"), wanted):
            raise ApiError(401, "send the token as token of start", "invalid_api_key")
        self.admitted = True

    async def _start(self, message: dict[str, Any]) -> None:
        if self.sender is not None and not self.sender.done():
            raise bad("a text is being spoken; send cancel, or wait for done", "type")
        if (model := message.get("model")) is not None:
            check_model(model, self.service)
        name = format_of(message, "pcm")
        if name not in STREAMED:
            raise bad(f"response_format should be of {', '.join(STREAMED)}", "response_format")
        check_format(name, self.service.sample_rate)
        for field in ("markup", "ssml"):
            if flag(message, field, False):
                raise bad(f"{field} is read in whole texts alone: POST /v1/audio/speech", field)
        wish = read_wish(message, self.service)
        text = Writing(self.settings.limits.max_chars)
        make = partial(encode, name=name, rate=self.service.sample_rate)
        self.speech = self.service.speak(text, wish, make)
        self.text = text
        told = {"format": name, "sample_rate": self.service.sample_rate, "voice": wish.voice}
        await self.socket.send_json({"type": "started", **told})
        self.sender = asyncio.ensure_future(self._send(self.speech))

    async def _send(self, speech: Speech) -> None:
        """Sends what is made; errors of the text are messages, and the connection stays."""
        from starlette.websockets import WebSocketDisconnect

        # closed, or cancelled meanwhile
        with contextlib.suppress(RuntimeError, Cancelled, WebSocketDisconnect):
            try:
                async for sound in speech:
                    if sound.data:
                        await self.socket.send_bytes(sound.data)
                    if sound.words:
                        told = {"type": "words", "words": times(sound.words)}
                        await self.socket.send_json(told)
            except ApiError as e:
                await self.socket.send_json({"type": "error", **e.body})
            else:
                told = {"seconds": round(speech.seconds, 4), "seed": speech.seed}
                told["left_out"] = list(speech.left_out.words)
                await self.socket.send_json({"type": "done", **told})
            finally:
                speech.cancel()
                self.text = None

    async def _stop(self) -> None:
        """Ends what is spoken."""
        if self.speech is not None:
            self.speech.cancel()
        if self.sender is not None:
            self.sender.cancel()
            await asyncio.gather(self.sender, return_exceptions=True)
        self.text = self.speech = self.sender = None
