"""How times are written where they are reported."""

from __future__ import annotations


def clock(seconds: float) -> str:
    """3725 -> 1:02:05."""
    hours, rest = divmod(round(seconds), 3600)
    minutes, rest = divmod(rest, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes:02d}:{rest:02d}"
