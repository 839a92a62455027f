"""Wyoming: Home Assistant's protocol over TCP; a service of speech for it.

A client streams its text (synthesize-start, synthesize-chunk, synthesize-stop, with the whole text
in synthesize before the end, for servers that do not stream), or sends synthesize alone. An error
of the latter ends the connection, as it does with Wyoming's own servers: Home Assistant waits for
the end of the sound, or of the connection, whatever else it is told.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from typing import Any

from nanospeech.audio.sinks import pcm16
from nanospeech.errors import InputError, require
from nanospeech.text.languages import NONE, base_code

from .errors import ApiError, Cancelled
from .run import listen
from .service import Speech, SpeechService, Wish
from .settings import ServeSettings, is_loopback
from .writing import Writing

log = logging.getLogger("nanospeech.serve")
LINE = 65_536  # bytes of an event's first line
SAMPLES = 2048  # of a message of sound


def listen_wyoming(settings: ServeSettings, port: int) -> socket.socket:
    """A listening socket for serve_wyoming, at the server's address.

    Args:
        port: 0 takes a free one.

    Raises:
        InputError: other machines can reach the address, and no one waived a token, which the
            protocol does not know; or the address cannot be had.
    """
    require("wyoming", "wyoming")
    if not is_loopback(settings.host) and not settings.insecure:
        raise InputError(
            f"Wyoming has no tokens, and {settings.host} can be reached from other machines; allow"
            " that by --insecure"
        )
    if not 0 <= port <= 65_535:
        raise InputError(f"the port of Wyoming is {port}; choose 0 (a free one) to 65535")
    return listen(settings.host, port, "--wyoming")


async def serve_wyoming(
    service: SpeechService, settings: ServeSettings, listening: socket.socket
) -> None:
    """Serves until it is cancelled.

    Args:
        listening: of listen_wyoming().
    """
    clients: set[asyncio.StreamWriter] = set()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(clients) >= settings.limits.sockets:
            writer.close()
            return
        clients.add(writer)
        try:
            await Talk(service, settings, reader, writer).run()
        except (ConnectionError, asyncio.TimeoutError, asyncio.IncompleteReadError):
            pass
        except (ValueError, RecursionError) as e:
            log.warning("a Wyoming client sent what cannot be: %s", str(e)[:200])
        finally:
            clients.discard(writer)
            writer.transport.abort()

    server = await asyncio.start_server(talk, sock=listening, limit=LINE)
    try:
        await asyncio.get_running_loop().create_future()  # until it is cancelled
    finally:  # not by serve_forever(), which from Python 3.12 on waits until all clients have left
        server.close()
        for writer in clients:
            writer.transport.abort()


class Talk:
    """One connection."""

    def __init__(
        self,
        service: SpeechService,
        settings: ServeSettings,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ):
        self.service, self.limits = service, settings.limits
        self.reader, self.writer = reader, writer
        self.writing: Writing | None = None
        self.speech: Speech | None = None
        self.sender: asyncio.Task | None = None
        self.coming: asyncio.Task | None = None  # the next event

    async def run(self) -> None:
        """Reads events until the client leaves, one ahead of what is done, to see it leave."""
        try:
            self.coming = asyncio.ensure_future(self._read())
            while (event := await self.coming) is not None:
                self.coming = asyncio.ensure_future(self._read())
                await self._act(event)
        finally:
            if self.coming is not None:
                self.coming.cancel()
            if self.speech is not None:
                self.speech.cancel()
            if self.sender is not None:
                self.sender.cancel()

    async def _read(self) -> Any:
        """The next event; None at the end. The package's own reader takes events of any size."""
        from wyoming.event import Event

        line = await self._line()
        if not line:
            return None
        head = json.loads(line)
        if not isinstance(head, dict) or not isinstance(head.get("type"), str):
            raise ValueError("no event")
        data = head.get("data") or {}
        parts = []
        for name in ("data_length", "payload_length"):
            size = head.get(name) or 0
            if not isinstance(size, int) or not 0 <= size <= self.limits.body:
                raise ValueError(f"{name} is {ascii(size)[:40]}")
            wait = self.limits.body_deadline
            parts.append(await asyncio.wait_for(self.reader.readexactly(size), wait))
        more = json.loads(parts[0]) if parts[0] else {}
        if not isinstance(data, dict) or not isinstance(more, dict):
            raise ValueError("data that are no object")
        return Event(head["type"], {**data, **more})

    async def _line(self) -> bytes:
        """The next event's first line; empty for a client that is silent.

        It may be while it hears a text that it has ended.
        """
        reading = asyncio.ensure_future(self.reader.readline())
        try:
            while not reading.done():
                await asyncio.wait({reading}, timeout=self.limits.idle_deadline)
                writes = self.writing is not None and not self.writing.ended
                if not reading.done() and (self.sender is None or self.sender.done() or writes):
                    return b""
            return reading.result()
        finally:
            reading.cancel()

    async def _write(self, event: Any) -> None:
        from wyoming.event import async_write_event

        wait = self.limits.idle_deadline
        await asyncio.wait_for(async_write_event(event, self.writer), wait)

    async def _act(self, event: Any) -> None:
        kind, data = event.type, event.data
        if kind == "describe":
            await self._write(describe(self.service).event())
        elif kind == "ping":
            from wyoming.ping import Pong

            await self._write(Pong(text=data.get("text")).event())
        elif kind == "synthesize-start":
            if self.writing is not None:  # a text that the client has left without its end
                self.writing.end()
            await self._finished()
            self.writing = Writing(self.limits.max_chars)
            await self._speak(self.writing, data, streams=True)
        elif kind == "synthesize-chunk" and self.writing is not None:
            try:
                self.writing.add(text_of(data))
            except ApiError as e:  # what fits is spoken, and the rest told once, not by the word
                self.writing.end()
                log.warning("a Wyoming client's text is not spoken to its end: %s", e.message)
                await self._refuse(e)
        elif kind == "synthesize" and self.writing is None:
            await self._finished()
            await self._speak(text_of(data), data, streams=False)
        elif kind == "synthesize-stop" and self.writing is not None:
            self.writing.end()
            await self._finished()
            self.writing = None

    async def _finished(self) -> None:
        """Waits for what is being spoken; ends it where the client leaves."""
        if self.sender is None:
            return
        assert self.coming is not None
        await asyncio.wait({self.sender, self.coming}, return_when=asyncio.FIRST_COMPLETED)
        if not self.sender.done() and left(self.coming) and self.speech is not None:
            self.speech.cancel()
        await self.sender

    async def _speak(self, text: Any, data: dict[str, Any], streams: bool) -> None:
        voice = data.get("voice")
        name = voice.get("name") if isinstance(voice, dict) else None
        try:
            if isinstance(text, str) and len(text) > self.limits.max_chars:
                message = f"the text has more than {self.limits.max_chars} characters"
                raise ApiError(400, message, "string_above_max_length")
            self.speech = self.service.speak(text, Wish(name if isinstance(name, str) else None))
        except ApiError as e:
            await self._fail(e, False, streams)
            return
        self.sender = asyncio.ensure_future(self._send(self.speech, streams))

    async def _send(self, speech: Speech, streams: bool) -> None:
        from wyoming.audio import AudioChunk, AudioStart

        form = {"rate": self.service.sample_rate, "width": 2, "channels": 1}
        began = False
        try:
            async for sound in speech:
                if not began:
                    began = True
                    await self._write(AudioStart(**form).event())
                sent = pcm16(sound.data)
                for at in range(0, len(sent), 2 * SAMPLES):
                    await self._write(AudioChunk(audio=sent[at : at + 2 * SAMPLES], **form).event())
            await self._end(began, streams)
        except ApiError as e:
            await self._fail(e, began, streams)
        except Cancelled:
            pass
        finally:
            speech.cancel()

    async def _refuse(self, e: ApiError) -> None:
        from wyoming.error import Error

        await self._write(Error(text=e.message, code=e.code).event())

    async def _fail(self, e: ApiError, began: bool, streams: bool) -> None:
        """Ends a text with an error: what is sent of it does not look complete."""
        await self._refuse(e)
        if streams:
            await self._end(began, streams)
        else:
            self.writer.close()

    async def _end(self, began: bool, streams: bool) -> None:
        from wyoming.audio import AudioStop
        from wyoming.tts import SynthesizeStopped

        if began:
            await self._write(AudioStop().event())
        if streams:
            await self._write(SynthesizeStopped().event())


def text_of(data: dict[str, Any]) -> str:
    """The text of an event; empty where it is no string, as null."""
    text = data.get("text")
    return text if isinstance(text, str) else ""


def left(coming: asyncio.Task) -> bool:
    """Whether a client has left, by its next event."""
    return coming.cancelled() or coming.exception() is not None or coming.result() is None


def describe(service: SpeechService) -> Any:
    """What Home Assistant asks a server for: its voices, and that it streams."""
    from wyoming.info import Attribution, Info, TtsProgram, TtsVoice

    maker = Attribution("nanospeech", "https://pypi.org/project/nanospeech-tts")
    more = {"attribution": maker, "installed": True, "version": None}
    first = service.default()
    names = [first, *(name for name in service.voices() if name != first)]
    known = service.engine.config.language
    spoken = [base_code(known) if known not in ("", NONE) else "en"]
    voices = [TtsVoice(name=n, description=n, languages=spoken, **more) for n in names]
    about = f"{service.model}, spoken by nanospeech"
    program = TtsProgram(
        name="nanospeech",
        description=about,
        voices=voices,
        supports_synthesize_streaming=True,
        **more,
    )
    return Info(tts=[program])
