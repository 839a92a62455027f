"""Draws a training log: loss over hours, and word error rate over hours where it was measured.

    nanospeech evaluate curve --log runs/voice/log.csv --out curve.png

The loss is the log's first one (flow, duration or mel) unless --loss names another. wer.csv has the
columns step,hours,wer (and any others). Needs matplotlib: pip install 'nanospeech-tts[eval]'.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
from pathlib import Path

from nanospeech.cli import Parser, command
from nanospeech.errors import InputError
from nanospeech.pictures import pyplot


def read(path: str | Path) -> list[dict[str, str]]:
    """The rows of a CSV file."""
    with open(path, newline="", encoding="utf-8") as f:
        return list(csv.DictReader(f))


def number(row: dict[str, str], column: str) -> float:
    """The number in a column of a row."""
    try:
        return float(row[column])
    except (KeyError, TypeError, ValueError):
        raise InputError(f"no number in column {column!r} but {row.get(column)!r}") from None


def hours(rows: list[dict[str, str]]) -> list[float]:
    """Training time of each row; a log's clock starts anew whenever the run is resumed."""
    before = last = 0.0
    out = []
    for row in rows:
        now = number(row, "seconds")
        if now < last:
            before += last
        last = now
        out.append((before + now) / 3600)
    return out


def losses(rows: list[dict[str, str]]) -> list[str]:
    """Names of a log's losses: its columns between the step and the gradient's norm."""
    names = list(rows[0]) if rows else []
    if "step" not in names or "grad_norm" not in names:
        raise InputError("it is no log.csv of a training run, or it has no lines yet")
    return names[names.index("step") + 1 : names.index("grad_norm")]


def curves(
    rows: list[dict[str, str]], name: str | None
) -> tuple[str, list[tuple[float, float]], list[tuple[float, float]]]:
    """The loss that is drawn, its points (hours, loss), and those of held-out clips.

    Raises:
        InputError: there is no such loss, or not a number of it yet.
    """
    known = losses(rows)
    name = name or known[0]
    if name not in known:
        raise InputError(f"no loss {name!r}; choose from {', '.join(known)}")
    clock = hours(rows)

    def points_of(column: str) -> list[tuple[float, float]]:
        found = [(t, number(r, column)) for t, r in zip(clock, rows) if r.get(column)]
        return [(t, value) for t, value in found if math.isfinite(value)]

    if not (points := points_of(name)):
        raise InputError(f"no line has a number for {name!r} yet")
    return name, points, points_of(f"held_out_{name}") or points_of(f"heldout_{name}")  # older


def draw(log: str | Path, wer: str | Path | None, out: str | Path, name: str | None = None) -> None:
    """Writes the picture.

    Args:
        name: of the loss; the log's first one if None.

    Raises:
        InputError: the file is no training log, it has no such loss, or the picture's kind is
            not known.
    """
    try:
        name, losses_drawn, held = curves(read(log), name)
    except InputError as e:
        raise InputError(f"{log}: {e}") from e
    try:
        points = [(number(r, "hours"), 100 * number(r, "wer")) for r in read(wer)] if wer else []
    except InputError as e:
        raise InputError(f"{wer}: {e}") from e
    if wer and not points:
        raise InputError(f"{wer} has no rows; its columns are step, hours and wer")
    plt = pyplot()

    figure, axis = plt.subplots(figsize=(7, 4), constrained_layout=True)
    if Path(out).suffix[1:].lower() not in figure.canvas.get_supported_filetypes():
        raise InputError(f"--out is {out}; a picture's name ends in .png, .svg or .pdf")
    time, loss = zip(*losses_drawn)
    axis.plot(time, loss, color="tab:blue", alpha=0.25, linewidth=0.8)
    smooth = [sum(loss[max(0, i - 7) : i + 1]) / min(8, i + 1) for i in range(len(loss))]
    axis.plot(time, smooth, color="tab:blue", label=name)
    if held:
        axis.plot(*zip(*held), color="tab:orange", marker=".", label=f"{name}, held out")
    # the first lines of a run are high; scale to the others
    axis.set(xlabel="hours of training", ylabel="loss", ylim=(0, 1.2 * smooth[len(smooth) // 20]))
    if wer:
        other = axis.twinx()
        other.plot(*zip(*points), color="tab:red", marker="o", label="word error rate")
        other.set(ylabel="WER, %", ylim=(0, max(50, max(w for _, w in points))))
        other.legend(loc="upper right")
    axis.legend(loc="upper center")
    Path(out).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=130)
    plt.close(figure)


def build_parser() -> argparse.ArgumentParser:
    parser = Parser("nanospeech evaluate curve", __doc__)
    parser.add_argument("--log", required=True, type=Path, help="log.csv of a run, or its folder")
    parser.add_argument("--wer", help="CSV of step, hours, wer")
    parser.add_argument("--loss", help="which to draw; default: the first")
    parser.add_argument("--out", required=True, help="picture to write")
    return parser


@command
def main(argv: list[str] | None = None) -> int:
    args = build_parser().parse_args(argv)
    log = args.log / "log.csv" if args.log.is_dir() else args.log
    draw(log, args.wer, args.out, args.loss)
    print(f"wrote {args.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
