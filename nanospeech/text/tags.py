"""Tags: tokens in brackets, such as "<laugh>", which rules for words leave alone.

While the rules run, a private character takes the place of each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from nanospeech.errors import InputError

from .traced import Traced

T = TypeVar("T")
HIDDEN = range(0x100000, 0x10FFFE)  # the last plane of Unicode, for private use

TAG = re.compile(r"<[^<>]+>|\[[^\[\]]+\]|\([^()]+\)|\{[^{}]+\}")
# sounds that tags are made for; a text that has one in angle brackets means a tag
SOUNDS = """breath|inhale|exhale|laugh|laughter|laughing|chuckle|giggle|sigh|cough|sneeze|sniff|
sniffle|gasp|groan|moan|yawn|sob|cry|crying|scream|hum|humming|whistle|pause|silence|throat|
clear[ _-]throat|clears[ _-]throat|lip[ _-]smack|breathe|breathing|snore|hiccup|grunt|gulp"""
SOUND = re.compile(rf"<({''.join(SOUNDS.split())})(?:e?s)?>", re.IGNORECASE)
QUIET = re.compile(r"<(pause|silence|breath|breathe|breathing|inhale|exhale|sigh)(?:e?s)?>", re.I)
BESIDE = (" ", ",")  # tokens that a tag stands for if they are next to it


def as_tag(name: str) -> str:
    """A tag of a name: "<breath>" of "breath"; a tag as it is.

    Raises:
        InputError: it cannot be one.
    """
    tag = name if TAG.fullmatch(name) else f"<{name}>"
    if not TAG.fullmatch(tag) or tag != " ".join(tag.split()):
        raise InputError(f"{name!r} cannot be a tag; write a name such as breath, or <breath>")
    return tag


def is_tag(token: str) -> bool:
    """Whether a token of a vocabulary is a tag."""
    return len(token) > 1 and TAG.fullmatch(token) is not None


def has_tag(ids: Iterable[int], vocab: Sequence[str]) -> bool:
    """Whether one of some tokens is a tag."""
    return any(is_tag(vocab[i]) for i in ids)


def standing_alone(tokens: Sequence[T], name: Callable[[T], str]) -> list[T]:
    """Tokens without the spaces and commas beside a tag.

    What is heard between two words is then the tag's alone: an aligner would give a pause to the
    space, which it knows as silence already, and the tag would never be learned.

    Args:
        tokens: of a text, in order.
        name: of one of them.
    """
    names = [name(token) for token in tokens]
    if not any(map(is_tag, names)):
        return list(tokens)
    taken: set[int] = set()
    for i in (i for i, token in enumerate(names) if is_tag(token)):
        for step in (-1, 1):
            at = i + step
            while 0 <= at < len(names) and names[at] in BESIDE:
                taken.add(at)
                at += step
    return [token for i, token in enumerate(tokens) if i not in taken]


def unknown_tags(text: str, vocab: Collection[str]) -> list[str]:
    """Tags of sounds that a text has and a vocabulary lacks, each once."""
    return list(dict.fromkeys(m[0] for m in SOUND.finditer(text) if m[0] not in vocab))


def check_tags(text: str, kind: str, vocab: Collection[str]) -> None:
    """
    Args:
        text: as written.
        kind: of the tokenizer; bytes have no tags.
        vocab: its tokens.

    Raises:
        InputError: a tag of a sound is none of the model's.
    """
    unknown = unknown_tags(text, vocab) if kind not in ("bytes", "echo") else []
    if unknown:
        known = [token for token in vocab if len(token) > 1 and TAG.fullmatch(token)]
        has = f"it knows {', '.join(known)}" if known else "it knows no tags"
        by = "train (echo.text_tags)" if kind == "pieces" else "finetune --tags"
        raise InputError(
            f"the model cannot say {', '.join(unknown)}: {has}. Leave it out, or teach it by"
            f" nanospeech {by}"
        )


def hide(text: Traced, tags: re.Pattern | None) -> tuple[Traced, dict[str, str]]:
    """Replaces each tag of a text by a private character.

    Args:
        tags: matches them; None if there are none.

    Returns:
        The text, and the tag of each private character.
    """
    found = sorted(set(match.group() for match in tags.finditer(text.text))) if tags else []
    free = (c for c in map(chr, HIDDEN) if c not in text.text)
    hidden = dict(zip(found, free))
    if tags is not None and hidden:
        text = text.sub(tags, lambda m: hidden.get(m[0]) or m[0])
    return text, {c: tag for tag, c in hidden.items()}


def show(text: Traced, tags: Mapping[str, str]) -> Traced:
    """The text with its tags put back, each character where it stood."""
    found = text.translate(str.maketrans(dict(tags)))
    if found is text:
        return text
    starts, stops, at = found.starts.copy(), found.stops.copy(), 0
    for c in text.text:
        size = len(tags.get(c, c))
        if size > 1 and stops[at] - starts[at] == size:
            starts[at : at + size] += np.arange(size)
            stops[at : at + size] = starts[at : at + size] + 1
        at += size
    return Traced(found.text, starts, stops)
