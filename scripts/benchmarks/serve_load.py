"""Load: drives a server as careless and hostile clients do, and prints what came of it.

It starts `nanospeech serve` on loopback; clients speak mixed requests beside others that leave at
random bytes, send headers and bodies a byte at a time, stop reading, and send fuzzed bodies. In the
end the server is killed and started again.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nanospeech.cli import Parser, command
from nanospeech.machine import cores
from nanospeech.pictures import pyplot

ABOUT = """Drives a server as careless and hostile clients do.

  python -m scripts.benchmarks.serve_load --minutes 10"""
SENTENCE = "The boat left at dawn, and nobody saw it go. It came back late, with fish. "
LIMITS = ("--header-deadline", "2", "--body-deadline", "2", "--idle-deadline", "5")
FORMATS = ("mp3", "wav", "pcm", "opus", "flac")


class Found:
    """What is counted."""

    def __init__(self):
        self.counts: Counter[str] = Counter()
        self.first: list[float] = []
        self.whole: list[float] = []
        self.memory: list[float] = []  # MB, each second


def build_parser() -> argparse.ArgumentParser:
    parser = Parser("python -m scripts.benchmarks.serve_load", ABOUT)
    add = parser.add_argument
    add("--minutes", type=float, default=10, help="of load (default: 10)")
    add("--clients", type=int, default=8, help="that speak at once (default: 8)")
    add("--model", help="release folder (default: the one that ships)")
    add("--backend", default="auto", help="of the server (default: auto)")
    add("--json", type=Path, help="file for the figures")
    add("--picture", type=Path, help="PNG of memory and latency over the time")
    add("--fuzz", type=int, default=10_000, help="fuzzed bodies (default: 10000)")
    add("--seed", type=int, default=0, help="of what the clients do (default: 0)")
    return parser


def start(
    args: argparse.Namespace, port: int, more: Sequence[str] = LIMITS
) -> tuple[subprocess.Popen, float, str]:
    """A server that is ready, the seconds that took, and which model on what it says it has."""
    words = [sys.executable, "-m", "nanospeech", "serve", "--port", str(port), "--device", "cpu"]
    words += ["--backend", args.backend, *more, *(["--model", args.model] if args.model else [])]
    began = time.perf_counter()
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if " speaks at " in line:
            took = time.perf_counter() - began
            threading.Thread(target=process.stderr.read, daemon=True).start()
            return process, took, line.split(" speaks at ")[0]
    raise SystemExit("the server did not start")


def resident(pid: int) -> tuple[float, int, int]:
    """MB of memory, threads and open files of a process; Linux."""
    status = Path(f"/proc/{pid}/status").read_text()
    lines = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    files = len(os.listdir(f"/proc/{pid}/fd"))
    return round(int(lines["VmRSS"].split()[0]) / 1024, 1), int(lines["Threads"]), files


def post(body: bytes) -> bytes:
    head = f"POST /v1/audio/speech HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}"
    return head.encode() + b"\r\nconnection: close\r\n\r\n" + body


def wish(chance: random.Random, sentences: int) -> bytes:
    fields = {"response_format": chance.choice(FORMATS), "speed": chance.choice((0.8, 1, 1.5))}
    if chance.random() < 0.2:
        fields["stream_format"] = "sse"
    return post(json.dumps({"model": "tts-1", "input": SENTENCE * sentences, **fields}).encode())


def clean_end(head: bytes, data: bytes) -> bool:
    """Whether an answer is whole."""
    return data.endswith(b"0\r\n\r\n") or b"content-length" in head.lower()


async def speaks(port: int, chance: random.Random, until: float, found: Found) -> None:
    """A client that speaks one text after the other, and waits where it is told to."""
    while time.monotonic() < until:
        began = time.perf_counter()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(wish(chance, chance.choice((1, 1, 1, 2, 6))))
        head = await reader.readuntil(b"\r\n\r\n")
        status = head.split()[1].decode()
        data = await reader.read(1)
        first = time.perf_counter() - began
        data += await reader.read()
        writer.close()
        if status == "200" and clean_end(head, data):
            found.first.append(first)
            found.whole.append(time.perf_counter() - began)
            found.counts["spoken"] += 1
        elif status in ("429", "503"):  # both with Retry-After
            found.counts[f"told to wait ({status})"] += 1
            await asyncio.sleep(1)
        else:
            found.counts[f"errors ({status})"] += 1


async def leaves(port: int, chance: random.Random, until: float, found: Found) -> None:
    """A client that leaves at a random byte."""
    while time.monotonic() < until:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(wish(chance, 6)[: chance.choice((20, 100, 10_000))])
        wanted = chance.randrange(20_000)
        with contextlib.suppress(asyncio.TimeoutError, ConnectionError):
            while wanted > 0 and (data := await asyncio.wait_for(reader.read(wanted), 3)):
                wanted -= len(data)
        writer.transport.abort()
        found.counts["left at a random byte"] += 1
        await asyncio.sleep(0.2)


async def drips(port: int, until: float, found: Found, head: bool) -> None:
    """A client that sends a byte a second, of its headers or of its body."""
    while time.monotonic() < until:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        data = post(b"x" * 100)
        cut = 0 if head else data.index(b"\r\n\r\n") + 4
        began = time.monotonic()
        with contextlib.suppress(ConnectionError):
            writer.write(data[:cut])
            for i in range(cut, len(data)):
                writer.write(data[i : i + 1])
                await writer.drain()
                if reader.at_eof():
                    break
                with contextlib.suppress(asyncio.TimeoutError):
                    if not await asyncio.wait_for(reader.read(1000), 1):
                        break
        writer.transport.abort()
        ended = time.monotonic() - began < 10
        what = "headers" if head else "bodies"
        found.counts[f"slow {what} cut off" if ended else f"slow {what} waited for"] += 1


async def stops(port: int, until: float, found: Found) -> None:
    """A client that stops reading."""
    while time.monotonic() < until:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
        fields = {"model": "tts-1", "input": SENTENCE * 50, "response_format": "wav"}
        writer.write(post(json.dumps(fields).encode()))
        with contextlib.suppress(asyncio.TimeoutError, ConnectionError):
            await asyncio.wait_for(reader.read(10), 10)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.sleep(12)
        writer.transport.abort()
        found.counts["stopped reading"] += 1


async def fuzzes(port: int, chance: random.Random, count: int, found: Found) -> None:
    """A client that sends bodies that are no requests."""
    base = json.dumps({"model": "tts-1", "input": 3, "voice": "alloy", "speed": 1})
    for _ in range(count):
        body = bytearray(base.encode())
        for _ in range(chance.randrange(1, 8)):
            body[chance.randrange(len(body))] = chance.randrange(256)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(post(bytes(body[: chance.randrange(1, len(body) + 1)])))
        answer = await reader.read()
        writer.close()
        status = answer.split()[1:2]
        keys = all(key in answer for key in (b'"message"', b'"type"', b'"param"', b'"code"'))
        good = status and status[0][:1] == b"4" and keys
        found.counts["fuzzed bodies answered 4xx" if good else "fuzzed bodies: other"] += 1


async def load(args: argparse.Namespace, port: int, pid: int, found: Found) -> None:
    """All clients at once."""
    until = time.monotonic() + 60 * args.minutes
    chance = random.Random(args.seed)
    one = [random.Random(chance.random()) for _ in range(args.clients + 2)]

    async def watches() -> None:
        while time.monotonic() < until:
            found.memory.append(resident(pid)[0])
            await asyncio.sleep(1)

    await asyncio.gather(
        *(speaks(port, c, until, found) for c in one[: args.clients]),
        leaves(port, one[-1], until, found),
        drips(port, until, found, head=True),
        drips(port, until, found, head=False),
        stops(port, until, found),
        fuzzes(port, one[-2], args.fuzz, found),
        watches(),
    )


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else 0.0


def free_port() -> int:
    import socket

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def draw(found: Found, path: Path) -> None:
    """Memory over the time, and how long requests took."""
    plt = pyplot()
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    left.plot([i / 60 for i in range(len(found.memory))], found.memory)
    left.set(xlabel="minutes", ylabel="memory, MB", ylim=(0, None))
    for values, name in ((found.first, "first byte"), (found.whole, "whole text")):
        ordered = sorted(values)
        right.plot(ordered, [(i + 1) / len(ordered) for i in range(len(ordered))], label=name)
    right.set(xlabel="seconds", ylabel="share of requests", xlim=(0, None), ylim=(0, 1))
    right.legend(fontsize=8)
    for axes in (left, right):
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=130)


def figures(found: Found, before: tuple, after: tuple, ready: Sequence[float]) -> dict[str, Any]:
    """All that was counted; lists are over time, or 50 / 90 / 99 %."""
    memory = found.memory[:: max(1, len(found.memory) // 10)]
    values: dict[str, Any] = {**found.counts}
    for name, times in (("first byte", found.first), ("whole text", found.whole)):
        shares = [round(percentile(times, share), 2) for share in (0.5, 0.9, 0.99)]
        values[f"{name}, seconds, 50 / 90 / 99 %"] = shares
    return {
        **values,
        "memory, MB: start, each tenth, end": [before[0], *memory, after[0]],
        "threads, start and end": [before[1], after[1]],
        "open files, start and end": [before[2], after[2]],
        "seconds to ready, first and after kill -9": [round(one, 2) for one in ready],
    }


@command
def main(argv: Sequence[str] | None = None) -> int:
    """Runs the load and prints a table; returns 1 where a request failed."""
    args = build_parser().parse_args(argv)
    if args.picture is not None:
        pyplot()  # before the time is spent
    found, port = Found(), free_port()
    process, ready, said = start(args, port)
    before = resident(process.pid)
    asyncio.run(load(args, port, process.pid, found))
    time.sleep(8)
    after = resident(process.pid)
    process.send_signal(signal.SIGKILL)
    process.wait()
    again, second, _ = start(args, port)
    again.terminate()
    again.wait()
    values = figures(found, before, after, (ready, second))
    print(f"| {said}, {args.clients} clients, {args.minutes:g} minutes | |\n|---|---|")
    for name, value in values.items():
        shown = " / ".join(map(str, value)) if isinstance(value, list) else value
        print(f"| {name} | {shown} |")
    if args.json is not None:
        about = {"model": said, "cores": cores(), "clients": args.clients, "minutes": args.minutes}
        args.json.write_text(json.dumps({**about, **values}, indent=1) + "\n", encoding="utf-8")
    if args.picture is not None:
        draw(found, args.picture)
    return 1 if any("errors" in n or "other" in n or "waited" in n for n in found.counts) else 0


if __name__ == "__main__":
    sys.exit(main())
