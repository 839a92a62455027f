"""Flags of SampleOptions, the speed and the length of speech, for whatever command speaks."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from .arguments import number_or
from .config import GUIDANCES, METHODS, SCHEDULES, STEPS, SampleOptions

FLAGS = {
    "steps": "--steps",
    "method": "--method",
    "cfg_strength": "--cfg",
    "sway_sampling_coef": "--sway-coef",
    "schedule": "--schedule",
    "guidance": "--guidance",
    "zero_init": "--zero-init",
    "cfg_from": "--cfg-from",
    "cfg_until": "--cfg-until",
    "cfg_rescale": "--cfg-rescale",
    "temperature": "--temperature",
}
OWN = {  # defaults that a release folder has
    "steps": f"the model's own, 2 for voices that ship, else mostly {STEPS}",
    "cfg_strength": "the voice's or the model's own, 2 or 3",
    "cfg_rescale": "the model's own, 0, or 1 after recordings",
    "temperature": "the model's own, 0.4 of what ships, else 1",
}
CHOICES = {"method": METHODS, "schedule": SCHEDULES, "guidance": GUIDANCES}


def name_or_seconds(text: str) -> str | float:
    """The value of --duration: a number of seconds, or a name."""
    try:
        return float(text)
    except ValueError:
        return text


def number_or_none(text: str) -> float | None:
    """A number, or None for "none"."""
    return number_or(text, "none")


def integers(text: str) -> list[int]:
    """1,2,3 as a list without repetitions."""
    try:
        return list(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError:
        wanted = "whole numbers with commas between them, as 0,1,2"
        raise argparse.ArgumentTypeError(f"{text!r} should be {wanted}") from None


def add_sampling(parser: Any, measures: bool = False) -> None:
    """Adds the flags to a parser or a group of one.

    Args:
        parser: whose add_argument is called.
        measures: for a command that measures: each flag has the field's whole name too, and
            --steps takes several numbers.
    """
    for field in dataclasses.fields(SampleOptions):
        flags = [FLAGS[field.name]]
        if measures and (whole := "--" + field.name.replace("_", "-")) not in flags:
            flags.append(whole)
        kinds = {"int": int, "int | None": int, "float": float}
        choices = CHOICES.get(field.name)
        kind: Any = str if choices else kinds.get(str(field.type), number_or_none)
        default: Any = field.default
        if measures and field.name == "steps":
            kind = integers
        shown = OWN.get(field.name, field.default)
        parser.add_argument(
            *flags,
            dest=field.name,
            type=kind,
            default=default,
            choices=choices,
            metavar=None if choices else "N",
            help=f"{field.metadata.get('help')} (default: {shown})",
        )
    add = parser.add_argument
    add("--speed", type=float, default=1.0, metavar="N", help="2 is twice as fast (default: 1)")
    add(
        "--duration",
        type=name_or_seconds,
        metavar="HOW",
        help="length of the speech: SECONDS in all, instead of --speed; or its source: model,"
        " tokens (an aligned model's own), both, or rule (the prompt's pace) (default: the first"
        " available of both, model, rule)",
    )
