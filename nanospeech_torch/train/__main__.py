"""Trains a speech, duration or vocoder model from a recipe or a YAML file.

    nanospeech train --list                                 # recipes that come with the package
    nanospeech train 82M --set data.shards='shards/*.tar'   # one of them, with changes
    nanospeech train my_run.yaml --dry-run                  # sizes, memory, work; nothing trained
    accelerate launch -m nanospeech.train 82M --set optimizer.lr=2e-4
    torchrun --nproc_per_node 8 -m nanospeech.train my_run.yaml --set parallel.shard=8

Running the same command again goes on from the newest checkpoint of run_dir. Ctrl-C and SIGTERM
save before they end the run. `--explain` lists every setting with its default.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys

from nanospeech.cli import Parser, add_pause_after, command
from nanospeech.configs import find_recipe, recipes
from nanospeech.errors import require
from nanospeech.machine import share_cores
from nanospeech_torch.train.loop.signals import early_signals


def explain() -> str:
    """Every setting of a YAML file: name, default and what it does."""
    from .config import SECTIONS, RunConfig

    lines = []
    for f in dataclasses.fields(RunConfig):
        if f.name not in SECTIONS:
            lines.append(f"{f.name}: {f.default!r}  # {f.metadata.get('help', '')}")
    for name, kind in SECTIONS.items():
        lines += ["", f"{name}:  # {(kind.__doc__ or '').strip().splitlines()[0]}"]
        for f in dataclasses.fields(kind):
            value = kind().__dict__[f.name] if f.default is dataclasses.MISSING else f.default
            help = f.metadata.get("help", "")
            lines.append(f"  {f.name}: {value!r}" + (f"  # {help}" if help else ""))
    return "\n".join(lines)


def build_parser() -> argparse.ArgumentParser:
    parser = Parser("nanospeech train", __doc__)
    parser.add_argument("recipe", nargs="?", help="a recipe's name, see --list, or a YAML file")
    parser.add_argument("--config", metavar="RECIPE", help="the same")
    parser.add_argument("--list", action="store_true", help="list the recipes and end")
    parser.add_argument(
        "--set", nargs="*", action="extend", default=[], metavar="KEY=VALUE", help="changes to it"
    )
    parser.add_argument(
        "--resume", default="auto", help="auto (default), never, a run's folder or a step_N folder"
    )
    add_pause_after(
        parser, "save and stop then; the same command resumes (train.minutes ends a run)"
    )
    parser.add_argument("--threads", type=int, help="CPU threads of torch")
    parser.add_argument("--dry-run", action="store_true", help="print sizes, memory and work only")
    parser.add_argument("--explain", action="store_true", help="print all settings and end")
    return parser


def start(args: argparse.Namespace) -> None:
    """Does what the command line asks of a config."""
    from . import run
    from .config import read_run

    config = read_run(find_recipe(args.config or args.recipe), args.set)
    if args.dry_run:
        print(run.dry_run(config))
        return
    if args.threads is not None:
        from nanospeech_torch.training_cpu import set_threads

        set_threads(args.threads)
    run.train(config, args.resume, args.minutes)


@command(expected=())  # of what fails in hours of training, all is worth knowing
def main(argv: list[str] | None = None) -> int:
    parser = build_parser()
    args = parser.parse_args(argv)
    with early_signals():
        if not args.list:
            share_cores()
            require("torch", "train")
        if args.explain:
            print(explain())
            return 0
        if args.list:
            print("\n".join(f"{name:16}{about}" for name, about in recipes().items()))
            return 0
        if (args.config is None) == (args.recipe is None):
            parser.error("name one recipe or YAML file, for example 82M; --list shows recipes")
        start(args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
