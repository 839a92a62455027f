"""References: how scholars and lawyers name a place in a book: notes, psalms, "514a-520a"."""

from __future__ import annotations

import re

from .dates import stop
from .number_words import cardinal, roman

PLACE = r"\d{1,4}[a-f]"
SMALL = r"[ivxl]{1,7}\b"  # a Roman numeral in small letters: "p. xiv"
PARTS = {"p": "page", "pp": "pages", "sc": "scene", "l": "line", "ll": "lines", "ch": "chapter"}


def _part(m: re.Match) -> str:
    """p. xiv and pp. ix-xii."""
    said = [roman(text.upper()) for text in m[2].split("-")]
    return m[0] if None in said else f"{PARTS[m[1]]} " + " to ".join(cardinal(n or 0) for n in said)


RULES = [
    (r"\bCf\.(?= )", lambda m: "Compare"),
    (r"\bPs(s?)\.? (?=\d{1,3}\b)", lambda m: f"Psalm{m[1]} "),
    (rf"\b(pp?|sc|ll?|ch)\. ({SMALL}(?:-{SMALL})?)(?!\.\w)", _part),
    (
        r"\b([Ff]igs?|Tab|Eqs?|pp?)\. ?(?=[A-Z]\d)",  # "Fig. S1"
        lambda m: (
            {"t": "table", "e": "equation", "p": "page", "f": "figure"}[m[1][0].lower()]
            + "s" * (m[1] == "pp" or m[1][-1] == "s")
            + " "
        ),
    ),
    (r"(?<=[,;(] )(ll?|sc)\. (?=\d)", lambda m: PARTS[m[1]] + " "),
    (r"\bEx\. (?=([A-Z]\b(?!\.\w))|\d)", lambda m: "Exhibit " if m[1] else "Example "),
    (r"ds\.(?<=\b[Ee]ds\.)(?= [A-Z]|,|\))", lambda m: "ditors"),
    (r"ef\.(?=:)(?<=\b[Rr]ef\.)", lambda m: "eference"),
    (r"(?<=[;,(] )fl\. (?=(?:c\. ?)?\d{3,4}s?\b)", lambda m: "flourished "),
    (r"Cir\.(?<=\d[nrst][dht] Cir\.)(?!\w)", lambda m: "Circuit"),
    (r"\b(Op|op|[Ll]oc)\. cit(\.(?!\w))?", lambda m: f"{m[1]} cit" + stop(m, m[2])),
    (r"(?<=[\d,;(] )cl\. ?(?=\d)", lambda m: "clause "),
    (r"\bArt\. (?=[IVX]+,\s+(?:section|cl\.)\s)", lambda m: "Article "),
    (
        r"\b([Ll])(at|ong)\. (?=\d{1,3}(?:\.\d+)?°)",
        lambda m: f"{m[1]}{m[2]}itude ",
    ),
    # a note behind a comma or a number: "p. 45, n. 12", "112 n.3"
    (r"(?<=[\d,;(] )n(n?)\. ?(?=\d{1,4}\b)", lambda m: "notes " if m[1] else "note "),
    (r"(?<=\d) ?ff(\.(?!\w)|(?=[,;)]|\s*\Z))", lambda m: " and following" + stop(m, m[1])),
    # "514a-520a" and "3a-c"
    (rf"(?<![\w.-])({PLACE})\s?-\s?(?={PLACE}(?![\w-])|[a-f](?![\w-]))", lambda m: f"{m[1]} to "),
    # "c. 9%" and "c. $5 million"; years are in abbreviations.py
    (
        r"(?<=[a-z,(] )(?<!vitamin )c\. ?(?=[$£€]?\d{1,3}(?:[%,\s]|k\b|m\b|\.\d))",
        lambda m: "circa ",
    ),
]
