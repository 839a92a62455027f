"""Tags: tokens in brackets, such as "<laugh>", kept whole while the text around them is changed.

What is to be kept from rules for words is hidden: a character that no text has stands for it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

HIDDEN = range(0x100000, 0x10FFFE)  # the last plane of Unicode, for private use


def hide(text: str, tags: re.Pattern | None) -> tuple[str, dict[str, str]]:
    """A text with a character in the place of each tag.

    Args:
        tags: matches them; None: there are none.

    Returns:
        The text, and what each of its new characters stands for.
    """
    found = sorted(set(match.group() for match in tags.finditer(text))) if tags else []
    free = (c for c in map(chr, HIDDEN) if c not in text)
    hidden = dict(zip(found, free))
    if tags is not None and hidden:
        text = tags.sub(lambda match: hidden.get(match.group(), match.group()), text)
    return text, {c: tag for tag, c in hidden.items()}


def show(text: str, tags: Mapping[str, str]) -> str:
    """The text with its tags again."""
    return text.translate(str.maketrans(dict(tags)))
