"""Classes of words: determiners, modal verbs and others, in small letters.

Tables alone; ../context.py and the rules of heteronyms read a clause by them.
"""

from __future__ import annotations

import re

from . import words

POSSESSIVES = set(words("my your his her its our their whose"))
DETERMINERS = POSSESSIVES | set(words(
    """a an the this that these those every each some any no another either neither both many few
    several all most more less such much enough which what"""
))  # fmt: skip
POINTERS = set(words("this that these those all most many both some each few what which more such"))
ANYONE = set(words("anyone anybody everyone everybody someone somebody nobody"))
NUMBERS = set(words("two three four five six seven eight nine ten twelve dozen hundred thousand"))
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
    key answer resort attention damage owing reaction sentenced return returned exposure"""
))  # fmt: skip
LET = set(
    words(
        """let lets letting make makes made making help helps helped watch watched see saw hear
        heard have"""
    )
)
MAKE = set(words("make makes made making"))
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
PAST_VERBS = set(words(
    """was were had did said went came fell rose grew ended began helped led broke hit took gave got
    kept drew fought won sank stood"""
))  # fmt: skip
# words before a comma that a command may follow: "For best results, use butter."
INTRODUCTIONS = set(words(
    """if when whenever for to in first second third next then finally after before once while
    unless until with at otherwise instead please now also alternatively by as where note tip
    optionally lastly meanwhile during since step using so"""
))  # fmt: skip
# verbs that commands often begin with
STARTS = set(words(
    """add bake beat boil bring choose chop clean click close connect cook cover cut drain draw fill
    fold go grab heat keep log melt mix open peel pick place pour press pull push put remove rinse
    roll save select serve shake sift slice stir stop take tap toss turn wash whisk write"""
))  # fmt: skip
# words that a clause of its own begins with: verbs behind them are not those of the first word
CLAUSES = set(words(
    """if when whenever while because unless until where wherever that which who what whatever so as
    before after since how whether"""
))  # fmt: skip
WHILE = set(words("as if once unless until when whenever while"))
PAST_TENSE = set(words(
    """was were had did said went took came saw got made told knew thought found gave felt left
    heard sat stood laughed cried spent fell rose grew began kept brought wrote yesterday
    ago finished slept learned wanted loved when once earlier last"""
))  # fmt: skip
NOW = set(words("every always often usually never sometimes now daily tonight today rarely seldom"))
# other verbs of the past that a noun often follows: "bought presents"
IRREGULAR = set(words(
    """bought brought built caught chose drank drove ate felt flew forgot found gave got held hid
    kept knew laid left lent lost made meant met paid put ran saw sent set shot showed sold
    sought spent stole taught threw told wore wrote"""
))  # fmt: skip
TIMES = set(words("day week weekend month year morning afternoon evening night time summer winter"))
