#!/usr/bin/env python3
"""Mutate: mutation testing of training and speech: one fault at a time, which a test should catch.

The faults are those of cosmic-ray's operators that change a meaning rather than break a line, and
statements left out. Torch and the like are imported once; each mutant is a fork that imports this
project's modules anew, one of them changed, and runs the tests that reach the changed lines, until
one fails. No file is written but the report. How to read it: docs/mutation.md.

    python -m scripts.experiments.mutate                             all modules, all mutants
    python -m scripts.experiments.mutate flow guards --sample 200    200 of two modules
    python -m scripts.experiments.mutate flow --list                 what would be tried
"""

from __future__ import annotations

import argparse
import gc
import importlib.abc
import importlib.machinery
import importlib.util
import json
import math
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nanospeech.cli import command
from nanospeech.errors import require

from .mutants import Mutant, mutants
from .mutate_modules import MODULES, SLOW

ROOT = Path(__file__).resolve().parents[2]
# imported before forking: what is not of this project and takes long
PRELOAD = (
    "torch torch._dynamo torch.utils.data torch.distributed.fsdp torch.optim datasets accelerate "
    "torch.distributed.checkpoint soundfile soxr fsspec.implementations.memory pytest coverage "
    "huggingface_hub.hf_api matplotlib.pyplot PIL.Image"
)
MEMORY = 8 * 2**30  # bytes that a mutant may take


# ---------------------------------------------------------------- tests


class Changed(importlib.abc.MetaPathFinder):
    """Finds a module whose source is another one than its file's."""

    def __init__(self, path: Path, source: str):
        self.path, self.source = path, source
        self.name = ".".join(path.relative_to(ROOT).with_suffix("").parts)

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        """The spec of that module alone."""
        if fullname != self.name:
            return None
        finder = self

        class Loader(importlib.machinery.SourceFileLoader):
            def get_code(self, fullname: str) -> Any:
                return compile(finder.source, self.path, "exec", dont_inherit=True)

        loader = Loader(fullname, str(self.path))
        return importlib.util.spec_from_file_location(fullname, self.path, loader=loader)


class Watch:
    """A pytest plugin that notes which lines each test reaches, and how long it takes."""

    def __init__(self, path: Path):
        import coverage

        self.path, self.seconds = str(path), {}
        self.coverage = coverage.Coverage(data_file=None, include=[self.path])

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.coverage.switch_context(nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0) + report.duration

    def found(self) -> dict[str, Any]:
        """Tests by line and seconds by test."""
        lines = self.coverage.get_data().contexts_by_lineno(self.path)
        return {"lines": lines, "seconds": self.seconds}


def tests_of(module: str) -> list[str]:
    return [name for name in MODULES[module][1] if (ROOT / name).exists()]


def run_tests(arguments: list[str], folder: Path, plugins: list[Any]) -> int:
    """Pytest's exit code; what it prints goes to a file of the folder."""
    import pytest

    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    left_out = [f"-pno:{name}" for name in ("cacheprovider", "unraisableexception")]
    quick = ["-q", "--assert=plain", *left_out, f"--basetemp={folder / 'tmp'}"]
    return int(pytest.main([*quick, *arguments], plugins=plugins))


def begin_child(folder: Path) -> None:
    """A process group of its own, with its output in a file and its memory limited."""
    os.setsid()
    folder.mkdir(parents=True)
    output = os.open(folder / "output", os.O_WRONLY | os.O_CREAT)
    os.dup2(output, 1)
    os.dup2(output, 2)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))


def measure(modules: list[str], folder: Path) -> dict[str, dict[str, Any]]:
    """Runs the modules' tests as they are: which lines each reaches, and for how long."""
    pids = {}
    for module in modules:
        if pid := os.fork():
            pids[module] = pid
            continue
        code = 70
        try:
            begin_child(folder / module)
            watch = Watch(ROOT / MODULES[module][0])
            watch.coverage.start()
            code = run_tests([*tests_of(module), "-k", f"not ({SLOW})"], folder / module, [watch])
            watch.coverage.stop()
            (folder / module / "watched.json").write_text(json.dumps(watch.found()))
        finally:
            os._exit(code)
    for module, pid in pids.items():
        _, status = os.waitpid(pid, 0)
        if os.waitstatus_to_exitcode(status):
            said = (folder / module / "output").read_text()
            raise SystemExit(f"the tests of {module} fail as it is:\n{said}")
    return {m: json.loads((folder / m / "watched.json").read_text()) for m in modules}


def chosen(mutant: Mutant, watched: dict[str, Any]) -> list[str]:
    """The tests that reach a mutant's statement, the quickest first; all if it runs at import."""
    seconds = watched["seconds"]
    names: set[str] = set()
    for line in range(mutant.lines[0], mutant.lines[1] + 1):
        names |= set(watched["lines"].get(str(line), ()))
    if "" in names:
        names = set(seconds)
    return sorted(names & set(seconds), key=lambda name: seconds[name])


def start(mutant: Mutant, tests: list[str], folder: Path) -> int:
    """Forks a process that tries a mutant; its id."""
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        begin_child(folder)
        path = ROOT / MODULES[mutant.module][0]
        sys.meta_path.insert(0, Changed(path, mutant.code(path.read_text(encoding="utf-8"))))
        code = run_tests(["-x", *tests], folder, [])
    finally:
        os._exit(code)


