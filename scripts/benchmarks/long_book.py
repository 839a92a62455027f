"""Long book: speaks one of many hours, kills it half way, goes on, and watches its memory.

    python -m scripts.benchmarks.long_book --model FOLDER --hours 10 --out runs/book --steps 1

The text is drawn from words, so no passage is there twice; one chapter opens a voice and does not
close it. `nanospeech book` is killed (SIGKILL) when a part of the passages is kept, and started
again. Prints JSON: what was kept and spoken, and memory (RSS, MB) at tenths of the book. Any model
will do, a small one of random weights too: what is measured is what does not depend on it.
Needs Linux's /proc.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from nanospeech.cli import Parser, command

BYTES = 16  # of text a second of speech
CHAPTERS = 40
BROKEN = 7  # the chapter whose voice is not closed
WORDS = "the boat came in late and nobody on quay had seen it go so we went home again over hill"


def write_book(path: Path, hours: float, seed: int = 0) -> None:
    """Writes a book of about so many hours as Markdown."""
    chance = random.Random(seed)
    size = hours * 3600 * BYTES / CHAPTERS
    parts = ["---\ntitle: A long book\n---\n"]
    for number in range(1, CHAPTERS + 1):
        chapter, length = [f"# Chapter {number}"], 0
        while length < size:
            count = chance.randint(3, 6)
            said = (
                " ".join(chance.choices(WORDS.split(), k=chance.randint(5, 16)))
                for _ in range(count)
            )
            chapter.append(" ".join(f"{words.capitalize()}." for words in said))
            length += len(chapter[-1])
        if number == BROKEN:
            chapter[1] = f"[voice: nobody]{chapter[1]}"
        parts.append("\n\n".join(chapter))
    path.write_text("\n\n".join(parts), encoding="utf-8")


def memory(pid: int) -> float:
    """The memory of a process in MB; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0.0
    found = [line.split()[1] for line in lines if line.startswith("VmRSS:")]
    return int(found[0]) / 1024 if found else 0.0


def watch(words: list[str], kept: Path, until: int | None = None) -> dict[str, Any]:
    """Runs a command and notes its memory as passages are kept.

    Args:
        words: of the command.
        kept: the folder of passages.
        until: how many of them, when it is killed; None lets it end.
    """
    rows, began = [], time.monotonic()
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None:
            count = sum(1 for _ in kept.glob("*.json")) if kept.is_dir() else -1
            rows.append((count, memory(process.pid)))
            if until is not None and count >= until:
                process.kill()
                break
            time.sleep(1)
        said = process.communicate()[1].splitlines()
    seconds = time.monotonic() - began
    return {"code": process.returncode, "seconds": seconds, "rows": rows, "said": said[-3:]}


def tenths(rows: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """Passages and MB at tenths of the time."""
    known = [row for row in rows if row[1] > 1]
    picked = [known[round(i * (len(known) - 1) / 10)] for i in range(11)]
    return [(count, round(mb)) for count, mb in picked]


@command
def main(argv: list[str] | None = None) -> int:
    """Speaks, kills, goes on, and prints."""
    parser = Parser("python -m scripts.benchmarks.long_book", __doc__)
    parser.add_argument("--model", help="release folder; the voice that ships if not given")
    parser.add_argument("--hours", type=float, default=10.0)
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--kill-at", type=int, default=300, help="passages")
    parser.add_argument("--out", type=Path, required=True, help="a new folder")
    args = parser.parse_args(argv)
    args.out.mkdir(parents=True)
    book, target = args.out / "book.md", args.out / "book.m4b"
    write_book(book, args.hours)
    words = [sys.executable, "-m", "nanospeech", "book", str(book), "--output", str(target)]
    words += ["--steps", str(args.steps), "--device", "cpu", "--subtitles", "srt", "--quiet"]
    words += ["--model", args.model] if args.model else []
    kept = args.out / "book.m4b.work" / "passages"
    first = watch(words, kept, args.kill_at)
    half = {p: p.stat().st_mtime_ns for p in kept.glob("*.json")}
    print(f"killed after {first['seconds']:.0f} s, {len(half)} passages kept", file=sys.stderr)
    words.remove("--quiet")
    second = watch(words, kept)
    again = sum(p.stat().st_mtime_ns != half[p] for p in half)
    found = {
        "kept_at_the_kill": len(half),
        "of_these_spoken_again": again,
        "exit_code": second["code"],
        "said": second["said"],
        "minutes": round((first["seconds"] + second["seconds"]) / 60, 1),
        "megabytes_before_the_kill": tenths(first["rows"]),
        "megabytes_after": tenths(second["rows"]),
        "most_megabytes": round(max(mb for _, mb in second["rows"])),
        "file_megabytes": round(target.stat().st_size / 1e6) if target.exists() else None,
    }
    print(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
