"""Rules of heteronyms that have one of their own: "read", "live", "wound" and others."""

from __future__ import annotations

from collections.abc import Callable

from .context import (
    ADJECTIVAL,
    ADJECTIVES,
    BE,
    DETERMINERS,
    FEEL,
    HAVE,
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
    is_plural,
    is_verb,
)
from .english import words


def is_noun(around: Around) -> bool:
    """Whether a determiner or a preposition stands before a word."""
    p = around.previous
    return p in DETERMINERS | PREPOSITIONS or p.endswith("'s") or p in ADJECTIVES


def near(around: Around, cues: str, distance: int = 12) -> bool:
    """Whether one of some words stands close by in the clause or before it."""
    found = set(words(cues))
    return bool(found & {*around.before[-distance:], *around.right[:distance]})


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
    if p in DETERMINERS - OBJECTS | ADJECTIVES:
        return "now"
    past = set(around.before) & PAST_TENSE or set(around.right) & PAST_TENSE
    past = past or any(w.endswith("ed") and len(w) > 4 for w in (*around.before, *around.right))
    if p in ("he", "she", "it", "who") or (p and p not in SUBJECTS and not is_plural(p)):
        return "now" if p in ("and", "or") and not past else "past"
    if not p:
        return "past" if around.next == "by" else "now"
    return "past" if past and not set((*around.left, *around.right)) & NOW else "now"


def lead(around: Around) -> str:
    metals = """pipe pipes paint poisoning metal metals pencil gasoline weights weight heavy bullet
    bullets toxic copper zinc mercury iron tin poison solder shielding acid battery batteries roof
    contaminated melted molten levels ore shot soldiers like"""
    if is_verb(around) or around.next in set(words("to us the them him her")):
        return "guide"
    return "metal" if near(around, metals, 6) else "guide"


def live(around: Around) -> str:
    shows = set(words(
        """show shows music performance performances broadcast audience audiences concert television
        tv coverage stream animals animal band event events ammunition bait wire wires video album
        recording recordings sports theater updates birth chat feed jazz interview rounds update
        action demo game games track version crowd"""
    ))  # fmt: skip
    spoken = set(words(
        """broadcast perform performed performing air aired streamed streaming went goes going go
        reported reporting recorded played play playing sing sang watch watched shown carried
        televised tune coming came see seen saw appear appeared speak spoke
        watching watches recording records streams streaming airs plays playing performs singing
        hear heard catch caught broadcasts broadcasting"""
    ))  # fmt: skip
    if around.next in shows and not is_verb(around):
        return "now"
    whom = around.previous in OBJECTS - {"you"}
    if whom and set(around.left[-5:-1]) & spoken:  # "watched it live"
        return "now"
    if not around.right and set(around.left[-2:-1]) & BE:  # "is it live"
        return "now"
    if around.next == "from" and not around.previous:
        return "now"
    if is_verb(around):
        return "verb"
    if around.previous in BE | spoken | DETERMINERS - POINTERS | {"all-new"}:
        return "now"
    if set(around.left[-4:]) & spoken and not is_plural(around.previous):
        return "now"
    return "verb"


def lives(around: Around) -> str:
    lost = """lose loses lost save saves saved saving claim claimed claims cost costs change changed
    ruined risk risked risking own living lived spend spent million thousand hundred dozen human
    private everyday two three nine improve improved touched taking enrich double of many"""
    p = around.previous
    if p in DETERMINERS - {"that", "which", "this", "each", "neither", "either"}:
        return "life"
    if p in set(words(lost)) | PREPOSITIONS or around.next in BE | HAVE:
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
    cloth = (
        "fabric muscle ligament tissue cloth shirt jacket jeans paper knee cartilage sail repair"
    )
    return "rip" if around.word.lower() == "tear" and near(around, cloth, 7) else "eye"


def wind(around: Around) -> str:
    turns = set(words("up down through around along its back the your his her it"))
    if is_verb(around) and around.previous not in ("you", "it"):
        return "turn"
    if is_noun(around):
        return "air"
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
    return "turned" if around.next in turned and not noun else "hurt"


def bow(around: Around) -> str:
    ship = "ship boat stern deck vessel sail sailed hull waves ferry port yacht canoe anchor"
    if is_verb(around) or near(around, ship, 10):
        return "bend"
    if around.next in ("down", "out", "before", "to", "politely", "deeply"):
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
    fish = """fish fishing sea striped largemouth smallmouth lake river caught catch pond trout
    salmon boat angler anglers fillet grilled fried hook bait perch"""
    return "fish" if near(around, fish, 8) else "music"


def dove(around: Around) -> str:
    down = set(
        words("into in down under for deep off beneath head headfirst right straight out to")
    )
    p = around.previous
    noun = p in DETERMINERS or p in ADJECTIVES or p in PREPOSITIONS
    return "dived" if p in SUBJECTS or (around.next in down and p and not noun) else "bird"


def close(around: Around) -> str:
    near_by = set(words(
        """to together enough friend friends relationship relationships by call calls range
        attention look ties tie contact quarters relative relatives second race game family
        proximity match eye watch behind match-up colleague allies ally cousin cousins associates up
    encounter""" ))  # fmt: skip
    p = around.prior[-1] if around.prior else ""
    if is_verb(around) and around.previous not in ("too", "so", "very"):
        return "shut"
    if list(around.right) == ["by"]:  # "they live close by."
        return "near"
    if around.next in near_by and not (around.next == "to" and p in ("came", "a")):
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


def content(around: Around) -> str:
    if around.next in ("with", "to") and around.previous not in DETERMINERS | ADJECTIVES:
        return "glad"
    return (
        "glad" if (around.prior[-1:] or [""])[0] in BE | FEEL and not around.right[1:] else "matter"
    )


def minute(around: Around) -> str:
    tiny = set(words(
        """detail details amount amounts quantities quantity particle particles difference
        differences traces trace changes fragments creatures organisms crystals cracks inspection
        examination scale print grains proportion proportions variations"""
    ))  # fmt: skip
    if around.next in tiny or around.previous in ("very", "so", "extremely", "in"):
        return "tiny"
    return "tiny" if around.previous in BE and not around.right else "time"


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


def aged(around: Around) -> str:
    old = "father mother man woman parents care relatives aunt uncle gentleman lady couple"
    if around.previous == "the" and not around.right[1:]:
        return "old"
    return "old" if around.next in words(old) and around.previous in DETERMINERS else "years"


def august(around: Around) -> str:
    return "month" if around.word[0].isupper() else "grand"


def invalid(around: Around) -> str:
    ends = not around.next or around.next in PREPOSITIONS | BE | {"who", "and", "had"}
    return "ill" if around.previous in DETERMINERS | ADJECTIVES and ends else "void"


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
    "blessed": by_next("holy", "verb", "virgin sacrament relief event trinity mother soul"
                       " day memory thing moment silence souls are", "the"),
    "bow": bow,
    "bows": bow,
    "close": close,
    "content": content,
    "dogged": by_next("stubborn", "verb", "determination persistence pursuit resistance effort"
                      " devotion refusal defense reporting optimism insistence courage"),
    "dove": dove,
    "invalid": invalid,
    "job": by_near("name", "work", "book patience prophet bible", capital=True),
    "lead": lead,
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
    "used": used,
    "wind": wind,
    "winds": wind,
    "wound": wound,
}  # fmt: skip
