"""Phonemes: English words to ARPAbet by dictionary, and by the parts of regular formations.

The dictionary is the CMU Pronouncing Dictionary (BSD licence, data/cmudict.LICENSE.txt), first
pronunciations only. A word that is not in it is left to the caller.
"""

from __future__ import annotations

import gzip
import re
from functools import lru_cache
from pathlib import Path

VOWELS = ["AA", "AE", "AH", "AO", "AW", "AY", "EH", "ER", "EY", "IH", "IY", "OW", "OY", "UH", "UW"]
CONSONANTS = [
    "B",
    "CH",
    "D",
    "DH",
    "F",
    "G",
    "HH",
    "JH",
    "K",
    "L",
    "M",
    "N",
    "NG",
    "P",
    "R",
    "S",
    "SH",
    "T",
    "TH",
    "V",
    "W",
    "Y",
    "Z",
    "ZH",
]
SYMBOLS = [v + stress for v in VOWELS for stress in "012"] + CONSONANTS

# Words whose commonest reading the dictionary lists second, or that running speech weakens.
PREFERRED = {
    "a": "AH0",
    "an": "AH0 N",
    "and": "AH0 N D",
    "are": "AA1 R",
    "because": "B IH0 K AO1 Z",
    "live": "L IH1 V",
    "lives": "L IH1 V Z",
    "of": "AH0 V",
    "or": "AO1 R",
    "our": "AW1 ER0",
    "read": "R IY1 D",
    "the": "DH AH0",
    "to": "T UW1",
    "use": "Y UW1 Z",
    "used": "Y UW1 Z D",
    "close": "K L OW1 Z",
    "wind": "W IH1 N D",
    "content": "K AA1 N T EH0 N T",
    "minute": "M IH1 N AH0 T",
    "minutes": "M IH1 N AH0 T S",
    "record": "R EH1 K ER0 D",
    "present": "P R EH1 Z AH0 N T",
    "object": "AA1 B JH EH0 K T",
    "tear": "T IH1 R",
    "tears": "T IH1 R Z",
    "bow": "B OW1",
    "wound": "W UW1 N D",
    "lead": "L IY1 D",
    "house": "HH AW1 S",
    "excuse": "IH0 K S K Y UW1 Z",
    "i": "AY1",
    "re": "R IY1",
    "deja": "D EY1 ZH AA2",
    "aka": "EY1 K EY1 EY1",
}
# what people utter without a vowel
PREFERRED |= {
    "brr": "B ER1",
    "brrr": "B ER1",
    "grr": "G ER1",
    "grrr": "G ER1",
    "mm": "M",
    "mmm": "M",
    "pfft": "P F T",
    "pst": "P S T",
    "psst": "P S T",
    "tsk": "T IH1 S K",
    "zzz": "Z",
}
# words that the dictionary has wrong or lacks
PREFERRED |= {
    "acai": "AA2 S AA0 IY1",
    "agave": "AH0 G AA1 V EY2",
    "anemone": "AH0 N EH1 M AH0 N IY0",
    "beret": "B ER0 EY1",
    "cannes": "K AE1 N",
    "expozay": "EH2 K S P OW0 Z EY1",  # as foreign.py spells "exposé"
    "ennui": "AA0 N W IY1",
    "faux": "F OW1",
    "fuchsia": "F Y UW1 SH AH0",
    "foie": "F W AA1",
    "gaol": "JH EY1 L",
    "gras": "G R AA1",
    "hors": "AO1 R",
    "maeve": "M EY1 V",
    "meringue": "M ER0 AE1 NG",
    "merlot": "M ER0 L OW1",
    "moines": "M OY1 N",
    "paella": "P AY0 EH1 L AH0",
    "presenter": "P R IH0 Z EH1 N T ER0",
    "presenters": "P R IH0 Z EH1 N T ER0 Z",
    "putting": "P UH1 T IH0 NG",
    "pyjamas": "P AH0 JH AA1 M AH0 Z",
    "reusable": "R IY0 Y UW1 Z AH0 B AH0 L",
    "reused": "R IY0 Y UW1 Z D",
    "reuses": "R IY0 Y UW1 Z IH0 Z",
    "rozay": "R OW0 Z EY1",  # as foreign.py spells "rosé"
    "sceptical": "S K EH1 P T IH0 K AH0 L",
    "segue": "S EH1 G W EY2",
    "simile": "S IH1 M AH0 L IY0",
    "sommelier": "S AH2 M AH0 L Y EY1",
    "thyme": "T AY1 M",
    "touche": "T UW0 SH EY1",
}
# words younger than the dictionary
PREFERRED |= {
    "airbnb": "EH1 R B IY2 AH0 N B IY2",
    "ar": "EY1 AA1 R",
    "brexit": "B R EH1 K S IH0 T",
    "codec": "K OW1 D EH2 K",
    "covid": "K OW1 V IH0 D",
    "ct": "S IY1 T IY1",
    "fyi": "EH1 F W AY1 AY1",
    "http": "EY1 CH T IY1 T IY1 P IY1",
    "https": "EY1 CH T IY1 T IY1 P IY1 EH1 S",
    "idk": "AY1 D IY1 K EY1",
    "imo": "AY1 EH1 M OW1",
    "json": "JH EY1 S AH0 N",
    "ok'd": "OW1 K EY1 D",
    "omg": "OW1 EH1 M JH IY1",
    "pls": "P L IY1 Z",
    "thx": "TH AE1 NG K S",
    "emoji": "IH0 M OW1 JH IY0",
    "gif": "G IH1 F",
    "gitlab": "G IH1 T L AE2 B",
    "gpu": "JH IY1 P IY1 Y UW1",
    "exoplanet": "EH1 K S OW0 P L AE2 N AH0 T",
    "kombucha": "K AA0 M B UW1 CH AH0",
    "kubernetes": "K UW2 B ER0 N EH1 T IY0 Z",
    "kyiv": "K IY1 V",
    "livestream": "L AY1 V S T R IY2 M",
    "pytorch": "P AY1 T AO1 R CH",
    "ramen": "R AA1 M AH0 N",
    "regex": "R EH1 JH EH0 K S",
    "sriracha": "S ER0 AA1 CH AH0",
    "sudoku": "S UW0 D OW1 K UW0",
    "tiktok": "T IH1 K T AA2 K",
    "ubuntu": "UH0 B UH1 N T UW0",
    "webcam": "W EH1 B K AE2 M",
    "vocoder": "V OW1 K OW2 D ER0",
    "vlog": "V L AO1 G",
    "zelensky": "Z AH0 L EH1 N S K IY0",
    "zelenskyy": "Z AH0 L EH1 N S K IY0",
}
# acronyms that are words, and names that no rule of spelling reads
PREFERRED |= {
    "chmod": "CH AH0 M AA1 D",
    "cuda": "K UW1 D AH0",
    "ebitda": "IY1 B IH0 T D AA2",
    "eslint": "IY1 EH1 S L IH1 N T",
    "ffmpeg": "EH1 F EH1 F EH1 M P EH2 G",
    "fomo": "F OW1 M OW0",
    "gaap": "G AE1 P",
    "gitignore": "G IH1 T IH0 G N AO2 R",
    "href": "EY1 CH R EH1 F",
    "hwy": "HH AY1 W EY2",
    "iaas": "AY1 AE2 S",
    "img": "IH1 M IH0 JH",
    "jpeg": "JH EY1 P EH2 G",
    "jsonl": "JH EY1 S AH0 N EH1 L",
    "kwargs": "K EY1 W AA2 R G Z",
    "mkdir": "EH1 M K EY1 D IH1 R",
    "nginx": "EH1 N JH AH0 N EH1 K S",
    "numpy": "N AH1 M P AY2",
    "omw": "OW1 EH1 M D AH1 B AH0 L Y UW0",
    "paas": "P AE1 S",
    "plz": "P L IY1 Z",
    "ppl": "P IY1 P AH0 L",
    "pypi": "P AY1 P IY1 AY1",
    "pytest": "P AY1 T EH2 S T",
    "rsync": "AA1 R S IH1 NG K",
    "rte": "R UW1 T",
    "saas": "S AE1 S",
    "sata": "S EY1 T AH0",
    "scipy": "S AY1 P AY2",
    "sklearn": "EH1 S K EY1 L ER1 N",
    "stderr": "S T AE1 N D ER0 D EH1 R ER0",
    "stdin": "S T AE1 N D ER0 D IH1 N",
    "stdout": "S T AE1 N D ER0 D AW1 T",
    "tmrw": "T AH0 M AA1 R OW2",
    "tmux": "T IY1 M AH1 K S",
    "tsconfig": "T IY1 EH1 S K AA1 N F IH0 G",
    "ttyl": "T IY1 T IY1 W AY1 EH1 L",
    "uefa": "Y UW0 EY1 F AH0",
    "utd": "Y UW0 N AY1 T IH0 D",
    "vscode": "V IY1 EH1 S K OW1 D",
    "wget": "D AH1 B AH0 L Y UW0 G EH1 T",
    "yaml": "Y AE1 M AH0 L",
    "yml": "Y AE1 M AH0 L",
}
HISSING = {"S", "Z", "SH", "ZH", "CH", "JH"}
VOICELESS = {"P", "T", "K", "F", "TH"}
# suffix: what may stand at the stem's end instead; those of the first sound change with the stem
ENDINGS = {"'ve": ("",), "'ll": ("",), "'d": ("",), "'re": ("",)}
ENDINGS |= {"'s": ("",), "s'": ("s", ""), "ies": ("y",), "es": ("", "e"), "s": ("",)}
ENDINGS |= {"ied": ("y",), "ed": ("", "e"), "ing": ("", "e"), "in'": ("", "e")}
ENDINGS |= {"ily": ("y",), "ly": ("", "le"), "ier": ("y",), "er": ("", "e"), "iest": ("y",)}
ENDINGS |= {"est": ("", "e"), "less": ("",), "iness": ("y",), "ness": ("",), "ful": ("",)}
ENDINGS |= {"ment": ("",), "able": ("", "e"), "ish": ("", "e"), "ship": ("",), "hood": ("",)}
ENDINGS |= {"like": ("",), "ward": ("",), "wards": ("",), "some": ("",), "wise": ("",)}
ENDINGS |= {
    "ism": ("", "e"),
    "ist": ("", "e"),
    "ize": ("",),
    "ion": ("", "e"),
    "y": ("", "e"),
    "ous": ("", "e"),
}
SOUNDS = {"'ve": "AH0 V", "'ll": "AH0 L", "'re": "ER0"}
SOUNDS |= {"ing": "IH0 NG", "in'": "IH0 N", "ly": "L IY0", "er": "ER0", "est": "AH0 S T"}
SOUNDS |= {"less": "L AH0 S", "ness": "N AH0 S", "ful": "F AH0 L", "ment": "M AH0 N T"}
SOUNDS |= {"able": "AH0 B AH0 L", "ish": "IH0 SH", "ship": "SH IH2 P", "hood": "HH UH2 D"}
SOUNDS |= {"like": "L AY2 K", "ward": "W ER0 D", "wards": "W ER0 D Z", "some": "S AH0 M"}
SOUNDS |= {
    "wise": "W AY2 Z",
    "ism": "IH2 Z AH0 M",
    "ist": "IH0 S T",
    "ize": "AY2 Z",
    "y": "IY0",
    "ous": "AH0 S",
}
PREFIXES = {"un": "AH0 N", "re": "R IY0", "non": "N AA2 N", "over": "OW2 V ER0"}
PREFIXES |= {"under": "AH2 N D ER0", "out": "AW2 T", "mis": "M IH0 S", "pre": "P R IY0"}
PREFIXES |= {"anti": "AE2 N T IY0", "sub": "S AH2 B", "super": "S UW2 P ER0"}
PREFIXES |= {"inter": "IH2 N T ER0", "dis": "D IH0 S", "semi": "S EH2 M IY0"}
PREFIXES |= {"multi": "M AH2 L T IY0", "micro": "M AY2 K R OW0", "counter": "K AW2 N T ER0"}
PREFIXES |= {"ultra": "AH2 L T R AH0", "cyber": "S AY2 B ER0", "bio": "B AY2 OW0"}
PREFIXES |= {"proto": "P R OW2 T OW0", "mono": "M AA2 N OW0", "hydro": "HH AY2 D R OW0"}
PREFIXES |= {"electro": "IH0 L EH2 K T R OW0", "photo": "F OW2 T OW0", "auto": "AO2 T OW0"}
PREFIXES |= {"psycho": "S AY2 K OW0", "nano": "N AE2 N OW0", "pseudo": "S UW2 D OW0"}
PREFIXES |= {"post": "P OW2 S T", "mid": "M IH2 D", "trans": "T R AE2 N Z"}
# British spellings, and the American ones that the dictionary has
BRITISH = [(re.compile(pattern), american) for pattern, american in [
    (r"our(?=(s|ed|ing|ful|less|able|ite|hood|ly|er|ers|y)?$)", "or"),
    (r"is(?=(e|ed|es|ing|er|ers|ation|ations)$)", "iz"),
    (r"ys(?=(e|ed|es|ing|er|ers)$)", "yz"),
    (r"tre(?=s?$)", "ter"),
    (r"ogue(?=s?$)", "og"),
    (r"ence(?=s?$)", "ense"),
    (r"ae|oe", "e"),
    (r"ll(?=(ed|ing|er|ers)$)", "l"),
]]  # fmt: skip
LONGEST = 40  # letters; what is longer is no word, and trying all its splits would be slow


