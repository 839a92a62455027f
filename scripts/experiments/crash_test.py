"""Kills a small training run at random moments and compares the result with an undisturbed run.

    python -m scripts.experiments.crash_test                  # 50 times kill -9, about a minute
    python -m scripts.experiments.crash_test --kills 200

Each trial is a process that resumes the run and is killed, in turn after a random time, as soon as
a checkpoint is being written, and soon after one was. At its end the run must equal an undisturbed
one bit by bit, and have the same log. Runs on the CPU; needs a system with fork. The last line of
output is one JSON document.
"""

from __future__ import annotations

import csv
import importlib
import itertools
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from nanospeech.cli import Parser, command
from nanospeech.config import AudioConfig, DiTConfig
from nanospeech.text.tokenizer import Tokenizer
from nanospeech_torch.checkpoint_reader import complete, read_tensors
from nanospeech_torch.dit import DiT
from nanospeech_torch.train.data.batch import LossConfig
from nanospeech_torch.train.data.sources import find_shards
from nanospeech_torch.train.loop.checkpoints import Checkpoints
from nanospeech_torch.train.loop.trainer import NanospeechTrainer
from nanospeech_torch.train.objectives.flow import Nanospeech
from nanospeech_torch.train.scale.profile import peak_flops

DATA = Path(__file__).parents[2] / "tests" / "fixtures" / "speech-000000.tar"


def run(folder: Path, shards: list[str], steps: int, save_step: int) -> None:
    """Trains a tiny model, or goes on with it."""
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"dim": 32, "depth": 1, "heads": 1, "dim_head": 32, "text_dim": 32}
    config = DiTConfig(**sizes, conv_layers=1, text_num_embeds=256, dropout=0.1)
    model = Nanospeech(DiT(config), Tokenizer("bytes", []), AudioConfig(), LossConfig())
    trainer = NanospeechTrainer(
        model,
        torch.optim.AdamW(model.parameters(), 1e-3),
        2,
        {"cpu": True},
        folder,
        log_every=1,
        keep=2,
        buckets=2,
        shuffle_buffer=4,
    )
    trainer.train(shards, steps, batch_size=2, max_duration=400, save_step=save_step)


def start(folder: Path, *args: Any) -> int:
    """A process of its own that trains; all libraries are loaded already."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        with (folder.parent / f"{folder.name}.txt").open("a") as out:
            os.dup2(out.fileno(), 1)
            os.dup2(out.fileno(), 2)
            os.environ["TQDM_DISABLE"] = "1"
            try:
                run(folder, *args)
                code = 0
            except BaseException:
                traceback.print_exc()
            sys.stdout.flush()
            sys.stderr.flush()
    finally:
        os._exit(code)


def writing(folder: Path) -> bool:
    """Whether a checkpoint is half-written."""
    return any(folder.glob("*.part"))


def kill(child: int, folder: Path, moment: str, draw: random.Random) -> bool:
    """Kills a process at its moment; False if it ended by itself."""
    before = Checkpoints(folder, 2).newest()
    while moment == "after a save" and Checkpoints(folder, 2).newest() == before:
        if os.waitpid(child, os.WNOHANG)[0]:
            return False
        time.sleep(0.002)
    end = time.monotonic() + draw.uniform(0, 0.3 if moment == "after a save" else 1.2)
    stale = writing(folder)  # of the trial before: it is cleared first
    while time.monotonic() < end or moment == "saving":
        if os.waitpid(child, os.WNOHANG)[0]:
            return False
        stale = stale and writing(folder)
        if moment == "saving" and not stale and writing(folder):
            time.sleep(draw.uniform(0, 0.02))
            break
        time.sleep(0.0005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


def crash_test(folder: Path, kills: int, steps: int, save_step: int, shards: list[str], seed: int):
    """Kills runs, one after the other to its end, until `kills` were made. Returns figures."""
    draw = random.Random(seed)
    moments = itertools.cycle(["any", "saving", "after a save"])
    done = inside = runs = went_on = 0
    wrong: list[str] = []
    while done < kills:
        runs += 1
        here = folder / f"run{runs}"
        here.mkdir()
        checkpoints = Checkpoints(here, 2)
        best, alive = 0, True
        while alive and done < kills:
            moment = next(moments)
            went_on += best > 0
            alive = kill(start(here, shards, steps, save_step), here, moment, draw)
            done += alive
            inside += alive and writing(here)
            newest = checkpoints.newest()
            step = int(newest.name[5:]) if newest else 0
            if step < best:
                wrong.append(f"run {runs}: step {step} after step {best} was whole")
            best = max(best, step)
        if alive:  # to its end, unharmed
            went_on += best > 0
            os.waitpid(start(here, shards, steps, save_step), 0)
        print(f"run {runs}: {done} kills so far, {inside} of them inside a save", flush=True)
    found = {"kills": done, "inside_a_save": inside, "runs": runs}
    return {**found, "went_on": went_on, "went_back": wrong}


def differences(folder: Path, reference: Path, steps: int) -> list[str]:
    """Differences between a run and the reference: tensors by name, and losses of the log."""
    last = f"step_{steps:08d}"
    if not complete(folder / last):
        return [f"{folder.name} has no whole {last}; see {folder}.txt"]
    got, want = read_tensors(folder / last), read_tensors(reference / last)
    wrong = [n for n in want if n not in got or not torch.equal(got[n], want[n])]
    logs = []
    for path in (folder, reference):
        with (path / "log.csv").open(newline="") as f:
            logs.append([(r["step"], r["flow"], r["grad_norm"]) for r in csv.DictReader(f)])
    return wrong + (["log.csv"] if logs[0] != logs[1] else [])


@command
def main(argv: Sequence[str] | None = None) -> int:
    parser = Parser("python -m scripts.experiments.crash_test", __doc__)
    add = parser.add_argument
    add("--kills", type=int, default=50, help="how often a process is killed (%(default)s)")
    add("--steps", type=int, default=40, help="of each run (%(default)s)")
    add("--save-step", type=int, default=2, help="steps between checkpoints (%(default)s)")
    add("--data", nargs="+", default=[str(DATA)], help="shards; default: those of the tests")
    add("--seed", type=int, default=0, help="of the moments (%(default)s)")
    add("--out", type=Path, help="folder for the runs; default: a temporary one")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    peak_flops("cpu", "no")  # measured once, here, and not in every process
    importlib.import_module("torch._dynamo")  # as an optimizer's first step does, for a second
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.out or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        shards = find_shards(args.data)
        reference = folder / "unharmed"
        reference.mkdir()
        os.waitpid(start(reference, shards, args.steps, args.save_step), 0)
        found = crash_test(folder, args.kills, args.steps, args.save_step, shards, args.seed)
        wrong = {
            path.name: bad
            for path in sorted(folder.glob("run*"))
            if path.is_dir() and (bad := differences(path, reference, args.steps))
        }
        if wrong:
            for log in sorted(folder.glob("*.txt")):
                print(log.read_text()[-2000:], file=sys.stderr)
    good = not wrong and not found["went_back"]
    print("the runs equal the unharmed one, bit for bit" if good else "DIFFERENT")
    found |= {"steps": args.steps, "different": wrong, "seconds": round(time.monotonic() - began)}
    print(json.dumps(found))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
