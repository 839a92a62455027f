"""Draws a training log: loss over hours, and word error rate over hours where it was measured.

    nanospeech evaluate curve --log runs/voice/log.csv --out curve.png

The loss is the log's first one (flow, duration or mel) unless --loss names another. wer.csv has the
columns step,hours,wer (and any others). Needs matplotlib: pip install 'nanospeech-tts[eval]'.
"""

from __future__ import annotations

import argparse
import csv
import sys
from pathlib import Path

from nanospeech.cli import Parser, command
from nanospeech.errors import InputError
from nanospeech.pictures import pyplot


def read(path: str | Path) -> list[dict[str, str]]:
    """The rows of a CSV file."""
    with open(path, newline="", encoding="utf-8") as f:
        return list(csv.DictReader(f))


def hours(rows: list[dict[str, str]]) -> list[float]:
    """Training time of each row; a log's clock starts anew whenever the run is resumed."""
    before = last = 0.0
    out = []
    for row in rows:
        now = float(row["seconds"])
        if now < last:
            before += last
        last = now
        out.append((before + now) / 3600)
    return out


def losses(rows: list[dict[str, str]]) -> list[str]:
    """Names of a log's losses: its columns between the step and the gradient's norm."""
    names = list(rows[0]) if rows else []
    if "step" not in names or "grad_norm" not in names:
        raise InputError("this is no log.csv of a training run, or it has no lines yet")
    return names[names.index("step") + 1 : names.index("grad_norm")]


def draw(log: str | Path, wer: str | Path | None, out: str | Path, name: str | None = None) -> None:
    """Writes the picture.

    Args:
        name: of the loss; the log's first one if None.

    Raises:
        InputError: the file is no training log, or it has no such loss.
    """
    rows = read(log)
    known = losses(rows)
    name = name or known[0]
    if name not in known:
        raise InputError(f"{log} has no loss {name!r}; choose from {', '.join(known)}")
    plt = pyplot()

    clock = hours(rows)

    def points_of(column: str) -> list[tuple[float, float]]:
        return [(t, float(r[column])) for t, r in zip(clock, rows) if r.get(column)]

    time, loss = ([point[i] for point in points_of(name)] for i in (0, 1))
    figure, axis = plt.subplots(figsize=(7, 4), constrained_layout=True)
    axis.plot(time, loss, color="tab:blue", alpha=0.25, linewidth=0.8)
    smooth = [sum(loss[max(0, i - 7) : i + 1]) / min(8, i + 1) for i in range(len(loss))]
    axis.plot(time, smooth, color="tab:blue", label=name)
    held = points_of(f"held_out_{name}") or points_of(f"heldout_{name}")  # its older name
    if held:
        axis.plot(*zip(*held), color="tab:orange", marker=".", label=f"{name}, held out")
    # the first lines of a run are high; scale to the others
    axis.set(xlabel="hours of training", ylabel="loss", ylim=(0, 1.2 * smooth[len(smooth) // 20]))
    if wer:
        points = [(float(r["hours"]), 100 * float(r["wer"])) for r in read(wer)]
        other = axis.twinx()
        other.plot(*zip(*points), color="tab:red", marker="o", label="word error rate")
        other.set(ylabel="WER, %", ylim=(0, max(50, max(w for _, w in points))))
        other.legend(loc="upper right")
    axis.legend(loc="upper center")
    figure.savefig(out, dpi=130)


def build_parser() -> argparse.ArgumentParser:
    parser = Parser("nanospeech evaluate curve", __doc__)
    parser.add_argument("--log", required=True, help="log.csv of a run")
    parser.add_argument("--wer", help="CSV of step, hours, wer")
    parser.add_argument("--loss", help="which to draw; default: the first")
    parser.add_argument("--out", required=True, help="picture to write")
    return parser


@command
def main(argv: list[str] | None = None) -> int:
    args = build_parser().parse_args(argv)
    draw(args.log, args.wer, args.out, args.loss)
    print(f"wrote {args.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
