"""What training EchoDiT's three sizes takes on paper: memory, traffic and expected utilisation.

    python -m scripts.benchmarks.scale                the table of docs/scale.md
    python -m scripts.benchmarks.scale --far 50       with links of 50 GB/s to other machines

Nothing is allocated or run. Counts (weights, operations, what is kept) are exact or tested against
torch's own; speeds follow from the data sheet of a GH200 and one assumption, --efficiency.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from dataclasses import dataclass
from typing import Any

from nanospeech.cli import Parser, command
from nanospeech.errors import InputError
from nanospeech_torch.train.scale import echo
from nanospeech_torch.train.scale.estimate import GB

FUSED = 1 / 3  # of the cheap operations' traffic, where the compiler joins them


@dataclass(frozen=True)
class Plan:
    """A run: a size, how it is split, and what scaled-echo-tts reports of such a one.

    Args:
        name: of echo.SCALES.
        split: in words.
        work: items of a micro-batch and the split, arguments of EchoWorkload.
        reported: MFU in percent, where scaled-echo-tts has this split.
    """

    name: str
    split: str
    work: dict[str, Any]
    reported: float | None = None

    def workload(self) -> echo.EchoWorkload:
        return echo.EchoWorkload(echo.SCALES[self.name], **self.work)


PLANS = (
    Plan("800M", "copies (DDP)", {"batch": 16, "gpus": 4}, 35.6),
    Plan("800M", "copies (DDP)", {"batch": 16, "gpus": 16}, 35.8),
    Plan("800M", "copies (DDP)", {"batch": 16, "gpus": 64}, 35.7),
    Plan("3B", "tensor 2, copies", {"batch": 8, "gpus": 4, "tensor": 2}, 30.0),
    Plan("3B", "tensor 2, copies", {"batch": 8, "gpus": 16, "tensor": 2}, 29.4),
    Plan("3B", "shard 4, copies (HSDP)", {"batch": 16, "gpus": 16, "shard": 4}),
    Plan("3B", "shard 16 (FSDP2)", {"batch": 16, "gpus": 16, "shard": 16}),
    Plan("8B", "tensor 4, copies", {"batch": 4, "gpus": 4, "tensor": 4}, 37.5),
    Plan("8B", "tensor 4, copies", {"batch": 4, "gpus": 64, "tensor": 4}, 36.0),
    Plan("8B", "tensor 4, shard 16", {"batch": 8, "gpus": 64, "tensor": 4, "shard": 16}),
    Plan("8B", "shard 64 (FSDP2)", {"batch": 8, "gpus": 64, "shard": 64}),
    Plan(
        "8B",
        "shard 64, every 2nd block again",
        {"batch": 16, "gpus": 64, "shard": 64, "checkpoint_interval": 2},
    ),
)
HEAD = (
    "| size | GPUs | split | items | memory, GB | near, GB | far, GB | products, ms | rest, ms"
    " | MFU | compiled | reported |"
)


def row(plan: Plan, card: echo.Card) -> str:
    """A line of the table."""
    work = plan.workload()
    memory, sent = echo.estimate(work).total / GB, echo.traffic(work, card.machine)
    plain, joined = echo.expected(work, card), echo.expected(work, card, FUSED)
    rest = plain.passes + plain.update + plain.sending
    cells = (
        plan.name,
        f"{work.gpus}",
        plan.split,
        f"{work.batch}",
        f"{memory:.0f}",
        f"{(sent.near + sent.tensor) / GB:.1f}",
        f"{sent.far / GB:.1f}",
        f"{1000 * plain.products:.0f}",
        f"{1000 * rest:.0f}",
        f"{plain.mfu:.0f} %",
        f"{joined.mfu:.0f} %",
        f"{plan.reported} %" if plan.reported else "",
    )
    return f"| {' | '.join(cells)} |"


def table(card: echo.Card = echo.GH200) -> str:
    """The table of docs/scale.md."""
    return "\n".join((HEAD, "|---" * HEAD.count(" |") + "|", *(row(p, card) for p in PLANS)))


def build_parser() -> argparse.ArgumentParser:
    parser = Parser("python -m scripts.benchmarks.scale", __doc__ or "")
    card = echo.GH200
    parser.add_argument(
        "--efficiency",
        type=float,
        default=card.efficiency,
        help="share of the data sheet's peak that large products reach (default: %(default)s)",
    )
    parser.add_argument(
        "--far",
        type=float,
        default=card.far / GB,
        help="GB a second and GPU to other machines (default: %(default)s)",
    )
    return parser


@command
def main(argv: list[str] | None = None) -> int:
    args = build_parser().parse_args(argv)
    if not 0 < args.efficiency <= 1:
        raise InputError(f"--efficiency is {args.efficiency}; choose a share above 0, at most 1")
    if not args.far > 0:
        raise InputError(f"--far is {args.far}; choose GB a second above 0")
    card = dataclasses.replace(echo.GH200, efficiency=args.efficiency, far=args.far * GB)
    print(table(card))
    return 0


if __name__ == "__main__":
    sys.exit(main())
