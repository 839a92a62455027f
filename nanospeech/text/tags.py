"""Tags: tokens in brackets, such as "<laugh>", which rules for words leave alone.

While the rules run, a private character takes the place of each.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

HIDDEN = range(0x100000, 0x10FFFE)  # the last plane of Unicode, for private use


def hide(text: str, tags: re.Pattern | None) -> tuple[str, dict[str, str]]:
    """Replaces each tag of a text by a private character.

    Args:
        tags: matches them; None if there are none.

    Returns:
        The text, and the tag of each private character.
    """
    found = sorted(set(match.group() for match in tags.finditer(text))) if tags else []
    free = (c for c in map(chr, HIDDEN) if c not in text)
    hidden = dict(zip(found, free))
    if tags is not None and hidden:
        text = tags.sub(lambda match: hidden.get(match.group(), match.group()), text)
    return text, {c: tag for tag, c in hidden.items()}


def show(text: str, tags: Mapping[str, str]) -> str:
    """The text with its tags put back."""
    return text.translate(str.maketrans(dict(tags)))
