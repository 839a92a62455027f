"""Products: versions and models, whose numbers are names: "Python 3.10", "Xbox 360", "RTX 4090".

Rooms, roads and flights are named so too. None of these numbers counts anything.
"""

from __future__ import annotations

import re

from . import any_of, words
from .number_words import cardinal, number, pair, several, year

# programs and languages whose versions are written with one point
VERSIONED = words(
    """Android Angular Ansible Apache Bash Blender Chrome Clang CMake CUDA cuDNN Debian Django
    Docker Drupal Electron Elixir Emacs Fedora Firefox Flask Flutter GCC Git GNOME Golang Gradle
    Kotlin Kubernetes Laravel Linux LLVM MariaDB Maven MySQL nginx Node NumPy OpenGL OpenSSL
    OpenSSH Perl PHP PostgreSQL Postgres Python PyTorch Rails React Redis Ruby Rust Safari Scala
    SciPy SQLite Swift TensorFlow Terraform TypeScript Ubuntu Vue Vulkan Windows WordPress Xcode
    iOS iPadOS kernel macOS npm pandas pip pytest tvOS watchOS"""
)
NAMED = rf"(?:{any_of(VERSIONED)})(?: dot js)?|[Vv]ersions?"
VERSION = r"\d{1,3}\.\d{1,3}\+?"
LINK = r"(?: ?- ?|/|, ?[<>]=? ?|, (?:and |or )?| (?:and|or|to|through|until) )"
# what a number counts that only looks like a name: "a flight 370 miles long"
COUNTED = r"(?:percent|people|[mb]illion|times|miles?|mi|feet|ft|km|meters|hours?|kg|MB|GB)\b"
# what a number of three to five digits is the model of
MODELS = words(
    """AES BMW Cessna EPYC Ferrari GTX HTTP ISO McLaren Peugeot Porsche Quadro RFC RSA RTX RX
    Radeon SHA Ryzen_3 Ryzen_5 Ryzen_7 Ryzen_9 Saab Threadripper Xbox Xeon i3 i5 i7 i9"""
)
MODEL = any_of(name.replace("_", " ") for name in MODELS)
MODEL += r"|(?:HTTP )?[Ss]tatus(?: code)?|(?:I|U S)(?=-)|[Rr]oom|[Hh]ighway|[Rr]oute|Interstate"
MODEL += r"|[Ff]light(?: (?:[A-Z]{2}|[A-Z]\d))?"


def _part(text: str) -> str:
    """Digits behind a version's point, which count, but for a zero before them: "22.04"."""
    return pair(text) if len(text) == 2 else number(text)


def _version(m: re.Match) -> str:
    """Python 3.10 and 3.11, Ubuntu 22.04: all versions of a list."""
    listed = re.sub(r" ?- ?", " to ", m[2].replace("/", ", "))
    said = re.sub(r"(\d+)\.(\d+)", lambda v: f"{number(v[1])} point {_part(v[2])}", listed)
    return m[1] + said


def named(text: str) -> str:
    """A number that is a name: 360 "three sixty", 404 "four oh four", 4090 "forty ninety"."""
    if text[0] == "0" or (len(text) == 5 and text[2] == "0"):
        return number(text)
    if len(text) == 5:
        return f"{cardinal(int(text[:2]))} {named(text[2:])}"
    if len(text) == 4:
        return year(int(text))
    return f"{cardinal(int(text[0]))} {'hundred' if text[1:] == '00' else pair(text[1:])}"


def _model(m: re.Match) -> str:
    said = several(named(m[3])) if m[4] else named(m[3])
    return f"{m[1]}{m[2] or ' '}{said}" + " " * m.string[m.end() : m.end() + 1].isalpha()


RULES = [
    (
        rf"(?<![\w.-])((?:{NAMED})(?: version)?"
        r"(?: v?|\s?[<>=]\s?|\s+(?:is at (?:least|most)|equals)\s+))"
        rf"({VERSION}(?:{LINK}{VERSION}){{0,8}})(?!\w|[.,]\d|[%°]|\s?{COUNTED})",
        _version,
    ),
    (
        rf"(?<![\w.-])({MODEL})([ -]?)(\d{{3,5}})(?:(s)\b|(?=[A-Z]{{0,2}}(?:\d[A-Z])?\b|[id]\b))"
        rf"(?![.,/]\d|%|[\s-]\d{{3}}\b|\s{COUNTED})",
        _model,
    ),
]
