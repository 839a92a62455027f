"""Readings of verbs that are other words too: "read", "lead", "live", "tear", "wind", "wound"."""

from __future__ import annotations

from itertools import pairwise

from .context import Around, after_to, introduced, is_noun, is_past, is_plural, is_verb, near
from .english import words
from .english.heteronyms import CUES
from .english.word_classes import (
    ADJECTIVAL,
    ADJECTIVES,
    BE,
    DETERMINERS,
    HAVE,
    LET,
    MODALS,
    NOW,
    OBJECTS,
    PAST_TENSE,
    POINTERS,
    POSSESSIVES,
    PREPOSITIONS,
    SUBJECTS,
)

MINDS = set(words("think believe guess remember recall swear sure know suppose"))


def read(around: Around) -> str:
    prior, p = around.prior, around.prior[-1] if around.prior else ""
    if after_to(around) or p in MODALS:
        return "now"
    if set(around.left[-3:]) & MODALS and p in OBJECTS | SUBJECTS and prior[-2] not in MINDS:
        return "now"  # "did you read", but "I don't think he read"
    if p in HAVE | BE | {"got", "get", "well", "having"} or around.previous in ("well", "widely"):
        return "past"
    if set(prior[-3:-1]) & HAVE and p in OBJECTS | SUBJECTS:
        return "past"  # "had they read"
    if p in ("most", "least") and around.left[-2:-1] and around.left[-2] in DETERMINERS:
        return "past"  # "the most read article"
    if p in DETERMINERS - OBJECTS | ADJECTIVES:
        return "now"
    if p in OBJECTS - {"it"} and prior[-2:-1] and prior[-2] in LET:
        return "now"  # "made us read"
    if recalled(around):
        return "past"
    if not around.right and [*around.before] == ["when", p]:  # "When I read, I relax."
        return "now"
    past = set(around.before) & PAST_TENSE or set(around.right) & PAST_TENSE
    # "read printed newspapers" has no second verb
    past = past or any(w.endswith("ed") and len(w) > 4 for w in (*around.before, *around.right[1:]))
    past = past or any("this morning" in " ".join(side) for side in (around.left, around.right))
    if p == "who" and is_plural(around.prior[-2] if around.prior[1:] else ""):
        return "past" if past else "now"  # "students who read daily"
    if p in ("he", "she", "it", "who") or (p and p not in SUBJECTS and not is_plural(p)):
        return "now" if p in ("and", "or") and not past else "past"
    if not p:
        told = past and around.mark == "," and not introduced(around)
        return "past" if around.next == "by" or told else "now"  # "She sat down, read it and left."
    return "past" if past and not habitual(around) else "now"


def recalled(around: Around) -> bool:
    """Whether someone remembers to have read: "I think I read it somewhere"."""
    n, p = around.next, around.prior[-1] if around.prior else ""
    if p not in SUBJECTS - {"who"}:
        return False
    if around.previous == "just" or list(around.before[-4:-1]) == ["by", "the", "time"]:
        return True
    once = not habitual(around) and "will" not in around.before
    if once and p in ("i", "they") and around.before[:1] and around.before[0] in ("as", "while"):
        return n in DETERMINERS  # "As I read the email, I laughed."
    if once and p in ("i", "we") and (n == "about" or (p == "i" and n in POSSESSIVES - {"my"})):
        return not set(around.before) & {"if", "when", "do"}  # "I read your message"
    said, says = {*around.right[1:2]}, {*around.right[2:3]}  # "I read that the bank would close"
    if n == "that" and (said & (DETERMINERS | SUBJECTS) or says & (BE | MODALS | HAVE)):
        return p == "i"
    if n == "somewhere":
        return not around.right[1:] or around.right[1] in ("that", "in", "on")
    minded = set(around.left[-3:-1]) & MINDS
    return p == "i" and bool(minded) and n in ("it", "that", "this", "about", "in", "an", "a")


def habitual(around: Around) -> bool:
    """Whether what is said happens now or often: "every night", but not "every book"."""
    near_by = (*around.left, *around.right)
    times = words(
        """day night morning evening week month year time summer winter other single sunday monday
        tuesday wednesday thursday friday saturday weekend"""
    )
    others = set(around.before) & PAST_TENSE - {"when"}
    today = set(around.before) & set(words("am is are i'm don't can have has do does"))
    if "when" in around.before and today and not others:
        return True  # "when I am tired I read"
    every = any(a == "every" and b in times for a, b in pairwise(near_by))
    return every or bool(set(near_by) & (NOW - {"every"}))


def lead(around: Around) -> str:
    p = around.previous
    if p == "to" and set(around.left[-3:-1]) & set(words("exposure exposed exposing exposures")):
        return "metal"
    if is_verb(around) or around.next in set(words("to us the them him her")):
        return "guide"
    if {"life", "lives"} & {*around.right[:3]} - {around.next} and around.next not in PREPOSITIONS:
        return "guide"  # "soldiers lead quiet lives"
    if around.next in ("exposure", "contamination", "toxicity", "dust"):
        return "metal"
    if around.next == "in" and around.right[-1] in ("water", "blood", "soil", "paint"):
        return "metal"
    if p in DETERMINERS and around.next == "of":  # "a lead of ten points"
        return "guide"
    held = words("contain contains contained containing")
    if p in ("no", "any", "some") and around.left[-2:-1] and around.left[-2] in held:
        return "metal"
    if p in words("for with without of from contain contains containing contained"):
        joined = PREPOSITIONS | BE | HAVE | MODALS | {"and", "or", "but"}
        ends = not around.next or around.next in joined
        return "metal" if ends or near(around, CUES["metals"], 6) else "guide"
    return "metal" if near(around, CUES["metals"], 6) else "guide"


