"""Texts that are still being written: whom they keep waiting, and for how long they may last."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from tests.serve.conftest import TEXT, Server, speech
from tests.serve.test_limits import bound_as, request, settled
from tests.serve.test_readers import eventually, narrow

HALF = 60  # characters: a sentence, which is spoken, and some of the next


class Client:
    """A WebSocket's client."""

    def __init__(self, socket: Any):
        self.socket = socket
        self.sound = b""

    async def send(self, kind: str, **more) -> None:
        await self.socket.send(json.dumps({"type": kind, **more}))

    async def told(self) -> dict[str, Any]:
        """The next message that is no sound."""
        while isinstance(message := await asyncio.wait_for(self.socket.recv(), 20), bytes):
            self.sound += message
        return json.loads(message)

    async def speak(self, text: Any, **more) -> None:
        """Sends all of a text, whatever is answered."""
        await self.send("start", **more)
        await self.send("text", text=text)
        await self.send("end")

    async def start(self, **more) -> None:
        await self.send("start", **more)
        assert (await self.told())["type"] == "started"


def talk(server: Server, say: Callable[[Client], Awaitable[Any]]) -> Any:
    """What comes of a client's talk with a server."""
    from websockets.asyncio.client import connect

    async def both() -> Any:
        url = server.url.replace("http", "ws") + "/v1/audio/stream"
        async with connect(url) as socket:
            return await say(Client(socket))

    return asyncio.run(both())


@pytest.fixture(scope="module")
def single(serve):
    """A server that works at one text, while one waits."""
    with serve({"active": 1, "queue": 1}) as found:
        yield found


@pytest.fixture(scope="module")
def brief(serve):
    """A server that has little time until the first sound."""
    with serve({"start_deadline": 1.5}) as found:
        yield found


def test_a_text_that_waits_for_words_keeps_nobody_waiting(single):
    async def posted() -> None:
        answer = await asyncio.to_thread(speech, single, input="Hi there.")
        assert answer.status_code == 200, answer.text

    async def say(client: Client) -> None:
        await client.start(seed=3)
        await posted()
        await client.send("text", text=TEXT[:HALF])
        client.sound += await asyncio.wait_for(client.socket.recv(), 20)
        await posted()
        await client.send("text", text=TEXT[HALF:])
        await client.send("end")
        done = await client.told()
        assert done["type"] == "done"
        assert done["seconds"] == pytest.approx(len(client.sound) / 48_000, abs=1e-3)

    talk(single, say)
    assert settled(single) and single.service.places.taken == 0


@contextlib.contextmanager
def standing(server: Server) -> Iterator[tuple[list[int], threading.Event]]:
    """Has the engine stand still until an event; how many texts were in work at each call."""
    engine, go, seen = server.service.engine, threading.Event(), []
    taken = engine.sample

    def sample(*args, **more):
        seen.append(server.service.places.taken)
        go.wait(20)
        return taken(*args, **more)

    engine.sample = bound_as(engine, "sample", sample)
    try:
        yield seen, go
    finally:
        go.set()
        del engine.sample


def test_texts_in_work_are_as_many_as_there_may_be(single):
    async def say(client: Client) -> None:
        post = asyncio.create_task(asyncio.to_thread(speech, single))
        assert await asyncio.to_thread(eventually, lambda: seen)
        await client.start()
        await client.send("text", text=TEXT)
        await client.send("end")
        assert await asyncio.to_thread(eventually, lambda: single.service.places.waiting)
        assert (await asyncio.to_thread(speech, single)).status_code == 429
        go.set()
        assert (await client.told())["type"] == "done"
        assert (await post).status_code == 200

    with standing(single) as (seen, go):
        talk(single, say)
    assert settled(single) and set(seen) == {1}


def test_a_start_that_is_refused_for_now_may_be_repeated(single):
    async def say(client: Client) -> None:
        posts = [asyncio.create_task(asyncio.to_thread(speech, single)) for _ in range(2)]
        assert await asyncio.to_thread(eventually, lambda: single.service.open == 2)
        await client.send("start")
        assert (await client.told())["error"]["code"] == "queue_full"
        await client.speak("Hi there.")  # all of it, as a client does that does not wait
        assert (await client.told())["error"]["code"] == "queue_full"
        go.set()
        await asyncio.gather(*posts)
        await client.speak("Hi there.")
        assert [(await client.told())["type"] for _ in range(2)] == ["started", "done"]

    with standing(single) as (_, go):
        talk(single, say)
    assert settled(single)


