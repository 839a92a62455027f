"""Wyoming over a real socket, read as Home Assistant reads it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from nanospeech.serve.wyoming import listen_wyoming, serve_wyoming
from tests.serve.conftest import Server

pytest.importorskip("wyoming", reason="no wyoming package here")
NOBODY = "nobody"


def talk(server: Server, say: Callable[[Any], Awaitable[Any]]) -> Any:
    """What comes of a client's talk with a server's Wyoming port."""
    from wyoming.client import AsyncTcpClient

    async def both() -> Any:
        listening = listen_wyoming(server.settings, 0)
        port = listening.getsockname()[1]
        serving = asyncio.ensure_future(serve_wyoming(server.service, server.settings, listening))
        try:
            async with AsyncTcpClient("127.0.0.1", port) as client:
                return await asyncio.wait_for(say(client), 20)
        finally:
            serving.cancel()

    return asyncio.run(both())


def test_a_server_that_is_stopped_waits_for_no_client_that_stays(server):
    async def stopped() -> None:
        listening = listen_wyoming(server.settings, 0)
        port = listening.getsockname()[1]
        serving = asyncio.ensure_future(serve_wyoming(server.service, server.settings, listening))
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b'{"type": "ping"}\n')
        assert b"pong" in await asyncio.wait_for(reader.readline(), 10)
        serving.cancel()
        assert await asyncio.wait({serving}, timeout=10) == ({serving}, set())
        with contextlib.suppress(ConnectionError):
            await asyncio.wait_for(reader.read(), 10)  # to the end of the connection
        writer.close()
        with pytest.raises(OSError):
            await asyncio.open_connection("127.0.0.1", port)

    asyncio.run(stopped())


def test_a_client_that_leaves_makes_room_for_another(server):
    async def pings(count: int) -> list[bytes]:
        listening = listen_wyoming(server.settings, 0)
        port = listening.getsockname()[1]
        serving = asyncio.ensure_future(serve_wyoming(server.service, server.settings, listening))
        found = []
        for _ in range(count):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b'{"type": "ping"}\n')
            found.append(await asyncio.wait_for(reader.readline(), 10))
            writer.close()
            await asyncio.sleep(0.02)
        stay = [await asyncio.open_connection("127.0.0.1", port) for _ in range(most)]
        one, _ = await asyncio.open_connection("127.0.0.1", port)
        assert await asyncio.wait_for(one.read(), 10) == b"", "there is room for no more"
        serving.cancel()
        for _, writer in stay:
            writer.close()
        return found

    most = server.settings.limits.sockets
    assert all(asyncio.run(pings(2 * most)))


@pytest.mark.parametrize(
    ("text", "voice", "why"),
    [
        ("\N{PARTY POPPER}", None, "no text to speak"),
        ("...", None, "no text to speak"),
        (None, None, "no text to speak"),
        ("Hello.", NOBODY, NOBODY),
        ("a" * 5000, None, "more than 4096"),
    ],
)
def test_home_assistant_does_not_wait_for_what_cannot_be_spoken(server, text, voice, why):
    from wyoming.tts import Synthesize, SynthesizeVoice

    async def say(client) -> list:
        named = SynthesizeVoice(name=voice) if voice else None
        await client.write_event(Synthesize(text=text, voice=named).event())
        found = []
        while event := await client.read_event():  # it passes errors over
            found.append(event)
            if event.type == "audio-stop":
                break
        return found

    (error,) = talk(server, say)
    assert error.type == "error" and why in error.data["text"]


def test_a_text_that_grows_too_long_is_refused_once_and_logged(serve, caplog):
    from wyoming.tts import SynthesizeChunk, SynthesizeStart, SynthesizeStop

    async def say(client) -> list[str]:
        parts = [SynthesizeChunk(text=text) for text in ("Hello. ", "abc " * 10, "So ", "on.")]
        for event in (SynthesizeStart(), *parts, SynthesizeStop()):
            await client.write_event(event.event())
        found: list[str] = []
        while found[-1:] != ["synthesize-stopped"]:
            found.append((await client.read_event()).type)
        return found

    with serve({"max_chars": 40}) as server:
        told = [kind for kind in talk(server, say) if kind != "audio-chunk"]
    assert sorted(told) == ["audio-start", "audio-stop", "error", "synthesize-stopped"]
    (line,) = (r.message for r in caplog.records if r.name == "nanospeech.serve")
    assert "not spoken to its end: the text has more than 40 characters" in line


@pytest.mark.parametrize(
    "sent",
    [
        b"[" * 50_000,
        b"\xff\xfe",
        b"[1]",
        b'{"type": 1}',
        rb'{"type": "ping", "data_length": "1\n\u001b]0;title\u0007"}',
    ],
)
def test_what_is_no_event_ends_the_connection_with_a_line_in_the_log(server, sent, caplog):
    async def answered() -> bytes:
        listening = listen_wyoming(server.settings, 0)
        serving = asyncio.ensure_future(serve_wyoming(server.service, server.settings, listening))
        reader, writer = await asyncio.open_connection(*listening.getsockname())
        writer.write(sent + b"\n")
        found = await asyncio.wait_for(reader.read(), 10)
        writer.close()
        serving.cancel()
        return found

    assert asyncio.run(answered()) == b""
    (line,) = caplog.messages
    assert line.startswith("a Wyoming client sent what cannot be") and line.isprintable()


@pytest.mark.parametrize(("code", "told"), [("de", "de"), ("", "en"), ("und", "en")])
def test_voices_are_announced_in_the_language_of_the_model(
    serve, tiny_aligned, tmp_path, code, told
):
    from wyoming.info import Describe, Info

    release = shutil.copytree(tiny_aligned, tmp_path / "release")
    config = json.loads((release / "config.json").read_text(encoding="utf-8"))
    config["language"] = code
    (release / "config.json").write_text(json.dumps(config), encoding="utf-8")

    async def say(client) -> Info:
        await client.write_event(Describe().event())
        return Info.from_event(await client.read_event())

    with serve(release=release) as server:
        (program,) = talk(server, say).tts
    assert {tuple(voice.languages) for voice in program.voices} == {(told,)}
