"""Context: what the words around a word say of it. No tagger: rules of English add up to odds.

Words are looked at up to the next mark, so that a clause is read alike whatever follows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from .english import words

POSSESSIVES = set(words("my your his her its our their whose"))
DETERMINERS = POSSESSIVES | set(words(
    """a an the this that these those every each some any no another either neither both many few
    several all most more less such much enough which what"""
))  # fmt: skip
POINTERS = set(words("this that these those all most many both some each few what which more such"))
SEVERAL = set(words("many few both these those several"))
SUBJECTS = set(words("i you he she it we they who"))
OBJECTS = set(words("it them him us me you himself herself itself themselves myself yourself"))
MODALS = set(words(
    """will would can could may might must shall should do does did don't doesn't didn't won't
    wouldn't can't couldn't shouldn't mustn't cannot let's please gonna i'll you'll he'll she'll
    it'll we'll they'll i'd you'd he'd she'd we'd they'd that'll who'll who'd"""
))  # fmt: skip
BE = set(words(
    """is are was were be been being am isn't aren't wasn't weren't i'm you're we're they're he's
    she's it's that's there's who's what's here's"""
))  # fmt: skip
FEEL = set(words(
    """seem seems seemed feel feels felt look looks looked sound sounds sounded become becomes
    became remain remains remained stay stays stayed"""
))  # fmt: skip
HAVE = set(words("have has had having i've you've we've they've haven't hasn't hadn't"))
PREPOSITIONS = set(words(
    """of in on at by for with from into about under over between against during without as than per
    through after before since until within among across toward towards despite upon like behind
    beyond via onto near regarding off"""
))  # fmt: skip
ADVERBS = set(words(
    """not never also always often usually still just even really then ever rarely seldom
    sometimes soon now again already almost only simply better fully further actively"""
))  # fmt: skip
ADJECTIVES = set(words(
    """new old big small good great high low recent current major last next first second third
    own other same long short best worst better large huge young hot cold single full main
    key free fair strong weak sharp sudden steady hard early late poor rich dead safe heavy
    fresh open top prime world double whole entire important different permanent constant
    sufficient independent significant relevant violent silent urgent bitter little early
    clear certain tough broad rough direct simple secret"""
))  # fmt: skip
TO_NOUN = set(words(
    """according due prior subject access exposed opposed response thanks addition contrast close
    regard relation similar reference contribution contributed object objected leads led devoted
    key answer resort attention damage owing reaction sentenced return returned"""
))  # fmt: skip
LET = set(
    words(
        """let lets letting make makes made making help helps helped watch watched see saw hear
        heard have"""
    )
)
NOT_ADVERBS = set(
    words(
        """family supply reply early only apply daily weekly monthly friendly july italy ally
        lovely likely"""
    )
)
MANY = set(words("police people children men women staff others"))  # nouns that are plural
NOT_PLURAL = re.compile("(?:ss|us|is|'s)$")
ADJECTIVAL = re.compile("(?:al|ive|ous|ic|ful|less|able|ible|ary|ern|est|ish|ese)$")
VERBAL = re.compile("(?:ize|ise|ify)$")
PAST_VERBS = set(words("was were had did said went came fell rose grew ended began helped led"))
PAST_TENSE = set(words(
    """was were had did said went took came saw got made told knew thought found gave felt left
    heard sat stood laughed cried spent fell rose grew began kept brought wrote yesterday
    ago finished slept learned wanted loved when once earlier last"""
))  # fmt: skip
NOW = set(words("every always often usually never sometimes now daily tonight today rarely seldom"))


BREAK = re.compile(r"[,;:.!?()\n]|\s-+\s")
END = re.compile(r"[.!?\n]")
WORD = re.compile(r"[A-Za-z]+(?:['’][A-Za-z]+)*|\d+")
REACH = 200  # characters that are looked at on both sides


class Around(NamedTuple):
    """A word and what stands around it, in small letters.

    Attributes:
        word: as written.
        left: words before it in the clause, the nearest last.
        right: words behind it in the clause.
        before: all words before it in the sentence.
    """

    word: str
    left: Sequence[str]
    right: Sequence[str]
    before: Sequence[str]

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
    clause = BREAK.split(sentence)[-1]
    right = behind[: mark.start()] if mark else behind
    parts = [
        [w.replace("’", "'") for w in WORD.findall(s.lower())] for s in (clause, right, sentence)
    ]
    return Around(text[start:stop], *parts)


def is_adverb(word: str) -> bool:
    return word in ADVERBS or (word.endswith("ly") and len(word) > 4 and word not in NOT_ADVERBS)


def is_plural(word: str) -> bool:
    ends = word.endswith("s") and len(word) > 3 and not NOT_PLURAL.search(word)
    return ends or word in MANY


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
    if not p:
        imperative = around.next in DETERMINERS | OBJECTS and not s_form
        return 1.5 if imperative else 1.0 if direct else -1.2
    if after_to(around) or p in MODALS:
        return -1.5 if s_form else 4.0
    if p in OBJECTS and len(prior) > 1 and prior[-2] in LET:
        return -1.0 if s_form else 3.0
    if p in SUBJECTS:
        return 4.0 if p not in ("it", "you") or not s_form else 3.0
    if p == "to":
        return -3.0
    if p in ("that", "which"):
        relative = around.next in DETERMINERS or is_plural(prior[-2] if prior[1:] else "")
        return 1.0 if relative or s_form else -1.0
    if p in SEVERAL and not s_form:  # "many suspect": a noun would be a plural
        return -3.0 if is_plural(around.next) else 1.5
    if p in DETERMINERS or p.endswith(("'s", "s'")):
        if p == "her" and len(prior) > 1 and prior[-2] in LET:
            return 3.0
        return -2.5 if p in POINTERS else -4.0
    if p in PREPOSITIONS:
        return -3.5
    if p in BE or p in FEEL:
        return -3.5
    if p in HAVE:
        return -2.5
    if p in ("and", "or", "but", "nor"):
        return conjoined(prior, s_form)
    return loose_odds(around, prior, s_form)


def conjoined(prior: Sequence[str], s_form: bool) -> float:
    """After "and": what is before it is of the same kind."""
    lately = prior[-5:-1]
    verbs = any(w in MODALS or w == "to" for w in lately)
    nouns = any(w in DETERMINERS for w in lately[-2:])
    if verbs and not (nouns and s_form):
        return 0.5 if nouns else 2.0
    return -1.5 if nouns else 1.2 if s_form and len(prior) > 2 else -0.3


def loose_odds(around: Around, prior: Sequence[str], s_form: bool) -> float:
    """After a word of no closed class: a subject, or an adjective, or a verb."""
    p = prior[-1]
    adverb = 1.0 if around.previous != p else 0.0
    if p in ADJECTIVES or ADJECTIVAL.search(p) or p.replace("-", "").isdigit():
        return -2.5 + adverb
    if p.endswith(("ing", "ed")) or VERBAL.search(p):
        return -1.5 + adverb
    if is_plural(p):
        return (-1.0 if s_form else 1.6) + adverb
    return (0.9 if s_form else -0.5) + 1.5 * adverb


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
    if n in PAST_VERBS or (n.endswith("ed") and len(n) > 4):
        return -1.5
    return 0.6 if is_plural(n) and not s_form else 0.0


def is_verb(around: Around) -> bool:
    """Whether the words before a word make it a verb."""
    prior = around.prior
    p = prior[-1] if prior else ""
    made = p in OBJECTS | {"her"} and len(prior) > 1 and prior[-2] in LET
    return after_to(around) or p in MODALS | SUBJECTS or made
