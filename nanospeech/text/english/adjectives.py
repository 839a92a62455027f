"""Adjectives: whether an amount stands before what it describes: "the 5 km run", "a $5 bill"."""

from __future__ import annotations

import re

from . import words

# "a 45° angle", "a 5 to 10 km run", "a 2 by 2 cm patch"
SINGLE = re.compile(r"\b[Aa]n?\s(?:[\d.,]+ (?:to|by) ){0,2}\Z")
# before what is named: "the 5 nm chip"; what follows must look like a noun then
NAMING = re.compile(
    r"\b(?:[Tt]h(?:e|is|at)|[Mm]y|[Yy]our|[Hh]is|[Hh]er|[Ii]ts|[Oo]ur|[Tt]heir|[Ee](?:ach|very)"
    r"|[Aa]nother|[Oo]ne)\s(?:(?:first|second|new|old|men's|women's|whole|entire) )?"
    r"(?:[\d.,]+ by )?\Z"
)
# and not the second of two words that a noun is never: "the 5 km in front", "the 5 km we ran"
NO_NOUN = words(
    """a about above across after again against ago ahead along also although always among an and
    apart are around as at away back because been before behind below beneath beside between
    beyond both but by can could did do does down due during each either else ever every except far
    few for from had has have he her here high his how however if in inside into is it its just
    later least left less like long longer made many may me might mile miles more most much must my
    near needs never next nor not now of off on once one only onto or our out outside over own past
    per plus rather round she should since so some soon still such tall than that the their them
    then there these they this those through throughout till to today together too took toward
    towards under until up upon us very via was we well went were what when where which while who
    whose why wide will with within without worth would yet you your deep thick away farther
    further higher lower older younger faster slower cut came fell goes got grew kept lay led lost
    makes means put ran rose runs said says stood takes took went north south east west"""
)
NOUN = re.compile(rf" (?!(?:{'|'.join(NO_NOUN)}|[a-z]+(?:ed|ly|ing))\b)[a-z]{{3,}}\b")
# weights and volumes are mostly of what follows, "the 200 g sugar", but "the 500 ml bottle"
HELD = words("g kg ml mL cl l L oz lb gal pt qt")
HOLDER = re.compile(
    r" (?:bag|bar|bottle|box|burger|can|capsule|carton|container|cup|dose|dumbbell|glass|jar|jug"
    r"|kettlebell|pack|package|packet|piece|portion|pouch|sample|serving|size|steak|tank|tin|tub|tube|weight)\b"
)
# what is sold by such a size: "330 ml cans"
HOLDERS = re.compile(
    r" (?:bags|bars|bottles|boxes|cans|capsules|cartons|containers|cups|dumbbells|glasses|jars|jugs"
    r"|packs|packages|packets|pouches|steaks|tanks|tins|tubes|tubs)\b"
)
# never an adjective: "the 2 lbs butter", "the 3 tbsp oil"
COUNTING = words(
    "c. tsp Tsp tbsp Tbsp tbs Tbs doz % pct bpm hrs mins secs yrs wks mos lbs kgs kms pts"
)
# what a sum is an adjective of: "the $64,000 question", "a three-year, $45 million deal"
BOUGHT = words(
    """deal contract bill project fine lawsuit suit loan grant budget package program plan fund
    settlement investment home house mansion bailout gift prize loss profit question offer bid
    takeover acquisition merger gap deficit surplus donation bond salary check"""
)
AROUND = 40  # characters that are looked at before an amount


def is_adjective(m: re.Match, unit: str) -> bool:
    """Whether a measure describes the noun behind it, and stays in the singular."""
    before = m.string[max(0, m.start() - AROUND) : m.start()]
    if SINGLE.search(before):
        return True
    if unit in HELD and HOLDERS.match(m.string, m.end()):
        return True
    if unit in COUNTING or not NAMING.search(before):
        return False
    return bool((HOLDER if unit in HELD else NOUN).match(m.string, m.end()))