def test_a_text_that_is_refused_ends_no_connection(server):
    async def say(client: Client) -> None:
        for code, text, more in (
            ("voice_not_found", "Hi there.", {"voice": "nobody"}),
            ("invalid_value", "Hi there.", {"response_format": "flac"}),
            ("string_above_max_length", "a" * 5000, {}),
            ("invalid_value", None, {}),
        ):
            await client.speak(text, **more)
            told = await client.told()
            if told["type"] == "started":
                told = await client.told()
            assert told["error"]["code"] == code
        await client.speak("Hi there.")
        assert [(await client.told())["type"] for _ in range(2)] == ["started", "done"]
        with standing(server) as (_, go):
            await client.speak(TEXT)
            await client.speak("a" * 5000)  # too early: of this one nothing is heard
            assert [(await client.told())["type"] for _ in range(2)] == ["started", "error"]
            go.set()
            assert (await client.told())["type"] == "done"
        await client.start()
        await client.send("text", text="Hi there.")
        await client.send("start")  # whose words would be added to the other text
        assert (await client.told())["type"] == "error"
        with pytest.raises(ConnectionClosed):
            await client.told()

    from websockets.exceptions import ConnectionClosed

    talk(server, say)
    assert settled(server)


def test_a_field_that_is_null_is_one_that_was_not_sent(server):
    async def say(client: Client) -> None:
        nothing = dict.fromkeys(("model", "voice", "response_format", "speed", "timestamps"))
        await client.speak("Hi there.", **nothing)
        assert [(await client.told())["type"] for _ in range(2)] == ["started", "done"]

    talk(server, say)


def test_a_writer_may_think_for_longer_than_the_first_sound_may_take(brief):
    longer = brief.settings.limits.start_deadline + 0.2

    async def say(client: Client) -> None:
        await client.start()
        await asyncio.sleep(longer)
        await client.send("text", text="Well,")
        await asyncio.sleep(longer)
        await client.send("text", text=" I think so.")
        await client.send("end")
        assert (await client.told())["type"] == "done"

    talk(brief, say)


def test_what_was_written_is_spoken_in_time_or_refused(brief):
    async def say(client: Client) -> dict[str, Any]:
        await client.start()
        await client.send("text", text=TEXT)
        await client.send("end")
        return await client.told()

    with standing(brief):
        assert talk(brief, say)["error"]["code"] == "deadline"
    assert settled(brief)


def test_a_text_without_words_is_an_error_and_another_may_follow(single):
    async def say(client: Client) -> None:
        await client.start()
        await client.send("end")
        assert (await client.told())["error"]["message"] == "there is no text to speak"
        await client.speak("Привет всем.")
        assert (await client.told())["type"] == "started"
        error = (await client.told())["error"]
        assert (error["code"], error["message"]) == (
            "invalid_value",
            "the model knows no character of 'Привет всем'",
        )
        await client.start()
        await client.send("text", text="Hi there.")
        await client.send("end")
        assert (await client.told())["type"] == "done"

    talk(single, say)


def test_a_wyoming_client_that_leaves_its_text_without_an_end_is_cut(serve):
    pytest.importorskip("wyoming", reason="no wyoming package here")
    from wyoming.tts import SynthesizeStart

    from tests.serve.test_wyoming import talk as wyoming

    async def say(client) -> Any:
        await client.write_event(SynthesizeStart().event())
        return await client.read_event()

    with serve({"idle_deadline": 1}) as server:
        assert wyoming(server, say) is None
        assert settled(server)


def test_the_deadline_of_a_text_is_kept_for_a_slow_reader(serve):
    with serve({"deadline": 2}) as server, narrow(server) as found:
        found.sendall(request(input=TEXT * 40, response_format="pcm", speed=0.25, steps=1))
        got, began, last = 0, time.monotonic(), b""
        while (part := received(found)) and time.monotonic() < began + 15:
            got, last = got + len(part), part
            time.sleep(max(0, got / 1e6 - (time.monotonic() - began)))  # 1 MB/s of some 30 MB
        assert not part and not last.endswith(b"0\r\n\r\n")
        assert settled(server)


def received(found: socket.socket) -> bytes:
    """Some bytes; none at the end, however it comes."""
    with contextlib.suppress(ConnectionError):
        return found.recv(65_536)
    return b""
