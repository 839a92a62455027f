"""English: what is written but not spelled out, as the words that are spoken. One subject a module.

Each module has a list of rules, (pattern, function of the match), which normalize.py runs in order.
Patterns must be linear in the text's length: one that begins with a repeat looks behind itself, so
that it starts once in a run of digits or letters and not at each of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable


def words(text: str) -> list[str]:
    """A table's entries."""
    return text.split()


def any_of(entries: Iterable[str]) -> str:
    """A pattern for any of a table's entries, the longest first."""
    return "|".join(re.escape(e) for e in sorted(entries, key=len, reverse=True))