def run_all(todo: list[Mutant], watched: dict[str, Any], jobs: int, folder: Path) -> None:
    """Tries mutants, `jobs` at a time, and notes how they went."""
    waiting, running = list(reversed(todo)), {}
    done, began = 0, time.monotonic()
    while waiting or running:
        while waiting and len(running) < jobs:
            mutant = waiting.pop()
            tests = chosen(mutant, watched[mutant.module])
            if not tests:
                mutant.outcome, done = "unrun", done + 1
                continue
            seconds = sum(watched[mutant.module]["seconds"][name] for name in tests)
            place = folder / f"{len(todo) - len(waiting)}"
            running[start(mutant, tests, place)] = (
                mutant,
                time.monotonic(),
                60 + 10 * seconds,
                place,
            )
        time.sleep(0.02)
        for pid, (mutant, since, limit, place) in list(running.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            late = not ended and time.monotonic() - since > limit
            if not ended and not late:
                continue
            try:  # also what it has started
                os.killpg(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            if late:
                os.waitpid(pid, 0)
            passed = not late and os.waitstatus_to_exitcode(status) == 0
            mutant.outcome = "timeout" if late else "survived" if passed else "killed"
            mutant.seconds = round(time.monotonic() - since, 2)
            shutil.rmtree(place, ignore_errors=True)
            del running[pid]
            done += 1
            left = (time.monotonic() - began) / done * (len(todo) - done) / 60
            if mutant.outcome == "survived" or done % 50 == 0:
                print(
                    f"{done} of {len(todo)}, {left:.0f} minutes left: {described(mutant)}",
                    flush=True,
                )


# ---------------------------------------------------------------- report


def described(mutant: Mutant) -> str:
    where = f"{mutant.module}.{mutant.function}, line {mutant.lines[0]}"
    return f"{mutant.outcome}: {where}: `{mutant.old}` -> `{mutant.new}`"


def upper_bound(bad: int, tried: int, confidence: float = 0.95) -> float:
    """The share that is not exceeded, one-sided (Clopper and Pearson, 1934)."""
    if bad >= tried:
        return 1.0
    low, high = bad / tried, 1.0
    for _ in range(50):
        p = (low + high) / 2
        terms = (
            math.lgamma(tried + 1) - math.lgamma(k + 1) - math.lgamma(tried - k + 1)
            + k * math.log(p) + (tried - k) * math.log1p(-p)
            for k in range(bad + 1)
        )  # fmt: skip
        low, high = (p, high) if sum(map(math.exp, terms)) > 1 - confidence else (low, p)
    return high


def report(tried: list[Mutant], every: list[Mutant]) -> str:
    """A Markdown table of counts, and what survived."""
    rows = [
        "| module | mutants | tried | killed | timed out | survived |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for module in [*dict.fromkeys(m.module for m in every), "all"]:
        mine = [m for m in tried if module in (m.module, "all")]
        there = sum(module in (m.module, "all") for m in every)
        n = Counter(m.outcome for m in mine)
        left = n["survived"] + n["unrun"]
        share = f"{left} ({100 * left / max(1, len(mine)):.1f} %)"
        rows.append(
            f"| {module} | {there} | {len(mine)} | {n['killed']} | {n['timeout']} | {share} |"
        )
    left = [m for m in tried if m.outcome in ("survived", "unrun")]
    if len(tried) < len(every):
        bound = 100 * upper_bound(len(left), len(tried))
        rows.append(f"\nAt most {bound:.1f} % of all survive (95 % confidence, one-sided).")
    return "\n".join([*rows, "", *(f"- {described(m)}" for m in left)])


@command
def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m scripts.experiments.mutate",
        description="Faults put into the code one at a time.",
    )
    parser.add_argument("modules", nargs="*", metavar="MODULE", help=", ".join(MODULES))
    parser.add_argument("--sample", type=int, help="try so many, drawn from all, instead of all")
    parser.add_argument("--seed", type=int, default=0, help="of that draw")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time")
    parser.add_argument("--list", action="store_true", help="list mutants and try none")
    parser.add_argument("--again", type=Path, help="a report: try what survived there")
    parser.add_argument("--out", type=Path, default=Path("mutants.json"), help="report to write")
    args = parser.parse_args(argv)
    if unknown := set(args.modules) - set(MODULES):
        parser.error(f"no modules {', '.join(unknown)}; choose from {', '.join(MODULES)}")
    for needed in ("cosmic_ray", "coverage"):
        require(needed, "mutation")
    every = [m for name in args.modules or MODULES for m in mutants(name, ROOT / MODULES[name][0])]
    todo = every
    if args.again:
        survived = {
            (m["module"], m["function"], m["operator"], m["old"], m["new"])
            for m in json.loads(args.again.read_text())
            if m["outcome"] in ("survived", "unrun")
        }
        todo = [m for m in every if (m.module, m.function, m.operator, m.old, m.new) in survived]
    elif args.sample and args.sample < len(every):
        todo = random.Random(args.seed).sample(every, args.sample)
    if args.list:
        print("\n".join(map(described, todo)), f"\n{len(todo)} of {len(every)}")
        return 0
    os.environ["OMP_NUM_THREADS"] = "1"  # threads do not live through a fork
    for name in PRELOAD.split():
        importlib.import_module(name)
    gc.freeze()  # children do not search it
    folder = Path(tempfile.mkdtemp(prefix="mutate-"))
    try:
        watched = measure(list(dict.fromkeys(m.module for m in todo)), folder)
        run_all(todo, watched, args.jobs, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    args.out.write_text(json.dumps([asdict(m) for m in todo], indent=1))
    print(report(todo, every))
    return 0


if __name__ == "__main__":
    sys.exit(main())
