"""Rules of heteronyms that have one of their own: "read", "live", "wound" and others."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from .context import (
    ADJECTIVAL,
    ADJECTIVES,
    BE,
    DETERMINERS,
    FEEL,
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
    Around,
    after_to,
    before_noun,
    describes,
    is_noun,
    is_past,
    is_plural,
    is_verb,
    near,
    verb_odds,
)
from .english import words
from .english.heteronyms import CUES


def read(around: Around) -> str:
    prior, p = around.prior, around.prior[-1] if around.prior else ""
    if after_to(around) or p in MODALS:
        return "now"
    if set(around.left[-3:]) & MODALS and p in OBJECTS | SUBJECTS:
        return "now"  # "did you read"
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
    past = set(around.before) & PAST_TENSE or set(around.right) & PAST_TENSE
    past = past or any(w.endswith("ed") and len(w) > 4 for w in (*around.before, *around.right))
    if p == "who" and is_plural(around.prior[-2] if around.prior[1:] else ""):
        return "past" if past else "now"  # "students who read daily"
    if p in ("he", "she", "it", "who") or (p and p not in SUBJECTS and not is_plural(p)):
        return "now" if p in ("and", "or") and not past else "past"
    if not p:
        return "past" if around.next == "by" else "now"
    return "past" if past and not habitual(around) else "now"


def recalled(around: Around) -> bool:
    """Whether someone remembers to have read: "I think I read it somewhere"."""
    n, p = around.next, around.prior[-1] if around.prior else ""
    if p not in SUBJECTS - {"who"}:
        return False
    said, says = {*around.right[1:2]}, {*around.right[2:3]}  # "I read that the bank would close"
    if n == "that" and (said & (DETERMINERS | SUBJECTS) or says & (BE | MODALS | HAVE)):
        return p == "i"
    if n == "somewhere":
        return not around.right[1:] or around.right[1] in ("that", "in", "on")
    minds = "think believe guess remember recall swear sure know suppose"
    minded = set(around.left[-3:-1]) & set(words(minds))
    return p == "i" and bool(minded) and n in ("it", "that", "this", "about", "in", "an", "a")


def habitual(around: Around) -> bool:
    """Whether what is said happens now or often: "every night", but not "every book"."""
    near_by = (*around.left, *around.right)
    times = words(
        "day night morning evening week month year time summer winter sunday other single"
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
    if around.next in ("exposure", "contamination", "toxicity", "dust"):
        return "metal"
    if around.next == "in" and around.right[-1] in ("water", "blood", "soil", "paint"):
        return "metal"
    if p in DETERMINERS and around.next == "of":  # "a lead of ten points"
        return "guide"
    if p in words("for with of from contain contains containing contained"):
        ends = not around.next or around.next in PREPOSITIONS | BE | MODALS | {"and", "or", "but"}
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
    if around.next == "from" and not around.previous:
        return "now"
    if is_verb(around):
        return "verb"
    if around.prior[-1:] and around.prior[-1] in BE:  # "is now live at"
        return "now"
    if around.previous in CUES["performed"] | DETERMINERS - POINTERS | {"all-new"}:
        return "now"
    if set(around.left[-4:]) & CUES["performed"] and not is_plural(around.previous):
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
    adjective = p in ADJECTIVES or bool(ADJECTIVAL.search(p)) or p.endswith(("ing", "ed"))
    if not around.next:
        return "life" if adjective else "verb"
    return "life" if adjective and around.next not in ("in", "with", "on", "at") else "verb"


def tear(around: Around) -> str:
    torn = set(words("up down apart off into through open out away along holes pages it them"))
    if is_verb(around) or around.next in torn or around.next in POSSESSIVES:
        return "rip"
    if list(around.left[-2:]) == ["wear", "and"]:
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
    noun = noun or around.previous in words("bullet flesh gunshot head knife stab war")
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
    if around.word.lower() == "bows" and around.left and not is_noun(around):
        tied = near(around, "ribbons ribbon arrows arrow tied hair with")
        return "knot" if tied else "bend"
    return "knot"


def bass(around: Around) -> str:
    return "fish" if near(around, CUES["fish"], 8) else "music"


def dove(around: Around) -> str:
    down = set(
        words("into in down under for deep off beneath head headfirst right straight out to")
    )
    p = around.previous
    noun = p in DETERMINERS or p in ADJECTIVES or p in PREPOSITIONS
    return "dived" if p in SUBJECTS or (around.next in down and p and not noun) else "bird"


def polish(around: Around) -> str:
    if not around.word[0].isupper():
        return "shine"
    if around.before or around.next in BE:
        return "land"
    return "shine" if around.next in DETERMINERS else "land"


def used(around: Around) -> str:
    if around.next != "to":
        return "verb"
    p = around.prior[-1] if around.prior else ""
    then = around.right[1] if len(around.right) > 1 else ""
    if p in BE:
        known = then in DETERMINERS | OBJECTS or then.endswith("ing") or not then
        person = set(around.left) & SUBJECTS - {"it"} or p in words("i'm you're we're they're he's")
        return "habit" if known or (person and then in HAVE | BE) else "verb"
    return "verb" if p in ("be", "been", "being", "can", "were") else "habit"


def close(around: Around) -> str:
    p = around.prior[-1] if around.prior else ""
    if is_verb(around) and around.previous not in ("too", "so", "very"):
        return "shut"
    if around.joined or kept(around):  # "close-up", "keep your friends close"
        return "near"
    if list(around.right) == ["by"]:  # "they live close by."
        return "near"
    if around.next in CUES["near friends"] and not (around.next == "to" and p in ("came", "a")):
        return "near" if around.next not in ("up", "by") or p in BE | FEEL | DETERMINERS else "shut"
    if around.previous in BE | FEEL | set(words(
        """too so very how as stand stood get gets got getting come came comes coming draw drew
        pretty quite extremely really stay kept keep fairly dangerously sit sat live lived
        lives up"""
    )):  # fmt: skip
        return "near"
    if p in DETERMINERS and around.next and around.next not in PREPOSITIONS:
        return "near"
    return "shut"


def kept(around: Around) -> bool:
    """Whether someone is kept or held close, and the clause ends there."""
    if around.next and around.next not in ("and", "to", "by", "at", "in", "but"):
        return False
    left = around.left[-6:]
    verbs = words("keep keeps kept hold holds held pull pulled")
    holds = [i for i, word in enumerate(left) if word in verbs]
    whom = left[holds[-1] + 1 :] if holds else []
    if not whom or set(whom) & (PREPOSITIONS | {"and", "or", "to"}):
        return False
    person = whom[0] in OBJECTS | {"her"} and len(whom) == 1
    return person or (whom[0] in POSSESSIVES and len(whom) > 1)


def content(around: Around) -> str:
    if around.previous == "and" and set(around.left[-2:-1]) & CUES["moods"]:
        return "glad"  # "happy and content"
    if around.next in ("with", "to") and around.previous not in DETERMINERS | ADJECTIVES:
        return "glad"
    return (
        "glad" if (around.prior[-1:] or [""])[0] in BE | FEEL and not around.right[1:] else "matter"
    )


def minute(around: Around) -> str:
    if around.next in CUES["tiny"] or around.previous in ("very", "so", "extremely", "in"):
        return "tiny"
    return "tiny" if around.previous in BE and not around.right else "time"


def aged(around: Around) -> str:
    old = "father mother man woman parents care relatives aunt uncle gentleman lady couple"
    if around.previous == "the" and not around.right[1:]:
        return "old"
    return "old" if around.next in words(old) and around.previous in DETERMINERS else "years"


def invalid(around: Around) -> str:
    ends = not around.next or around.next in PREPOSITIONS | BE | {"who", "and", "had"}
    return "ill" if around.previous in DETERMINERS | ADJECTIVES and ends else "void"


def upset(around: Around) -> str:
    """A noun at the end of "a huge upset", or before "win"; else a verb or an adjective."""
    if around.next in words("win wins victory victories loss losses bid defeat special"):
        return "noun"
    n, left = around.next, list(around.left)
    ends = not n or n in PREPOSITIONS | BE | HAVE | MODALS | {"and", "or", "but", "when"}
    ends = ends or is_past(n)
    while left and describes(left[-1]):
        left.pop()
    if around.previous in ("stomach", "digestive", "title", "shock"):
        return "noun" if ends else "verb"
    few = words("that which what all both more most less much enough such many no any those these")
    if not left or not ends:
        return "verb"
    owner = left[-1].endswith("'s") and left[-1] not in BE  # "Saturday's upset"
    return "noun" if owner or left[-1] in DETERMINERS - set(few) else "verb"


def dogged(around: Around) -> str:
    return "stubborn" if around.next in CUES["persistence"] or before_noun(around) else "verb"


def blessed(around: Around) -> str:
    if around.next in ("are", "be") and not around.previous:  # "Blessed are the meek"
        return "holy"
    saint = around.next in ("virgin", "sacrament", "trinity", "mother")
    return "holy" if saint or before_noun(around) else "verb"


def by_next(other: str, usual: str, cues: str, before: str = "") -> Callable[[Around], str]:
    """A rule: the other reading if the next word is one of some, after one of some if these are."""

    def rule(around: Around) -> str:
        fits = around.next in set(words(cues))
        placed = not before or around.previous in DETERMINERS | ADJECTIVES
        return other if fits and placed else usual

    return rule


def by_near(other: str, usual: str, cues: str, capital: bool = False) -> Callable[[Around], str]:
    """A rule: the other reading if one of some words is near; of a capital within a sentence."""

    def rule(around: Around) -> str:
        named = not capital or (around.word[0].isupper() and bool(around.before))
        return other if named and near(around, cues, 4 if capital else 8) else usual

    return rule


def deserts(around: Around) -> str:
    if around.previous == "just" and set(around.left[-3:-1]) & DETERMINERS:
        return "due"
    return "due" if verb_odds(around, s_form=True) > 0.4 else "sand"


def led(around: Around) -> str:
    lamp = around.word.isupper() and around.next in words("tv tvs uv rgb usb hd uhd lcd")
    return "initials" if lamp else "verb"


def august(around: Around) -> str:
    return "month" if around.word[0].isupper() else "grand"


def moped(around: Around) -> str:
    sulked = around.previous in SUBJECTS or around.next in ("around", "about")
    return "sulked" if sulked else "bike"


def row(around: Around) -> str:
    if around.previous in ("a", "the", "bitter", "diplomatic", "political") and around.next in (
        "over", "about", "between", "with", "erupted", "broke",
    ):  # fmt: skip
        return "quarrel"
    return "line"


RULES: dict[str, Callable[[Around], str]] = {
    "aged": aged,
    "august": august,
    "axes": by_near("lines", "tools", "x y coordinate graph plot symmetry rotation principal two"
                    " three horizontal vertical chart labels labeled"),
    "bases": by_next("basis", "grounds", "of for on"),
    "bass": bass,
    "blessed": blessed,
    "bow": bow,
    "bows": bow,
    "close": close,
    "content": content,
    "des": by_next("city", "name", "moines plaines"),
    "deserts": deserts,
    "dogged": dogged,
    "dove": dove,
    "invalid": invalid,
    "job": by_near("name", "work", "book patience prophet bible", capital=True),
    "lead": lead,
    "led": led,
    "learned": by_next("wise", "verb", "man men woman professor scholar scholars judge society"
                       " societies journals friend colleague counsel doctor people", "a"),
    "live": live,
    "lives": lives,
    "minute": minute,
    "moped": moped,
    "nice": by_near("city", "kind", "in to from near of at france and", capital=True),
    "polish": polish,
    "read": read,
    "reading": by_near("town", "verb", "in from to near at of", capital=True),
    "row": row,
    "tear": tear,
    "tears": tear,
    "upset": upset,
    "used": used,
    "wind": wind,
    "winds": wind,
    "wound": wound,
}  # fmt: skip
