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


# words that begin sentences and hardly ever continue a name
STARTERS = words(
    """A An The It He She We They I You This That These Those There Then But And So If In On At
    As For When While What Who Why How His Her Its Our Their My Your No Not Yes Now Here
    After Before Since With Some Many Most All Both Each Every People To From By Is Was Are
    Do Did Does Where Which Let Please Meanwhile However Although Though Because Unless Until Once
    Whenever Wherever Whether Today Yesterday Tomorrow Tonight Later Afterwards Recently Nobody
    Everyone Everybody Someone Somebody Anyone Anybody Nothing Something Everything Another Several
    During Despite Unlike Without Between Among Within Throughout Perhaps Maybe Instead Finally
    Eventually Suddenly Unfortunately Fortunately Sometimes Usually Often Nevertheless Therefore
    Moreover Furthermore Otherwise Besides Also Again Two Three Were Can Could Would Should Has Have
    Had Don't Didn't Doesn't Won't Can't Isn't Wasn't Neither Nor Others"""
)
STARTS = rf"(?:{'|'.join(STARTERS)})"


def any_of(entries: Iterable[str]) -> str:
    """A pattern for any of a table's entries, the longest first."""
    return "|".join(re.escape(e) for e in sorted(entries, key=len, reverse=True))
