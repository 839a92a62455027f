"""Arguments: whether what a caller gives is of the type that is wanted."""

from __future__ import annotations

import argparse
import operator
import reprlib
from typing import Any

from .errors import InputError


def check_kind(name: str, value: Any, kind: type | tuple[type, ...], wanted: str) -> None:
    """Checks the type of an argument.

    Args:
        name: of the argument.
        value: what was given for it.
        kind: its type, or several.
        wanted: what to give, in words.

    Raises:
        InputError: it is of another type.
    """
    if not isinstance(value, kind):
        raise InputError(f"{name} should be {wanted}, got {reprlib.repr(value)}")


def number(name: str, value: Any, other: str = "") -> float:
    """A number of Python, or of NumPy, as a float.

    Args:
        name: of the argument.
        value: what was given for it.
        other: what else may be given, in words.

    Raises:
        InputError: it is no number; a string of digits is none.
    """
    try:
        return float(operator.truediv(value, 1))  # which a string has not
    except (TypeError, ValueError, OverflowError):
        wanted = f"a number or {other}" if other else "a number"
        raise InputError(f"{name} should be {wanted}, got {reprlib.repr(value)}") from None


def number_or(text: str, *nothing: str) -> float | None:
    """A number that a flag is given, or None for one of these words, the first of which is told.

    Raises:
        ArgumentTypeError: it is neither.
    """
    try:
        return None if text.lower() in nothing else float(text)
    except ValueError:
        wanted = f"a number or {nothing[0]}"
        raise argparse.ArgumentTypeError(f"{text!r} should be {wanted}") from None


def whole(name: str, value: Any) -> int:
    """A whole number of Python, or of NumPy, as an int.

    Raises:
        InputError: it is none; 2.0 is none.
    """
    try:
        return operator.index(value)
    except TypeError:
        got = reprlib.repr(value)
        raise InputError(f"{name} should be a whole number, got {got}") from None