@lru_cache(maxsize=1)
def dictionary() -> dict[str, str]:
    """Word to phonemes, as "AH0 N D" strings; about 125,000 words, read once."""
    path = Path(__file__).parent / "data" / "cmudict.txt.gz"
    with gzip.open(path, "rt", encoding="utf-8") as f:
        words = dict(line.rstrip("\n").split(" ", 1) for line in f)
    words.update(PREFERRED)
    return words


@lru_cache(maxsize=50_000)
def pronounce(word: str) -> tuple[str, ...] | None:
    """The phonemes of one word, or None when neither it nor its stem is in the dictionary.

    Args:
        word: letters and apostrophes, any case.
    """
    word = word.lower().replace("’", "'")
    known = dictionary()
    if word in known:
        return tuple(known[word].split())
    bare = word.strip("'")
    if bare in known:
        return tuple(known[bare].split())
    if len(bare) > LONGEST:
        return None
    return inflected(bare, known) or respelled(bare, known) or compound(bare, known)


def inflected(word: str, known: dict[str, str], depth: int = 3) -> tuple[str, ...] | None:
    """A word of known parts: a stem with regular suffixes, up to `depth`, or with a prefix."""
    if word in known:
        return tuple(known[word].split())
    if not depth:
        return None
    for suffix, stems in ENDINGS.items():
        if not word.endswith(suffix) or len(word) - len(suffix) < 2:
            continue
        base = word[: -len(suffix)]
        if suffix == "s" and base[-1] in "sui":  # "paleness", "Cassius"
            continue
        shorter = [base[:-1]] if len(base) > 3 and base[-1] == base[-2] else []
        for stem in [base + end for end in stems] + shorter:
            # two letters are a word before 's and s alone
            enough = len(stem) > (3 if suffix == "y" else 2) or suffix[-1] == "s"
            if enough and (phonemes := inflected(stem, known, depth - 1)):
                if suffix == "ion":
                    if phonemes[-1] not in ("T", "S"):
                        continue
                    return (*phonemes[:-1], "SH", "AH0", "N")
                return (*phonemes, *ending(suffix, phonemes[-1]))
    for prefix, sound in PREFIXES.items():
        rest = word.removeprefix(prefix)
        if rest != word and len(rest) > 3 and (phonemes := inflected(rest, known, depth - 1)):
            return (*sound.split(), *phonemes)
    return None


