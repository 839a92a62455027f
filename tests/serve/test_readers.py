"""Clients that read slowly are served, and those that read nothing are cut off: HTTP, WebSocket."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import struct
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.serve.conftest import TEXT, Server, speech
from tests.serve.test_limits import everything, request, settled

LONG = (TEXT * 60)[:4000]
SLOWLY = {"speed": 0.25, "steps": 1}  # many bytes in little time
SENTENCE = "The boat left at dawn and nobody saw it go and it came back late with much fish."
UPGRADE = (
    b"GET /v1/audio/stream HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\n"
    b"connection: Upgrade\r\nsec-websocket-version: 13\r\n"
    b"sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


@pytest.fixture(scope="module")
def hasty(serve):
    """A server that cuts readers off early."""
    with serve({"idle_deadline": 1}) as found:
        yield found


def narrow(server: Server) -> socket.socket:
    """A connection that takes little before it is read."""
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # before it is connected
    found.connect(("127.0.0.1", server.port))
    found.settimeout(30)
    return found


def waiting(server: Server) -> int:
    """Bytes that clients have not taken, beside those that the kernel holds."""
    known = list(server.server.server_state.connections)
    return sum(one.transport.get_write_buffer_size() for one in known)


def frame(values: dict) -> bytes:
    """A WebSocket's text message, of a client whose mask is 0."""
    data = json.dumps(values).encode()
    size = bytes([0x80 | len(data)]) if len(data) < 126 else b"\xfe" + struct.pack("!H", len(data))
    return b"\x81" + size + bytes(4) + data


def eventually(holds: Callable[[], object]) -> bool:
    """Whether something comes to hold, after some time at most."""
    until = time.monotonic() + 20
    while time.monotonic() < until and not holds():
        time.sleep(0.01)
    return bool(holds())


def filled(server: Server, found: socket.socket) -> bool:
    """Asks for the page, and reads none of it, until the server has to wait for its reader."""

    def asked() -> int:
        found.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
        time.sleep(0.03)
        return waiting(server)

    return eventually(asked)


def test_a_next_request_gives_a_reader_that_stopped_no_more_time(hasty):
    with narrow(hasty) as found:
        assert filled(hasty, found)
        found.sendall(request(input=LONG, response_format="pcm", **SLOWLY))
        eventually(lambda: hasty.service.open or not waiting(hasty))
        assert settled(hasty, 20)
        assert not everything(found).endswith(b"0\r\n\r\n")


@pytest.mark.parametrize("before", [False, True], ids=["at once", "after unread pages"])
def test_a_websocket_that_stops_reading_is_cut_off(hasty, before, caplog):
    with narrow(hasty) as found:
        if before:
            assert filled(hasty, found)
        found.sendall(UPGRADE)
        assert before or b" 101 " in found.recv(1000)
        found.sendall(frame({"type": "start", **SLOWLY}))
        found.sendall(frame({"type": "text", "text": LONG}) + frame({"type": "end"}))
        assert eventually(lambda: "its client read nothing for 1 s" in caplog.text)
        assert settled(hasty, 20)


def test_a_slow_reader_gets_all_of_a_whole_answer(hasty):
    with narrow(hasty) as found:
        found.sendall(request(input=TEXT * 8, response_format="pcm", stream=False, **SLOWLY))
        got, whole = read_slowly(found, 3)  # thrice the deadline
    assert got == whole > 2_000_000
    assert settled(hasty)


def read_slowly(
    found: socket.socket, seconds: float, begun: Callable[[], None] = lambda: None
) -> tuple[int, int]:
    """Bytes of an answer's body that came, taken in so many seconds, and bytes that were told.

    Args:
        begun: called when the first of them are there.
    """
    head, _, data = found.recv(65_536).partition(b"\r\n\r\n")
    whole = int(re.findall(rb"content-length: (\d+)", head)[0])
    begun()
    got, began = len(data), time.monotonic()
    while got < whole and (part := found.recv(65_536)):
        got += len(part)
        time.sleep(max(0, seconds * got / whole - (time.monotonic() - began)))
    return got, whole


