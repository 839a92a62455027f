"""Context: what the words around a word say of it. No tagger: rules of English add up to odds.

Words are looked at up to the next mark, so that a clause is read alike whatever follows.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from itertools import dropwhile
from typing import NamedTuple

from .english import words
from .english.heteronyms import COMMANDS, COMPOUNDS, COMPOUNDS_BEFORE, CUES
from .english.word_classes import (
    ADJECTIVAL,
    ADJECTIVES,
    ADVERBS,
    ANYONE,
    BE,
    CLAUSES,
    DETERMINERS,
    FEEL,
    HAVE,
    INTRODUCTIONS,
    IRREGULAR,
    LET,
    MAKE,
    MANY,
    MODALS,
    NOT_ADVERBS,
    NOT_PLURAL,
    NUMBERS,
    OBJECTS,
    PAST_VERBS,
    POINTERS,
    PREPOSITIONS,
    SEVERAL,
    STARTS,
    SUBJECTS,
    TIMES,
    TO_NOUN,
    VERBAL,
    WHILE,
)

# verbs of commands that a preposition follows
PHRASES = {"advocate": "for", "alternate": "between", "coordinate": "with", "deliberate": "on"}
PHRASES |= {"elaborate": "on"}
HELPING = {"help", "dare"}  # verbs that another may follow: "to help increase"
JOINED_NOUNS = set(words("address conduct contrast present separate"))
NO_OBJECT = PREPOSITIONS | BE | HAVE | {"", "and", "or"}
BREAK = re.compile(r"[,;:.!?()\n]|\s-+\s")
END = re.compile(r"[.!?\n]")
WORD = re.compile(r"[A-Za-z]+(?:['’][A-Za-z]+|(?<=[a-z]{2}s)['’](?=\s))*|\d+")  # "parents'" too
QUOTED = re.compile(r"(?<![\w'’])['‘](?=[A-Za-z])((?:[^'‘’]|(?<=\w)['’](?=\w))*)['’](?!\w)")
REACH = 200  # characters that are looked at on both sides


class Around(NamedTuple):
    """A word and what stands around it, in small letters.

    Attributes:
        word: as written.
        left: words before it in the clause, the nearest last.
        right: words behind it in the clause.
        before: all words before it in the sentence.
        mark: what the clause begins behind: ",", ":" and others, "" for the sentence's start.
        joined: whether a hyphen and a letter follow.
    """

    word: str
    left: Sequence[str]
    right: Sequence[str]
    before: Sequence[str]
    mark: str = ""
    joined: bool = False

    @property
    def previous(self) -> str:
        return self.left[-1] if self.left else ""

    @property
    def next(self) -> str:
        return self.right[0] if self.right else ""

    @property
    def prior(self) -> Sequence[str]:
        """The words before it, without adverbs that stand next to it."""
        n = len(self.left)
        while n and is_adverb(self.left[n - 1]):
            n -= 1
        return self.left[:n]


def around(text: str, start: int, stop: int) -> Around:
    """What stands around a word of a text.

    Args:
        start, stop: its first character, and the one behind its last.
    """
    behind = text[stop : stop + REACH]
    mark = BREAK.search(behind)
    sentence = END.split(text[max(0, start - REACH) : start])[-1]
    breaks = list(BREAK.finditer(sentence))
    clause = sentence[breaks[-1].end() :] if breaks else sentence
    first = '"' if clause.strip() in ('"', "“") else breaks[-1][0].strip() if breaks else ""
    right = behind[: mark.start()] if mark else behind
    joined = behind[:1] == "-" and behind[1:2].isalpha()
    parts = [word_list(s) for s in (clause, right, sentence)]
    return Around(text[start:stop], *parts, mark=first, joined=joined)


def word_list(text: str) -> list[str]:
    """The words of a text in small letters; "parents'" of more than one keeps its apostrophe."""
    found = WORD.findall(QUOTED.sub(r" \1 ", text.lower()))
    return [w.replace("’", "'") for w in found]


def is_adverb(word: str) -> bool:
    return word in ADVERBS or (word.endswith("ly") and len(word) > 4 and word not in NOT_ADVERBS)


def is_plural(word: str) -> bool:
    ends = word.endswith("s") and len(word) > 3 and not NOT_PLURAL.search(word)
    return ends or word in MANY


def is_past(word: str) -> bool:
    """Whether a word is a verb of the past, as far as its letters show."""
    return word in PAST_VERBS or (
        word.endswith("ed") and len(word) > 4 and (not word.endswith("eed") or word == "agreed")
    )


def after_to(around: Around) -> bool:
    """Whether "to" stands before a word as of an infinitive."""
    prior = around.prior
    return bool(prior) and prior[-1] == "to" and not (len(prior) > 1 and prior[-2] in TO_NOUN)


def verb_odds(around: Around, s_form: bool) -> float:
    """Above 0 if a word is more likely a verb than a noun or an adjective.

    Args:
        s_form: whether it ends in the -s of a plural or of the third person.
    """
    return before_odds(around, s_form) + behind_odds(around, s_form)


def before_odds(around: Around, s_form: bool) -> float:
    """What the words before a word say."""
    prior = around.prior
    direct, p = around.previous, prior[-1] if prior else ""
    if p in ("", "and") and commands(around, s_form):
        return 3.0
    if not p:
        phrase = PHRASES.get(around.word.lower()) == around.next
        imperative = (around.next in DETERMINERS | OBJECTS and not s_form) or phrase
        return 1.5 if imperative else 1.0 if direct else -1.2
    if p == "to" and around.word.lower() == "graduate" and around.next in CUES["schools"]:
        return -4.0  # "went to graduate school"
    if p == "to" and prior[-2:-1] == ["due"] and set(prior[-4:-2]) & BE and not s_form:
        return 0.6  # "is due to resume", "is due to conflict"
    if after_to(around) or p in MODALS:
        return -1.5 if s_form else 4.0
    if p in ANYONE and set(around.left) & MODALS and not s_form:  # "Does anyone object?"
        return 3.0
    if p in OBJECTS and len(prior) > 1 and prior[-2] in LET:
        return -1.0 if s_form else 3.0
    if p in SUBJECTS:
        return 4.0 if p not in ("it", "you") or not s_form else 3.0
    if p == "to":
        return -3.0
    if p in ("that", "which"):
        relative = around.next in DETERMINERS or is_plural(prior[-2] if prior[1:] else "")
        return 1.0 if relative or s_form else -1.0
    there = around.word.lower() in ("present", "absent")
    if there and (p == "those" or not around.next):  # "those present", "the people present"
        return -3.0
    if p in SEVERAL and not s_form:  # "many suspect": a noun would be a plural
        return -3.0 if is_plural(around.next) else 1.5
    if p in ("this", "that") and s_form and around.next in DETERMINERS | OBJECTS:
        return 1.0  # "This presents a challenge."
    if p in NUMBERS and s_form:
        return -4.0
    if p in DETERMINERS or p.endswith(("'s", "s'")):
        if p == "her" and len(prior) > 1 and prior[-2] in LET:
            return 3.0
        return -2.5 if p in POINTERS else -4.0
    if p in PREPOSITIONS:
        return -3.5
    if p in MAKE:  # "makes use of", "makes perfect"
        return -3.0
    if p in BE or p in FEEL:
        return -3.5
    if p in HAVE:
        return -2.5
    if p in ("and", "or", "but", "nor"):
        return conjoined(around, prior, s_form)
    return loose_odds(around, prior, s_form)


def commands(around: Around, s_form: bool) -> bool:
    """Whether a word at the start of a clause is a command: "Combine flour and salt."

    Or behind "and" where the sentence begins with one: "Beat the eggs and combine with milk."
    Not in compounds ("record sales"), nor as the subject of a verb ("Use in cars is limited").
    """
    word, n = around.word.lower(), around.next
    if s_form or word not in COMMANDS or not n or around.joined:
        return False
    if n in COMPOUNDS.get(word, ()) or n in ("of", "available"):
        return False
    if around.prior:
        pronoun = n in DETERMINERS | OBJECTS
        if word in JOINED_NOUNS and not pronoun:  # "Write your name and address on the form."
            return False
        return ordered(around.before) and n not in ("and", "or")
    if around.left or (around.mark == "," and not introduced(around)):
        return False
    if n in ("and", "or"):
        return around.right[2:3] != [] and around.right[2] in DETERMINERS | OBJECTS
    after = around.right[1] if around.right[1:] else ""
    closed = DETERMINERS | PREPOSITIONS | OBJECTS | {"", "to", "and", "or"}
    if is_past(n) and (after in closed or is_adverb(after)):  # but "use boiled potatoes"
        return False
    return n in DETERMINERS | OBJECTS or not has_verb(around.right)


def introduced(around: Around) -> bool:
    """Whether what stands before a comma leads to a clause: "If you can, use ..."."""
    last = around.before[-1] if around.before else ""
    begins = around.before[0] if around.before else ""
    follows = ordered(around.before)
    adjective = last in ADJECTIVES or ADJECTIVAL.search(last)
    if adjective and (begins in PREPOSITIONS or follows):  # "in large, separate rooms"
        return False
    return begins in INTRODUCTIONS or is_adverb(begins) or follows


def ordered(words: Sequence[str]) -> bool:
    """Whether a sentence begins with a command: "Peel ...", "Zip the ..."."""
    leads = {"first", "next", "please"}
    begins = [*dropwhile(lambda word: is_adverb(word) or word in leads, words)]
    if len(begins) < 2:
        return False
    closed = DETERMINERS | PREPOSITIONS | SUBJECTS | CLAUSES | MODALS | BE | HAVE | {"to", "and"}
    return begins[0] in STARTS or (begins[1] in DETERMINERS and begins[0] not in closed)


def has_verb(right: Sequence[str]) -> bool:
    """Whether words that follow a noun or a command have a verb of which it is the subject."""
    for i, word in enumerate(right):
        then = right[i + 1] if right[i + 1 :] else ""
        if word in CLAUSES | SUBJECTS or (word in ("and", "or", "but") and then in MODALS):
            return False
        if word in MODALS and (not then or then in PREPOSITIONS):  # "one can of beans", "in May"
            continue
        if word in (BE | HAVE | MODALS | PAST_VERBS) - {"having", "being", "please"}:
            return "'" not in word or word.endswith("n't")  # "soap that you've"
    return False


def conjoined(around: Around, prior: Sequence[str], s_form: bool) -> float:
    """After "and": what is before it is of the same kind."""
    lately = prior[-5:-1]
    word = around.word.lower()
    no_object = NO_OBJECT | COMPOUNDS.get(word, frozenset())
    if len(prior) == 1 and word in COMMANDS and around.next not in no_object:
        lately = around.before[-8:-1]  # "you can export them, or import contacts"
    verbs = any(w in MODALS or w == "to" for w in lately)
    nouns = any(w in DETERMINERS for w in lately[-2:])
    if verbs and not (nouns and s_form):
        return 0.5 if nouns else 2.0
    return -1.5 if nouns else 1.2 if s_form and len(prior) > 2 else -0.3


def loose_odds(around: Around, prior: Sequence[str], s_form: bool) -> float:
    """After a word of no closed class: a subject, or an adjective, or a verb."""
    p = prior[-1]
    if p in COMPOUNDS_BEFORE.get(around.word.lower(), ()):  # "school graduates"
        return -2.0
    using = p in ADJECTIVES or (p.endswith("ing") and around.left[0] != "as")
    if s_form and not around.next and around.left[0] in WHILE and around.left[1:] and not using:
        return 2.0  # "As demand increases, prices rise.", not "When using objects, ..."
    adverb = 1.0 if around.previous != p else 0.0
    if p in ADJECTIVES or ADJECTIVAL.search(p) or p.replace("-", "").isdigit():
        return -2.5 + adverb
    past = is_past(p) or p in IRREGULAR
    if s_form and past and relative(prior):  # "the car he bought uses"
        return 0.9
    if past or p.endswith(("ing", "ed")) or VERBAL.search(p):
        return -1.5 + adverb
    if s_form and prior[-2:-1] and prior[-2] in MODALS | {"to"} and p not in HELPING:
        return -1.5  # "to buy presents"
    single = prior[-2:-1] and (
        prior[-2] in ("a", "an") or (p == "police" and prior[-2] in PREPOSITIONS)
    )
    if is_plural(p) and single and not s_form:  # "a police escort", "under police escort"
        return -1.0
    if is_plural(p):
        return (-1.0 if s_form else 1.6) + adverb
    return (0.9 if s_form else -0.5) + 1.5 * adverb


def relative(prior: Sequence[str]) -> bool:
    """Whether words end with a noun and a clause that describes it: "the car that he bought"."""
    before = [word for word in prior[-5:-1] if word not in ("that", "which")]
    named = len(before) > 2 and before[-3] in DETERMINERS and before[-2] not in TIMES
    return named and before[-1] in SUBJECTS


def behind_odds(around: Around, s_form: bool) -> float:
    """What the words behind a word say."""
    n = around.next
    if not n:
        return -0.5
    if n in DETERMINERS | OBJECTS and n not in ("that", "which", "what", "you"):
        return 2.5
    if n == "of":
        return -3.0
    if n in BE | HAVE | MODALS:
        return -2.5
    if n in ("that", "whether", "how", "what"):
        return 0.8
    if n in PREPOSITIONS | {"to", "and", "or", "but"}:
        return -0.3
    if is_adverb(n):
        return 0.8
    if is_past(n):
        return -1.5
    return 0.6 if is_plural(n) and not s_form else 0.0


def is_verb(around: Around) -> bool:
    """Whether the words before a word make it a verb."""
    prior = around.prior
    p = prior[-1] if prior else ""
    made = p in OBJECTS | {"her"} and len(prior) > 1 and prior[-2] in LET
    return after_to(around) or p in MODALS | SUBJECTS or made


def is_noun(around: Around) -> bool:
    """Whether a determiner or a preposition stands before a word."""
    p = around.previous
    return p in DETERMINERS | PREPOSITIONS or p.endswith(("'s", "s'")) or p in ADJECTIVES


def near(around: Around, cues: str | Collection[str], distance: int = 12) -> bool:
    """Whether one of some words stands close by in the clause or before it."""
    found = {*around.before[-distance:], *around.right[:distance]}
    sought = words(cues) if isinstance(cues, str) else cues
    return any(w.removesuffix("'s") in sought for w in found)