def live(around: Around) -> str:
    if around.joined:  # "live-streamed", but "a live-in nanny"
        return "verb" if around.next == "in" else "now"
    if around.next in CUES["shows"] and not is_verb(around):
        return "now"
    whom = around.previous in OBJECTS - {"you"}
    if whom and set(around.left[-5:-1]) & CUES["performed"]:  # "watched it live"
        return "now"
    if not around.right and set(around.left[-2:-1]) & BE:  # "is it live"
        return "now"
    if around.next == "from" and around.previous in ("", "report", "reports"):
        return "now"
    if is_verb(around):
        return "verb"
    if around.prior[-1:] and around.prior[-1] in BE:  # "is now live at"
        return "now"
    if around.previous in CUES["performed"] | DETERMINERS - POINTERS | {"all-new"}:
        return "now"
    if set(around.left[-4:]) & CUES["performed"] and not is_plural(around.previous):
        return "now"
    if is_past(around.previous) and is_plural(around.next):  # "they cooked live lobsters"
        return "now"
    return "verb"


def lives(around: Around) -> str:
    if around.next in ("matter", "mattered"):  # "Black Lives Matter"
        return "life"
    p = around.previous
    if p in DETERMINERS - {"that", "which", "this", "each", "neither", "either"}:
        return "life"
    if p in CUES["saved"] | PREPOSITIONS or around.next in BE | HAVE:
        return "life"
    if p in ("and", "or"):
        return "verb" if around.next in PREPOSITIONS else "life"
    if set(around.left[-4:-1]) & set(words("lead leads led leading live lived living")):
        return "life"  # "they led quiet lives"
    adjective = p in ADJECTIVES or bool(ADJECTIVAL.search(p)) or p.endswith(("ing", "ed"))
    if not around.next:
        return "life" if adjective else "verb"
    return "life" if adjective and around.next not in ("in", "with", "on", "at") else "verb"


def tear(around: Around) -> str:
    if around.word.lower() == "tears" and around.previous == "to":  # "moved to tears"
        return "eye"
    torn = set(words("up down apart off into through open out away along holes pages it them"))
    if is_verb(around) or around.next in torn or around.next in POSSESSIVES:
        return "rip"
    if list(around.left[-2:]) == ["wear", "and"]:
        return "rip"
    if around.previous == "that" and is_plural(around.left[-2] if around.left[1:] else ""):
        return "rip"  # "muscles that tear easily"
    clause = is_plural(around.previous) and around.next not in BE | HAVE
    if clause and torn - {"down", "up", "from"} & {*around.right[1:3]}:  # "storms tear roofs off"
        return "rip"
    if around.word.lower() != "tear" or near(around, CUES["crying"], 7):
        return "eye"
    within = around.next == "in" and around.right[1:] and around.right[1] in DETERMINERS | OBJECTS
    return "rip" if within or near(around, CUES["cloth"], 7) else "eye"


def wind(around: Around) -> str:
    turns = set(words("up down through around along its back the your his her it"))
    if is_verb(around) and around.previous not in ("you", "it"):
        return "turn"
    if is_noun(around):
        return "air"
    if around.previous in words("road roads path paths trail trails river stream staircase") and (
        around.next in turns | PREPOSITIONS | {"past", "uphill", "downhill"}
    ):
        return "turn"
    return "turn" if around.next in turns else "air"


def wound(around: Around) -> str:
    turned = set(
        words(
            """up down around round through its along back about toward towards over tightly past
            among"""
        )
    )
    noun = around.previous in DETERMINERS - POINTERS | ADJECTIVES | PREPOSITIONS
    if around.previous in ("he", "she", "it"):
        return "turned"
    if around.prior[-1:] and around.prior[-1] in HAVE and around.next in turned | OBJECTS:
        return "turned"
    noun = noun or around.previous in words("bullet flesh gunshot head knife stab war")
    coiled = set(
        words("way clock watch rope wool yarn string thread bandage bandages tape cable scarf")
    )
    if coiled & set(around.right[:4]) and not noun:
        return "turned"
    if around.next in POSSESSIVES | {"a", "an"} and around.left and not noun:
        return "hurt" if is_verb(around) else "turned"  # "the nurse wound a bandage"
    return "turned" if around.next in turned and not noun else "hurt"


def bow(around: Around) -> str:
    if is_verb(around):
        return "bend"
    if around.previous in words("violin cello viola fiddle hunting long bass") or (
        near(around, "violin cello viola fiddle strings arrow arrows archer quiver ribbon hair", 6)
    ):
        return "knot"
    if near(around, CUES["ships"], 10):
        return "bend"
    if around.next in ("down", "out", "before", "to", "politely", "deeply"):
        return "bend"
    if around.next in POSSESSIVES and set(around.right[1:3]) & {"head", "heads"}:
        return "bend"
    given = around.left[-4:]
    if any(a in words("give gives gave giving") and b in ("a", "one") for a, b in pairwise(given)):
        return "bend"
    if set(around.left[-3:]) & set(
        words("take took takes taking deep final last polite slight low")
    ):
        return "bend"
    be = bool(around.prior) and around.prior[-1] in BE | HAVE  # "there were bows"
    if around.word.lower() == "bows" and around.left and not is_noun(around) and not be:
        tied = near(around, "ribbons ribbon arrows arrow tied hair with")
        return "knot" if tied else "bend"
    return "knot"
