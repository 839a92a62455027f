"""Latency: requests a second, and how long they take, against clients that speak at once.

It starts `nanospeech serve` on loopback. At each level so many clients speak one sentence after the
other without a break, and what is timed is what a client sees: from the request to its first byte
of sound, and to its last.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nanospeech.cli import Parser, command, say
from nanospeech.machine import cores
from nanospeech.pictures import pyplot

from .serve_load import clean_end, free_port, percentile, post, start

ABOUT = """Measures a server's latency against its clients, as JSON and a picture.

  python -m scripts.benchmarks.serve_latency --picture docs/serving/latency.png"""
SENTENCES = (
    "Hello there, how are you today?",
    "The boat left at dawn, and nobody saw it go.",
    "It is nine o'clock, and the shop is open.",
    "Thank you for calling, we will be with you in a moment.",
)
SHARES = (0.5, 0.9, 0.99)
ONE_BY_ONE = "--active 1 --queue 64"
TICKS = (0.1, 0.25, 0.5, 1, 2, 5, 10, 20)
RATE = 2 * 24_000  # bytes of PCM a second


def build_parser() -> argparse.ArgumentParser:
    parser = Parser("python -m scripts.benchmarks.serve_latency", ABOUT)
    add = parser.add_argument
    add("--clients", default="1,2,4,8,16", help="levels (default: 1,2,4,8,16)")
    add("--seconds", type=float, default=40, help="of each level (default: 40)")
    add("--model", help="release folder (default: the one that ships)")
    add("--backend", default="auto", help="of the server (default: auto)")
    add("--flags", default="", help="more flags of nanospeech serve, in one string")
    add(
        "--one-by-one",
        action="store_true",
        help="measure beside it a server that speaks one text after the other, as those with a lock"
        " around their model do",
    )
    add("--json", type=Path, help="file for the figures, which are printed as well")
    add("--picture", type=Path, help="PNG of them")
    return parser


async def speak(port: int, text: str) -> tuple[float, float, float]:
    """Seconds to the first byte of sound and to the last, and seconds of sound.

    Raises:
        RuntimeError: the answer is an error, or was cut.
    """
    body = {"model": "tts-1", "input": text, "response_format": "pcm"}
    began = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(post(json.dumps(body).encode()))
    head = await reader.readuntil(b"\r\n\r\n")
    await reader.readuntil(b"\r\n")  # a chunk's length
    data = await reader.readexactly(1)
    first = time.perf_counter() - began
    data += await reader.read()
    writer.close()
    if head.split()[1] != b"200" or not clean_end(head, data):
        raise RuntimeError(head.decode())
    return first, time.perf_counter() - began, len(data) / RATE


async def level(port: int, clients: int, seconds: float) -> dict[str, Any]:
    """The figures of so many clients."""
    until = time.monotonic() + seconds
    found: list[tuple[float, float, float]] = []

    async def client(chance: random.Random) -> None:
        while time.monotonic() < until:
            found.append(await speak(port, chance.choice(SENTENCES)))

    began = time.monotonic()
    await asyncio.gather(*(client(random.Random(i)) for i in range(clients)))
    took = time.monotonic() - began
    first, whole, sound = zip(*found)
    return {
        "clients": clients,
        "requests": len(found),
        "requests_a_second": round(len(found) / took, 3),
        "speech_a_second": round(sum(sound) / took, 3),
        "first_byte": [round(percentile([*first], share), 3) for share in SHARES],
        "whole": [round(percentile([*whole], share), 3) for share in SHARES],
    }


def measure(args: argparse.Namespace, flags: str) -> dict[str, Any]:
    """The figures of one server."""
    port = free_port()
    process, ready, said = start(args, port, flags.split())
    found: dict[str, Any] = {"model": said, "flags": flags, "seconds_to_ready": round(ready, 2)}
    try:
        asyncio.run(speak(port, SENTENCES[0]))
        found["levels"] = []
        for clients in map(int, args.clients.split(",")):
            found["levels"].append(asyncio.run(level(port, clients, args.seconds)))
            say(json.dumps(found["levels"][-1]))
    finally:
        process.kill()
        process.wait()
    return found


def draw(servers: list[dict[str, Any]], path: Path) -> None:
    """Latency and throughput against clients; the second server is pale."""
    plt = pyplot()
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.8), layout="constrained")
    clients = [one["clients"] for one in servers[0]["levels"]]
    for server, alpha, what in zip(servers, (1.0, 0.4), ("", ", one by one")):
        levels = server["levels"]
        for key, colour, name in (
            ("first_byte", "tab:blue", "first byte"),
            ("whole", "tab:orange", "whole"),
        ):
            low, _, high = zip(*(one[key] for one in levels))
            label = f"{name}{what}, 50 to 99%"
            left.plot(clients, low, "o-", color=colour, alpha=alpha, label=label)
            left.fill_between(clients, low, high, color=colour, alpha=alpha / 5, lw=0)
        for key, style, name in (
            ("requests_a_second", "o-", "requests"),
            ("speech_a_second", "s-", "seconds of speech"),
        ):
            line = [one[key] for one in levels]
            right.plot(clients, line, style, color="tab:green", alpha=alpha, label=f"{name}{what}")
    left.axhline(0.25, color="grey", lw=0.8)
    left.set(xscale="log", yscale="log", xlabel="clients at once", ylabel="seconds")
    left.set_yticks(TICKS, [f"{tick:g}" for tick in TICKS])
    right.set(xscale="log", xlabel="clients at once", ylabel="a second", ylim=(0, None))
    for axes in (left, right):
        axes.set_xticks(clients, [str(n) for n in clients])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7)
    figure.suptitle(f"{servers[0]['model']}, {cores()} cores", fontsize=10)
    figure.savefig(path, dpi=130)


@command
def main(argv: Sequence[str] | None = None) -> int:
    """Prints the figures as JSON."""
    args = build_parser().parse_args(argv)
    if args.picture is not None:
        pyplot()  # before the time is spent
    servers = [measure(args, args.flags)]
    if args.one_by_one:
        servers.append(measure(args, f"{args.flags} {ONE_BY_ONE}"))
    text = json.dumps({"cores": cores(), "servers": servers}, indent=1)
    print(text)
    if args.json is not None:
        args.json.write_text(text + "\n", encoding="utf-8")
    if args.picture is not None:
        draw(servers, args.picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
