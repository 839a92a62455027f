"""Addresses: web and e-mail addresses, paths, @names and #tags as they are read out."""

from __future__ import annotations

import re

from .number_words import number

# without those that a forgotten space makes of a sentence's end: "there.in", "him.me", "Stop.no"
ENDINGS = "com org net edu gov mil info biz io ai tv app dev uk ca au de fr nl eu jp cn ru br nz ch"
ENDINGS += " ly xyz"
FILES = """txt md rst pdf docx? xlsx? pptx? csv tsv jsonl? xml ya?ml toml ini cfg conf html? css
js jsx ts tsx py ipynb cpp hpp java php rb rs sh sql exe dll iso zip gz tar rar mp[34] m4[abv] aac
opus wma wav flac ogg png jpe?g gif svg webp webm mov avi mkv srt vtt epub mobi onnx ckpt
safetensors log bak tmp"""
SPELLED = {"www": "W W W", "uk": "U K", "us": "U S", "io": "I O", "tv": "T V", "ai": "ay I"}
SPELLED |= {"a": "ay"}  # the letter, not the article
SPELLED |= {"ie": "I E", "eu": "E U", "ca": "C ay", "au": "ay U", "de": "D E", "nz": "N Z"}
ENDING, FILE = (f"(?:{'|'.join(names.split())})" for names in (ENDINGS, FILES))
MARKS = {".": "dot", "/": "slash", "-": "dash", "_": "underscore", "?": "question mark"}
MARKS |= {"=": "equals", "&": "and", "#": "hash", "%": "percent", ":": "colon", "~": "tilde"}
MARKS |= {"+": "plus", "@": "at", "\\": "backslash"}
PARTS = re.compile(r"\d+|[^\W\d_]+|[./\-_?=&#%:~+@\\]")
NAME = r"[\w-]{1,63}(?:\.[\w-]{1,63})*"
TAIL = r"(?::\d{2,5})?(?:[/?#][^\s<>\"'(){}\[\]]*)?"


def spoken(text: str) -> str:
    """An address part by part, its marks by name."""
    words = (MARKS.get(p) or SPELLED.get(p) or p for p in PARTS.findall(text))
    # a year is left for later; what stands before a letter is no amount: "10s" is "ten s"
    return " ".join(number(w) if w.isdecimal() and len(w) != 4 else w for w in words)


def _address(m: re.Match) -> str:
    body = m[1].rstrip(".,;:!?-")
    return spoken(body.rstrip("/")) + m[1][len(body) :]


def _hexadecimal(m: re.Match) -> str:
    """0x1F, as error messages have it, digit by digit."""
    return "zero x " + _named(m[1])


def _named(text: str) -> str:
    return " ".join(number(c) if c.isdecimal() else "ay" if c in "aA" else c.upper() for c in text)


def _color(m: re.Match) -> str:
    """#FF5733 and #FFFFFF, as web pages name colors."""
    return "hash " + _named(m[1])


def _tag(m: re.Match) -> str:
    """A tag's or a name's words, where capitals and lines part them."""
    parts = re.sub(r"(?<=[a-z])(?=[A-Z])|_+|(?<=[A-Z])(?=[A-Z][a-z])", " ", m[2])
    return ("hashtag " if m[1] == "#" else "at ") + parts.strip()


# what a dot is said in: "user.isActive", "np.float_x", "df.head()"
CODE = re.compile(r"\b[a-z]+[A-Z]|[^\W_]_[^\W_]|\(")
CHAIN = 60  # characters before or behind a dot that are looked at
CHAIN_BEFORE, CHAIN_BEHIND = re.compile(r"[\w.@/-]*\Z"), re.compile(r"[\w.]*\w\(?")


def _member(m: re.Match) -> str:
    """A dot of code, but of no forgotten space: "So it was.then"."""
    before = CHAIN_BEFORE.search(m.string[max(0, m.start() - CHAIN) : m.start()])[0]  # type: ignore[index]
    behind = CHAIN_BEHIND.match(m.string[m.end() : m.end() + CHAIN])[0]  # type: ignore[index]
    code = CODE.search(f"{before}.{behind}") and not set(before) & set("@/-")
    return " dot " if code else m[0]


def _filled(m: re.Match) -> str:
    """<name>, apart from another one behind it."""
    return m[1] + " " * (m.string[m.end() : m.end() + 1] == "<")


def _sharp(m: re.Match) -> str:
    return ("ay" if m[1] == "A" else m[1]) + " sharp " * bool(m[2]) + " sharp" * (not m[2])


RULES = [
    # what is to be filled in, and types: "in <module>", "<your name>", "List<String>"
    (r"(?<![\w<])<([A-Za-z][\w-]+(?: [a-z]+){0,3})>(?![\w>=])", _filled),
    (r"(?<=\w)<([A-Za-z]\w*(?:, ?[A-Za-z]\w*){0,3})>(?!\w)", lambda m: f" {m[1]}"),
    (rf"(?<![\w@.-])(?:https?|ftp)://({NAME}{TAIL})", _address),
    (rf"(?<![\w@.-])(www\.{NAME}{TAIL})", _address),
    (r"(?<![\w.+@-])([\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+)", _address),
    (
        rf"(?<![\w@.-])((?:[\w-]{{1,63}}\.){{1,8}}{ENDING}"
        rf"(?![\w@-]|\.\w){TAIL})",
        _address,
    ),
    (r"(?<!\S)((?:~|\.{1,2})?/(?=\.?\w)[\w./-]*|[A-Z]:\\[\w.\\-]*)", _address),
    (
        rf"(?<![\w@.-])((?:[\w.-]{{1,63}}/){{0,8}}[\w-]{{1,63}}(?:\.[\w-]{{1,63}}){{0,3}}\.{FILE})"
        r"(?![\w@-]|\.\w)",
        lambda m: spoken(m[1]),
    ),
    (r"\.(?<=\w\.)(?=[A-Za-z_])", _member),
    (
        rf"(?<![^\s(\"'])\.(?=(?:NET|env|git\w*|bash\w*|htaccess|{ENDING}|{FILE})\b)",
        lambda m: "dot ",
    ),
    (r"(?<=\b[A-Z]{3})\.(?=NET\b)", lambda m: " dot "),
    (r"\b([CF])#(?!\w)", lambda m: m[1] + " sharp"),
    # keys and chords: "G# minor", "C#m7"
    (
        r"\b([ACDFG])#(?=(m?7?|maj7|dim|sus[24])(?:[/\s.,;)]|\Z))",
        _sharp,
    ),
    (
        r"(?<![\w#&@])#((?=[A-Fa-f]{0,5}\d)(?=\d{0,5}[A-Fa-f])[\dA-Fa-f]{6}"
        r"|([Ff])\2{2}(?:\2{3})?)(?!\w)",
        _color,
    ),
    (r"(?<![\w#@&])#(?=[A-Z]{1,4}-\d)", lambda m: "number "),  # "Order #A-113"
    (r"(?<![\w#@&])([#@])([^\W\d]\w*)", _tag),
    (r"(?<![\w.])0[xX]([\da-fA-F]{1,16})(?!\w)", _hexadecimal),
]
