"""Lasting: seconds and minutes, where they could be a decade or a ratio."""

from __future__ import annotations

import re

from . import words
from .number_words import number, pair

# before a number of seconds, unless a noun that a decade could describe follows: "for 80s fans"
BEFORE = (
    r"[Ww]ait(?:s|ed|ing)?|[Rr]est(?:s|ed)?|[Hh]old|[Pp]ause|[Ss]leep|[Ff]or|[Aa]fter|[Ii]n"
    r"|[Ee]very|[Ww]ithin|[Tt]akes?|[Tt]ook|[Ll]ast(?:s|ed)"
    r"|[Dd]efault:?|[Dd]efaults to|[Dd]efault (?:is|of)"
    r"|[Aa]t (?:least|most)|(?:less|more) than|up to"
    r"|(?:[Tt]imeout|[Dd]elay|[Ii]nterval|[Dd]uration)(?: of| is|:)"
    r"|(?:[Tt]imer|[Tt]imeout|[Dd]elay) to"
)
NEARLY = "(?:(?:about|another|around|exactly|just|nearly|only|roughly) )?"
BEHIND = words(
    """a an and_then apart at before between each he I if it later longer on or_less or_more or_so
    per she so straight the then they to until we when while with without you"""
)
BEHIND_SECONDS = rf"(?=[.,;:!?)]|\s\(|\s*\Z|\s(?:{'|'.join(BEHIND).replace('_', ' ')})\b)"
# what lasts so many seconds
LASTING = """break breaks buffer cooldown countdown cutoff cycle delay delays exposure gap hold
interval intervals lag limit pause pauses penalty plank planks rest rests sprint sprints timeout
timeouts timer warmup window windows"""
FILMED = "ad|audio|chunks?|clips?|recording|samples?|segments?|spot|teaser|trailer|video"
WEATHER = re.compile(
    r"\b(?:[Hh]ighs?|[Ll]ows?|[Tt]emperatures?|[Tt]emps?|born"
    r"|[Cc]ount(?:ing)?|[Cc]omes?|[Pp]acked|[Ss]old|[Gg]rouped|[Ss]orted)\b"
)
# what two numbers with a colon between them are a ratio or a score with
COMPARED = re.compile(
    r"(?i)\b(?:odds|ratios?|mix\w*|won|wins?|beat\w*|lost|los[es]s?|scor\w+|split\w*|defeat\w*|le[ad]ds?"
    r"|leading|vot\w+|proportions?|dilut\w+|versus|vs|parts?|chances?|draw\w*|drew|favou?r|majority"
    r"|blend\w*|margin|victory|game|match|final)\b"
)
MARK = re.compile(r" (?:mark|point|limit|video|episode)\b")
AROUND = 60  # characters that are looked at on both sides


def _seconds(m: re.Match) -> str:
    count = m[2]
    if m[1].strip() in ("in", "In") and WEATHER.search(
        m.string[max(0, m.start() - 40) : m.start()]
    ):
        return m[0]
    return f"{m[1]}{_counted(count)}"


def _counted(count: str) -> str:
    return f"{number(count)} second" + "s" * (count != "1")


def _described(m: re.Match) -> str:
    """A 30s timeout; "a 90s clip" is one of a decade."""
    if m[3] and m[2] in ("40", "50", "60", "70", "80", "90"):
        return m[0]
    return f"{m[1]}{number(m[2])} second"


def _watch(m: re.Match) -> str:
    """45:30 of minutes and seconds; a ratio or a score is left to dates.py."""
    minutes, seconds = m[1], m[2]
    around = m.string[max(0, m.start() - AROUND) : m.end() + AROUND // 2]
    if int(minutes) < 25 or int(minutes) + int(seconds) == 100 or COMPARED.search(around):
        return m[0]
    if seconds == "00":
        return f"{number(minutes)} minute" + "s" * (not MARK.match(m.string, m.end()))
    return f"{number(minutes)} {pair(seconds)}"


RULES = [
    (
        r"(?<![\w.,])(\d{1,3}) ?m(?:ins?)?\.? (\d{1,2}) ?s(?:ecs?)?\b(?!')",
        lambda m: f"{m[1]} min {m[2]} sec",
    ),
    (
        rf"(?<![\w.,'-])()(\d{{1,3}})s(?= (?:(?:{'|'.join(LASTING.split())})|({FILMED}))\b)",
        _described,
    ),
    (rf"\b((?:{BEFORE}) {NEARLY})(\d{{1,3}})s\b(?!'){BEHIND_SECONDS}", _seconds),
    (r"(= ?)(\d{1,4})s\b", _seconds),
    (r"(?<!\bthe )(?<![\w.,'/-])()(?!(?:1\d|20)\d0 )(\d{1,4}) s(?=[.,;:!?)]|\s|\Z)", _seconds),
    (r"(?<![\w:.,])(\d{2,3}):([0-5]\d)(?![\w:]|[.,-]\d)", _watch),
]
