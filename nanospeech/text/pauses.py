"""Pauses: the places of a text that ask for one, and its kind."""

from __future__ import annotations

from itertools import accumulate

from .sentences import CLAUSE_END, split_sentences

CLOSERS = "\"'”’)]»」』）】 \n\t"
SENTENCE_MARKS, CLAUSE_MARKS = ".!?…؟।॥。！？｡．", ",;:،؛—–-、，；："


def pause_after(text: str) -> str:
    """The pause that is due where a text is cut off: one of output.PAUSES; "" within a clause.

    Args:
        text: ends with the spaces and line ends that stand behind it.
    """
    said = text.rstrip()
    behind = text[len(said) :].count("\n")
    if behind >= 2:
        return "heading" if behind > 2 else "paragraph"
    mark = said.rstrip(CLOSERS)[-1:]
    if mark and mark in SENTENCE_MARKS:
        return "sentence"
    return "clause" if (mark and mark in CLAUSE_MARKS) or said.endswith(")") else ""


def pauses_within(text: str) -> dict[int, str]:
    """Where pauses are due within a text of one line, and which: its sentences' and clauses' ends.

    Returns:
        "sentence" or "clause" by the place behind the mark and its spaces, in order.
    """
    found = {match.end(): "clause" for match in CLAUSE_END.finditer(text)}
    found |= dict.fromkeys(accumulate(map(len, split_sentences(text))), "sentence")
    return {end: found[end] for end in sorted(found) if 0 < end < len(text)}
