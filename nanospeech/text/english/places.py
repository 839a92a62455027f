"""Places: units of buildings, floors and directions in addresses: "Unit 4/22 George St"."""

from __future__ import annotations

from .dates import stop

SIDES = {"N": "north", "S": "south", "E": "east", "W": "west"}
SIDES |= {"NE": "northeast", "NW": "northwest", "SE": "southeast", "SW": "southwest"}
FAR = r"mi|miles?|km|kilomet(?:er|re)s?|ft|feet|yds|yards|m|met(?:er|re)s|hours?"
RULES = [
    (
        r"\b((?:Unit|Flat|Apartment|Apt|Suite|Shop|Level) \d{1,4}[A-Z]?)"
        r"/(?=\d{1,5}[A-Z]? [A-Z][a-z])",
        lambda m: f"{m[1]}, ",
    ),
    (r"\b[Aa]pt\.? ?# ?(?=\d)", lambda m: "apartment "),
    (
        r"(?<=\d[snrt][tdh]) fl(?:r|\b)(\.(?!\w)|(?=[,;)]|\s*\Z))",
        lambda m: " floor" + stop(m, m[1]),
    ),
    (rf"(?<=\d)( ?(?:{FAR})\.? )([NS]?[EW]|[NS])\.?(?= of\b)", lambda m: m[1] + SIDES[m[2]]),
    (r"\b([Jj]ust |[Dd]ue )([NS]?[EW]|[NS])\.?(?= of\b)", lambda m: m[1] + SIDES[m[2]]),
]