def test_a_server_that_is_stopped_waits_for_a_whole_answer_that_is_read_slowly(serve):
    with serve() as server, narrow(server) as found:
        found.sendall(request(input=TEXT * 8, response_format="pcm", stream=False, **SLOWLY))

        def stop() -> None:
            assert eventually(lambda: waiting(server))  # all of it is made, and unread
            server.server.should_exit = True  # as SIGTERM does

        got, whole = read_slowly(found, 8, stop)
        assert got == whole > 2_000_000


def test_a_server_that_is_stopped_waits_for_a_websocket_that_reads_slowly(serve):
    from websockets.asyncio.client import connect

    async def say(server: Server) -> None:
        url = server.url.replace("http", "ws") + "/v1/audio/stream"
        more = {"sock": narrow(server), "max_queue": 1, "max_size": None}
        async with connect(url, **more) as socket:
            for told in ({"type": "start", **SLOWLY}, {"type": "text", "text": SENTENCE}):
                await socket.send(json.dumps(told))
            await socket.send(json.dumps({"type": "end"}))
            assert await asyncio.to_thread(eventually, lambda: spoken(server))
            assert await asyncio.to_thread(eventually, lambda: waiting(server))  # made, and unread
            server.server.should_exit = True  # as SIGTERM does
            assert await asyncio.to_thread(eventually, lambda: server.service.draining)
            sound, told = 0, {"type": "started"}
            while told["type"] == "started":
                await asyncio.sleep(0.2)
                message = await asyncio.wait_for(socket.recv(), 20)
                if isinstance(message, bytes):
                    sound += len(message)
                else:
                    told = json.loads(message)
        assert told["type"] == "done"
        assert told["seconds"] == pytest.approx(sound / 48_000, abs=1e-3)

    with serve() as server:
        asyncio.run(say(server))


def test_a_websocket_that_reads_as_it_plays_may_answer_a_ping_late(serve):
    from websockets.asyncio.client import connect

    async def play(server: Server) -> str:
        url = server.url.replace("http", "ws") + "/v1/audio/stream"
        more = {"sock": narrow(server), "max_queue": 1, "max_size": None, "ping_interval": None}
        async with connect(url, **more) as socket:
            for told in ({"type": "start", "steps": 1}, {"type": "text", "text": TEXT}):
                await socket.send(json.dumps(told))
            await socket.send(json.dumps({"type": "end"}))
            kind = "started"
            while kind == "started":
                message = await socket.recv()
                if isinstance(message, bytes):
                    await asyncio.sleep(0.15)
                else:
                    kind = json.loads(message)["type"]
        return kind

    with serve() as server:
        config = server.server.config
        config.ws_ping_interval = 0.1
        if config.ws_ping_timeout:  # all is faster than it would be
            config.ws_ping_timeout = 0.05
        assert asyncio.run(play(server)) == "done"


def spoken(server: Server) -> int:
    """Texts that are made."""
    lines = server.service.metrics.text().decode().splitlines()
    found = [line for line in lines if line.startswith('nanospeech_texts_total{outcome="ok"}')]
    return int(float(found[0].split()[1])) if found else 0


def test_a_server_that_is_told_twice_to_stop_waits_for_nobody(serve, capsys):
    """Who has had nothing is told why; uvicorn's log, on stderr, has neither fault nor patience."""
    with serve() as server, narrow(server) as stalled, ThreadPoolExecutor(1) as pool:
        stalled.sendall(request(input=LONG, response_format="pcm", **SLOWLY))
        assert eventually(lambda: waiting(server))
        whole = pool.submit(speech, server, input=LONG, stream=False, **SLOWLY)
        assert eventually(lambda: server.service.places.taken == 2)
        server.server.should_exit = True  # as Ctrl-C does
        assert eventually(lambda: server.service.draining)
        server.server.force_exit = True  # as the second does
        server.thread.join(10)
        assert not server.thread.is_alive()
        assert whole.result(10).json()["error"]["code"] == "stopping"
    told = capsys.readouterr().err
    assert "Traceback" not in told and "graceful" not in told
