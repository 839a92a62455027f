"""What a server lives through, in numbers: mixed clients, leavers, fuzzed bodies, kill, memory.

The slow forms print the figures that docs/appendix/serving.md has:
python -m pytest -m slow -s tests/serve/test_endurance.py
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import io
import json
import os
import random
import signal
import socket
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import httpx
import numpy as np
import pytest
import soundfile

from nanospeech.serve.wyoming import listen_wyoming, serve_wyoming
from tests.serve.conftest import TEXT, speech
from tests.serve.test_life import served
from tests.serve.test_limits import KEYS, bound_as, connect, fuzzed, post, request, settled

FORMATS = ("wav", "pcm", "flac", "opus", "mp3")
KINDS = (*FORMATS, "sse", "json", "whole", "socket", "wyoming", "wrong", "list")
TEXTS = (TEXT, "Hello there.", TEXT * 3)
STEPS = 2


def slow(count: int):
    return pytest.param(count, marks=pytest.mark.slow)


def resident(pid: int | str = "self") -> float:
    """MB of a process's memory."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


class Allocations(ctypes.Structure):
    """glibc's struct mallinfo2, over all arenas; in bytes."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in ("arena", "ordblks", "smblks", "hblks", "mapped", "usmblks", "fsmblks")
        + ("used", "free", "keepcost")
    )


def allocated() -> float:
    """MB that this process was given by its allocator and has not given back.

    Resident memory has what is free in the arenas as well, which goes up and down by tens of MB
    with the order in which threads free. It is taken where the C library cannot tell.
    """
    try:
        tell = ctypes.CDLL(None).mallinfo2
    except AttributeError:  # another C library than glibc from 2.33 on
        return resident()
    tell.restype = Allocations
    told = tell()
    return (told.used + told.mapped) / 2**20


def held() -> tuple[int, int]:
    """Threads and open files of this process."""
    return threading.active_count(), len(os.listdir("/proc/self/fd"))


class Client:
    """Speaks in each of KINDS, and compares what it gets with what the text is when alone."""

    def __init__(self, server, wyoming: int, chance: random.Random):
        self.server, self.wyoming, self.chance = server, wyoming, chance
        self.http = httpx.AsyncClient(base_url=server.url, timeout=120)
        given = {"seed": 7, "steps": STEPS, "response_format": "pcm"}
        self.alone = [speech(server, input=t, **given).content for t in TEXTS]
        given["stream"] = False
        self.whole = [speech(server, input=t, **given).content for t in TEXTS]
        self.done: Counter[str] = Counter()

    async def one(self, kind: str, leaves: bool) -> None:
        """One request; one that leaves does so after a random number of bytes."""
        i = self.chance.randrange(len(TEXTS))
        if kind == "socket":
            await self.over_socket(i, leaves)
        elif kind == "wyoming":
            await self.over_wyoming(TEXTS[i], leaves)
        elif kind == "wrong":
            answer = await self.http.post("/v1/audio/speech", json={"model": "x", "input": 3})
            assert answer.status_code == 404 and set(answer.json()["error"]) == KEYS
        elif kind == "list":
            assert (await self.http.get("/v1/audio/voices")).json()["voices"][0]["id"] == "tone"
        elif leaves:
            await self.and_leave(kind, i)
        else:
            await self.over_http(kind, i)
        self.done[f"{kind}, left" if leaves else kind] += 1

    def body(self, kind: str, i: int) -> dict:
        body = {"model": "tts-1", "voice": "tone", "input": TEXTS[i], "seed": 7, "steps": STEPS}
        given = {"sse": {"stream_format": "sse"}, "whole": {"stream": False}}.get(kind, {})
        name = kind if kind in (*FORMATS, "json") else "pcm"
        return {**body, "response_format": name, **given}

    async def over_http(self, kind: str, i: int) -> None:
        answer = await self.http.post("/v1/audio/speech", json=self.body(kind, i))
        assert answer.status_code == 200, answer.text
        alone = self.whole[i] if kind in ("flac", "json", "whole") else self.alone[i]
        data, samples = answer.content, len(alone) // 2
        if kind in ("pcm", "whole"):
            assert data == alone
        elif kind == "sse":
            events = [json.loads(e[6:]) for e in answer.text.split("\n\n") if e]
            assert events[-1]["type"] == "speech.audio.done"
        elif kind == "json":
            assert abs(answer.json()["seconds"] * 24_000 - samples) < 3
        else:
            wave, rate = soundfile.read(io.BytesIO(data))
            assert abs(len(wave) / rate - samples / 24_000) < 0.1

    async def and_leave(self, kind: str, i: int) -> None:
        wanted = self.chance.randrange(30_000)
        body = self.body(kind, i)
        with contextlib.suppress(httpx.HTTPError):
            async with self.http.stream("POST", "/v1/audio/speech", json=body) as answer:
                async for part in answer.aiter_raw():
                    wanted -= len(part)
                    if wanted <= 0:
                        break

    async def over_socket(self, i: int, leaves: bool) -> None:
        from websockets.asyncio.client import connect as join

        async with join(self.server.url.replace("http", "ws") + "/v1/audio/stream") as socket:
            for message in (
                {"type": "start", "voice": "tone", "seed": 7, "steps": STEPS},
                {"type": "text", "text": TEXTS[i]},
                {"type": "end"},
            ):
                await socket.send(json.dumps(message))
            samples = 0
            while not leaves or samples < 5000:
                message = await socket.recv()
                if isinstance(message, bytes):
                    samples += len(message) // 2
                elif json.loads(message)["type"] == "done":
                    assert samples > 5000
                    break

    async def over_wyoming(self, text: str, leaves: bool) -> None:
        from wyoming.client import AsyncTcpClient
        from wyoming.tts import Synthesize

        async with AsyncTcpClient("127.0.0.1", self.wyoming) as client:
            await client.write_event(Synthesize(text=text).event())
            kinds: list[str] = []
            while kinds[-1:] != ["audio-stop"] and not (leaves and len(kinds) > 2):
                event = await client.read_event()
                assert event is not None and event.type.startswith("audio-")
                kinds.append(event.type)


@pytest.mark.parametrize("count", [24, slow(200)])
def test_mixed_clients_get_what_each_would_get_alone(server, caplog, count):
    pytest.importorskip("wyoming", reason="no wyoming package here")
    chance = random.Random(3)

    async def talk() -> Counter:
        listening = listen_wyoming(server.settings, 0)
        port = listening.getsockname()[1]
        listens = serve_wyoming(server.service, server.settings, listening)
        serving = asyncio.ensure_future(listens)
        client = Client(server, port, chance)
        room = asyncio.Semaphore(8)

        async def one(i: int) -> None:
            async with room:
                await client.one(KINDS[i % len(KINDS)], i % 5 == 0)

        await asyncio.gather(*map(one, range(count)))
        await client.http.aclose()
        serving.cancel()
        return client.done

    before = held()
    began = time.monotonic()
    done = asyncio.run(talk())
    assert done.total() == count and settled(server)
    print(f"\n{count} mixed requests in {time.monotonic() - began:.0f} s: {dict(done)}")
    until = time.monotonic() + 10  # connections that are kept for another request end as well
    while held()[1] > before[1] + 1 and time.monotonic() < until:
        time.sleep(0.1)
    assert held()[1] <= before[1] + 1
    assert not [r for r in caplog.records if r.exc_info]


def test_a_wyoming_client_that_leaves_ends_the_work(server):
    """It has sent all of its text, so that nothing is read or written until there is sound."""
    pytest.importorskip("wyoming", reason="no wyoming package here")
    steps: list[int] = []
    engine, gone = server.service.engine, threading.Event()
    taken = engine.sample

    def counted(*args, on_step, **more):
        def step(done, of):
            steps.append(done)
            gone.set()
            time.sleep(0.3)
            on_step(done, of)

        return taken(*args, on_step=step, **more)

    async def talk() -> None:
        listening = listen_wyoming(server.settings, 0)
        port = listening.getsockname()[1]
        listens = serve_wyoming(server.service, server.settings, listening)
        serving = asyncio.ensure_future(listens)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for kind, data in (
            ("synthesize-start", {}),
            ("synthesize-chunk", {"text": TEXT}),
            ("synthesize-stop", {}),
        ):
            writer.write(json.dumps({"type": kind, "data": data}).encode() + b"\n")
        assert await asyncio.to_thread(gone.wait, 10)
        writer.close()
        assert await asyncio.to_thread(settled, server, 2)
        serving.cancel()

    engine.sample = bound_as(engine, "sample", counted)
    try:
        asyncio.run(talk())
        assert len(steps) <= 3
    finally:
        del engine.sample


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="not glibc")
def test_what_is_kept_is_in_use_and_what_was_freed_is_not():
    before = allocated()
    kept = [np.ones(25_000, np.float32) for _ in range(100)]  # 9.5 MB
    assert allocated() - before > 9
    del kept[1::2]  # of which the allocator gives nothing back
    assert 4 < allocated() - before < 6


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="reads /proc")
def test_sixty_four_leavers_leave_nothing_behind(server):
    chance = random.Random(0)

    def leave(count: int) -> None:
        for i in range(count):
            with connect(server) as found:
                name = FORMATS[i % len(FORMATS)]
                found.settimeout(60)
                found.sendall(request(input=TEXT * 8, response_format=name))
                wanted = chance.randrange(60_000) * (i % 4 > 0)
                while wanted > 0 and (part := found.recv(min(wanted, 65_536))):
                    wanted -= len(part)
        assert settled(server)
        gc.collect()

    leave(64)  # the allocator's pools, and threads that stay
    before, memory, blocks, shown = held(), allocated(), sys.getallocatedblocks(), resident()
    leave(64)
    after, grown = held(), allocated() - memory
    blocks, shown = sys.getallocatedblocks() - blocks, resident() - shown
    print(f"\n64 left: threads, files {before} -> {after}, in use {memory:.1f} {grown:+.1f} MB,")
    print(f"Python's small blocks {blocks:+}, resident {resident():.1f} MB, {shown:+.1f}")
    assert after[0] <= before[0] and after[1] <= before[1]
    assert grown < 4 and blocks < 20_000  # of Python's, which are not malloc's: 1 MB


@pytest.mark.slow
def test_ten_thousand_fuzzed_bodies_are_all_answered(server, caplog):
    chance, found = random.Random(2), Counter()
    with httpx.Client(base_url=server.url) as client:
        for i in range(10_000):
            body = fuzzed(chance)
            answer = client.post("/v1/audio/speech", content=body)
            assert 400 <= answer.status_code < 500, (answer.status_code, body[:200])
            assert set(answer.json()["error"]) == KEYS
            found[answer.json()["error"]["code"]] += 1
            if i % 1000 == 0:
                assert speech(server, input="Hello.").status_code == 200
    assert not [r for r in caplog.records if r.exc_info]
    print(f"\n10000 fuzzed bodies: {dict(found)}")


@pytest.mark.slow
@pytest.mark.parametrize("part", ["headers", "body"])
def test_a_byte_a_second_is_not_waited_for(serve, part):
    """With the usual deadlines but for a shorter one of bodies; others are served meanwhile."""
    with serve({"header_deadline": 5, "body_deadline": 5}) as server, connect(server) as found:
        data = post(b"x" * 100)
        cut = data.index(b"\r\n\r\n") + 4 if part == "body" else 0
        found.sendall(data[:cut])
        began = time.monotonic()
        found.settimeout(1)
        answer, i, ended = b"", cut, False
        while not ended and i < len(data):
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                found.sendall(data[i : i + 1])
            with contextlib.suppress(socket.timeout):
                with contextlib.suppress(ConnectionResetError):
                    answer = found.recv(10_000)
                ended = True
            assert httpx.get(server.url + "/health/ready").status_code == 200
            i += 1
        took = time.monotonic() - began
    print(f"\n{part} a byte a second: ended after {took:.1f} s with {answer[:12]!r}")
    assert ended and answer[:12] == (b"" if part == "headers" else b"HTTP/1.1 408")


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="reads /proc")
@pytest.mark.parametrize("count", [slow(2000)])
def test_memory_is_flat_and_a_killed_server_starts_again(tiny_aligned, count):
    """One process for all requests: what it holds after a tenth of them it holds at the end."""
    process, url = served(tiny_aligned)
    line, chance = [], random.Random(1)
    try:
        with httpx.Client(base_url=url, timeout=60) as client:
            for i in range(count):
                text = " ".join(chance.choices(TEXT.split(), k=chance.randrange(2, 20)))
                name = chance.choice(FORMATS)
                fields = {"model": "tts-1", "input": text, "response_format": name, "steps": 1}
                assert client.post("/v1/audio/speech", json=fields).status_code == 200
                if (i + 1) % (count // 10) == 0:
                    line.append(round(resident(process.pid), 1))
                    print(f"\n{i + 1} requests: {line[-1]} MB", end="", flush=True)
        files = len(os.listdir(f"/proc/{process.pid}/fd"))
        process.send_signal(signal.SIGKILL)
        process.wait(10)
        began = time.monotonic()
        process, _ = served(tiny_aligned)
        took = time.monotonic() - began
    finally:
        process.kill()
        process.wait(10)
    print(f"\n{files} files; ready {took:.2f} s after kill -9")
    # the heap moves by 5 MB either way; a second of sound that is kept from each would be 190 MB
    assert np.mean(line[-2:]) - np.mean(line[1:3]) < 8
