"""Rules of heteronyms: "close", "row" and others; those of verbs are in heteronym_verbs.py."""

from __future__ import annotations

from collections.abc import Callable

from .context import Around, is_adverb, is_past, is_verb, near, verb_odds
from .english import words
from .english.heteronyms import CUES
from .english.word_classes import (
    ADJECTIVAL,
    ADJECTIVES,
    BE,
    DETERMINERS,
    FEEL,
    HAVE,
    MODALS,
    OBJECTS,
    POSSESSIVES,
    PREPOSITIONS,
    SUBJECTS,
)
from .heteronym_verbs import bow, lead, live, lives, read, tear, wind, wound

DESCRIBING = ADJECTIVES | set(words("major massive shock political one"))


def bass(around: Around) -> str:
    if around.next in CUES["music"]:
        return "music"
    return "fish" if near(around, CUES["fish"], 8) else "music"


def dove(around: Around) -> str:
    down = set(words(
        """into in down under for deep off beneath head headfirst right straight out to toward
        towards"""
    ))  # fmt: skip
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


def several(around: Around) -> str:
    """Words in -s that are no plural of their verb: "analyses", "proceeds"."""
    return "verb" if verb_odds(around, s_form=True) > 0.4 else "several"


def separate(around: Around) -> str:
    """An adjective also behind what is kept: "Keep the two files separate."""
    keeps = set(words("keep keeps kept keeping hold held store stored")) & {*around.left[-6:-1]}
    ends = not around.next or around.next in PREPOSITIONS | {"and"}
    if keeps and ends and not is_verb(around) and around.previous != "and":
        return "noun"
    return "verb" if verb_odds(around, s_form=False) > 0.4 else "noun"


def content(around: Around) -> str:
    if is_verb(around) and around.next in OBJECTS:  # "to content himself"
        return "glad"
    if not around.next and is_adverb(around.previous) and around.previous.endswith("ly"):
        return "glad"
    if around.previous == "and" and set(around.left[-2:-1]) & CUES["moods"]:
        return "glad"  # "happy and content"
    if around.next in ("with", "to") and around.previous not in DETERMINERS | ADJECTIVES:
        return "glad"
    p = around.prior[-1] if around.prior else ""
    if p in FEEL and around.next in PREPOSITIONS | {"and", "but", "just"}:
        return "glad"
    return "glad" if p in BE | FEEL and not around.right[1:] else "matter"


def minute(around: Around) -> str:
    if around.next in CUES["tiny"] or around.previous in ("very", "so", "extremely", "in"):
        return "tiny"
    ends = around.next in ("", "but") or (around.next == "and" and "hour" not in around.right)
    return "tiny" if around.previous in BE and ends else "time"


def aged(around: Around) -> str:
    if around.previous == "the" and not around.right[1:]:
        return "old"
    old = around.next in CUES["people"] | {"care"} and around.previous in DETERMINERS
    return "old" if old else "years"


def invalid(around: Around) -> str:
    if around.next in CUES["people"] and around.previous in DETERMINERS:
        return "ill"
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


def describes(word: str) -> bool:
    """Whether a word before a noun is an adjective, as far as its letters show."""
    ends = word.endswith(("ing", "ed", "est")) or bool(ADJECTIVAL.search(word))
    return ends or word in DESCRIBING


def before_noun(around: Around) -> bool:
    """Whether a word stands between a determiner and a noun, as adjectives do."""
    n = around.next
    pronoun = n in DETERMINERS - {"few"} | OBJECTS | SUBJECTS
    ends = not n or pronoun or n in PREPOSITIONS | BE | HAVE | MODALS
    relative = {"that", "which", "what", "all", "both", "most", "many", "few"}
    named = around.previous in DETERMINERS - relative
    return named and not ends and not is_adverb(n) and n not in ("and", "or", "but", "to")


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


def sat(around: Around) -> str:
    score = around.next in words("score scores prep test tests exam exams math tutor tutors")
    owned = around.previous in POSSESSIVES | {"the", "an"}
    return "initials" if around.word == "SAT" and (score or owned) else "verb"


def august(around: Around) -> str:
    return "month" if around.word[0].isupper() else "grand"


def moped(around: Around) -> str:
    sulked = around.previous in SUBJECTS or around.next in ("around", "about")
    return "sulked" if sulked else "bike"


def row(around: Around) -> str:
    n, p = around.next, around.previous
    if list(around.left[-2:]) == ["in", "a"]:  # "three times in a row"
        caught = set(words("embroiled involved locked caught engaged"))
        return "quarrel" if set(around.left[-3:-2]) & caught or n == "over" else "line"
    adjective = p in CUES["quarrels"]
    if p in ("a", "the") or adjective:
        if n in ("over", "about", "between", "with", "erupted", "broke"):
            return "quarrel"
        if n in HAVE and set(around.right[1:2]) & {"broken", "erupted"}:
            return "quarrel"
    have = set(around.left[-4:]) & HAVE and "a" in around.left[-3:]
    seats = n in words("of house houses home seat seats boat")
    return "quarrel" if have and (adjective or p == "a") and not seats else "line"


RULES: dict[str, Callable[[Around], str]] = {
    "aged": aged,
    "analyses": several,
    "august": august,
    "axes": by_near("lines", "tools", "x y both scale scales coordinate graph plot symmetry"
                    " rotation principal two three horizontal vertical chart labels labeled"),
    "bases": by_next("basis", "grounds", "of for on"),
    "bass": bass,
    "blessed": blessed,
    "bow": bow,
    "bows": bow,
    "close": close,
    "content": content,
    "des": by_next("city", "name", "moines plaines"),
    "deserts": deserts,
    "diagnoses": several,
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
    "misread": read,
    "moped": moped,
    "nice": by_near("city", "kind", "in to from near of at france and", capital=True),
    "polish": polish,
    "proceeds": several,
    "proofread": read,
    "read": read,
    "reading": by_near("town", "verb", "in from to near at of", capital=True),
    "reread": read,
    "row": row,
    "sat": sat,
    "separate": separate,
    "tear": tear,
    "tears": tear,
    "upset": upset,
    "used": used,
    "wind": wind,
    "winds": wind,
    "wound": wound,
}  # fmt: skip