def ending(suffix: str, last: str) -> tuple[str, ...]:
    """The sound of a suffix after a stem's last phoneme."""
    if suffix in ("'s", "s'", "es", "s", "ies"):
        return ("IH0", "Z") if last in HISSING else ("S",) if last in VOICELESS else ("Z",)
    if suffix == "'d":
        return ("AH0", "D") if last in ("T", "D") else ("D",)
    if suffix in ("ed", "ied"):
        unvoiced = last in (VOICELESS | HISSING) - {"Z", "ZH", "JH"}
        return ("IH0", "D") if last in ("T", "D") else ("T",) if unvoiced else ("D",)
    return tuple((SOUNDS.get(suffix) or SOUNDS[suffix[1:]]).split())  # "iest" is "y" and "est"


def respelled(word: str, known: dict[str, str]) -> tuple[str, ...] | None:
    """A British spelling by its American twin ("colourful")."""
    for pattern, american in BRITISH:
        twin = pattern.sub(american, word)
        if twin != word and (phonemes := inflected(twin, known)):
            return phonemes
    return None


def compound(word: str, known: dict[str, str]) -> tuple[str, ...] | None:
    """A compound of two known words of four letters or more ("snowplough"), split most evenly.

    The second word may be inflected, and the compound a possessive. The first has the stress.
    Shorter words are found in too many names ("Barn-ard").
    """
    for suffix in ("'s", "s'"):
        if word.endswith(suffix):
            whole = compound(word.removesuffix(suffix), known)
            return None if whole is None else (*whole, *ending(suffix, whole[-1]))
    cuts = sorted(range(4, len(word) - 3), key=lambda i: abs(2 * i - len(word)))
    for depth in (0, 1):
        for cut in cuts:
            if depth and len(word) - cut < 5:
                continue
            if word[:cut] in known and (second := inflected(word[cut:], known, depth)):
                return (*known[word[:cut]].split(), *(p.replace("1", "2") for p in second))
    return None
