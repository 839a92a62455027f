"""References: how scholars and lawyers name a place in a book: notes, psalms, "514a-520a"."""

from __future__ import annotations

from .dates import stop

PLACE = r"\d{1,4}[a-f]"
RULES = [
    (r"\bCf\.(?= )", lambda m: "Compare"),
    (r"\bPs(s?)\.? (?=\d{1,3}\b)", lambda m: f"Psalm{m[1]} "),
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
