"""Run stage: runs one step of a recipe once, and records its time and the machine.

    python -m scripts.recipes.run_stage runs/record.json train --makes runs/latest -- COMMAND ...
    python -m scripts.recipes.run_stage runs/record.json --table

A finished stage is skipped when the recipe is run again, unless its command has changed, one of its
outputs is gone, or a stage that it needs was run again since. A command's standard output goes to
the terminal and, with the time since the recipe's start, to a log beside the record. The exit
status is the command's.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nanospeech.cli import command
from nanospeech.errors import InputError
from nanospeech.files import write_json
from nanospeech.machine import cores
from nanospeech.measure.machine import clock

STOPPED = "stopped (the same command goes on)"
ENDS = {0: "done"} | dict.fromkeys((-2, -15, 128 + 2, 128 + 15), STOPPED)  # SIGINT and SIGTERM
CORES = ("--jobs", "--threads")  # flags that a machine decides on


def hardware() -> dict[str, Any]:
    """What the recipe runs on: processor, cores, memory, GPUs, versions."""
    found: dict[str, Any] = {"system": f"{platform.system()} {platform.machine()}"}
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                found["cpu"] = line.partition(":")[2].strip()
                break
        pages = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        found["memory_gb"] = round(pages / 2**30, 1)
    except (OSError, ValueError, AttributeError):
        pass
    found.setdefault("cpu", platform.processor() or "unknown")
    found["cores"] = cores()
    query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        output = subprocess.run(query, capture_output=True, text=True, timeout=30, check=True)
        found["gpus"] = [line.strip() for line in output.stdout.splitlines() if line.strip()]
    except (OSError, subprocess.SubprocessError):
        found["gpus"] = []
    found["python"] = platform.python_version()
    return found


def alike(one: list[str], other: list[str]) -> bool:
    """Whether two commands do the same: another interpreter or number of cores changes nothing.

    So a recipe can be resumed on another machine.
    """

    def essence(command: list[str]) -> list[str]:
        start = 1 if command and Path(command[0]).name.startswith("python") else 0
        pairs = zip(["", *command], command)
        return [c for before, c in pairs if c not in CORES and before not in CORES][start:]

    return essence(one) == essence(other)


class Record:
    """The JSON file of a recipe's stages."""

    def __init__(self, path: Path):
        self.path = path
        self.stages: dict[str, dict[str, Any]] = {}
        self.hardware: dict[str, Any] = {}
        if path.exists():
            try:
                values = json.loads(path.read_text(encoding="utf-8"))
                self.stages, self.hardware = values["stages"], values["hardware"]
            except (OSError, ValueError, KeyError, TypeError) as e:
                raise InputError(f"cannot read the record {path}: {e}; move it away") from e

    def save(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        values = {"hardware": self.hardware, "stages": self.stages}
        write_json(self.path, values)

    def seconds(self) -> float:
        """Of all stages, with what was resumed in each, without what was done anew."""
        return sum(stage["seconds"] for stage in self.stages.values())

    def is_done(self, name: str, command: list[str], needs: list[str], makes: list[Path]) -> bool:
        """Whether a stage can be passed over."""
        stage = self.stages.get(name)
        if not stage or not stage["done"] or not alike(stage["command"], command):
            return False
        if any(not path.exists() for path in makes):
            return False
        return all(self.stages.get(n, {}).get("ended", 0) <= stage["ended"] for n in needs)

    def goes_on(self, name: str, command: list[str], needs: list[str], extends: bool) -> bool:
        """Whether a stage is one that was stopped, with nothing changed that it needs.

        Args:
            extends: also one that was finished, or had another command.
        """
        stage = self.stages.get(name)
        if not stage or not (extends or (alike(stage["command"], command) and not stage["done"])):
            return False
        return all(self.stages.get(n, {}).get("ended", 0) <= stage["began"] for n in needs)

    def table(self) -> str:
        """Stages and their times, for people."""
        rows = [
            (n, clock(s["seconds"]), "" if s["done"] else "not done")
            for n, s in self.stages.items()
        ]
        rows.append(("all", clock(self.seconds()), ""))
        return "\n".join(f"{name:<14}{took:>9}  {note}".rstrip() for name, took, note in rows)


def follow(command: list[str], say: Any) -> int:
    """Runs a command, handing on its standard output line by line; its exit status.

    Ctrl-C and SIGTERM are passed on, and the command may save before it ends. One that ends well
    then, as training does, has not done all its work: its status is 128 and the signal's number.
    """
    stopped: list[int] = []
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace")
    except OSError as e:
        raise InputError(f"cannot start {command[0]}: {e}") from e

    def stop(number: int, frame: Any) -> None:
        stopped.append(number)
        if number == signal.SIGTERM:  # a terminal sends Ctrl-C to the command as well
            process.terminate()

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            say(line.rstrip("\n"))
        status = process.wait()
        return 128 + stopped[0] if stopped and status == 0 else status
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def put_aside(path: Path) -> Path:
    """Renames a file or folder to the first NAME.1, NAME.2, … that is free."""
    number = 1
    while (kept := path.with_name(f"{path.name}.{number}")).exists():
        number += 1
    return path.rename(kept)


def run_stage(
    record: Record,
    name: str,
    command: list[str],
    needs: list[str],
    makes: list[Path],
    clean: list[Path],
    extends: bool = False,
    aside: Sequence[Path] = (),
) -> int:
    """Runs a stage unless it is done; records its time even if it fails.

    Args:
        clean: what is removed first, unless the stage only goes on.
        aside: what is then kept under another name, as hours of training are.
        extends: it can go on from where it was finished, or with another command.
    """
    log = record.path.with_suffix(".log")

    def say(text: str) -> None:
        print(text, flush=True)
        stamp = clock(before + time.monotonic() - start)
        with log.open("a", encoding="utf-8") as f:
            f.write(f"[{stamp}] {text}\n")

    before, start = record.seconds(), time.monotonic()
    if record.is_done(name, command, needs, makes):
        print(f"== {name}: done before, in {clock(record.stages[name]['seconds'])}", flush=True)
        return 0
    goes_on = record.goes_on(name, command, needs, extends)
    old = record.stages.pop(name, {})
    earlier = old["seconds"] if goes_on else 0.0
    before -= 0 if goes_on else old.get("seconds", 0.0)
    record.hardware = hardware()
    record.path.parent.mkdir(parents=True, exist_ok=True)
    stage = {"command": command, "seconds": earlier, "done": False}
    stage |= {"began": old["began"] if goes_on else time.time(), "ended": 0.0}
    record.stages[name] = stage
    record.save()
    for path in clean if not goes_on else []:
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    for path in aside if not goes_on else []:
        if path.exists():
            kept = put_aside(path)
            say(f"== {name}: what it needs has changed, it begins again; {path} is now {kept}")
    say(f"== {name}{', going on' if goes_on else ''}  (elapsed {clock(before)})")
    status = 1
    try:
        status = follow(command, say)
        if status == 0 and (lacking := [str(p) for p in makes if not p.exists()]):
            status = 1
            raise InputError(f"{name} ended well, but made no {', '.join(lacking)}")
    finally:
        took = time.monotonic() - start
        stage |= {"seconds": round(earlier + took, 1), "done": status == 0, "ended": time.time()}
        record.save()
        end = ENDS.get(status, f"ended with status {status}")
        say(f"== {name}: {end} after {clock(took)}")
    return status


@command
def main(argv: list[str] | None = None) -> int:
    raw = argparse.RawDescriptionHelpFormatter
    p = argparse.ArgumentParser(
        prog="python -m scripts.recipes.run_stage", description=__doc__, formatter_class=raw
    )
    p.add_argument("record", type=Path, help="JSON file; its log is beside it, as .log")
    p.add_argument("name", nargs="?", help="of the stage")
    p.add_argument("--needs", nargs="+", default=[], metavar="STAGE", help="what comes before it")
    paths: dict[str, Any] = {"nargs": "+", "default": [], "type": Path, "metavar": "PATH"}
    p.add_argument("--makes", **paths, help="its results")
    p.add_argument("--clean", **paths, help="removed first, unless the stage was only stopped")
    p.add_argument("--aside", **paths, help="renamed first, unless the stage was only stopped")
    p.add_argument("--extends", action="store_true", help="it goes on even from its end")
    p.add_argument("--table", action="store_true", help="print the stages' times and end")
    given = sys.argv[1:] if argv is None else argv
    cut = given.index("--") if "--" in given else len(given)
    args, command = p.parse_args(given[:cut]), list(given[cut + 1 :])
    record = Record(args.record)
    if args.table:
        print(record.table())
        return 0
    if not args.name or not command:
        p.error("a stage needs its name and, after --, its command")
    status = run_stage(
        record, args.name, command, args.needs, args.makes, args.clean, args.extends, args.aside
    )
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
