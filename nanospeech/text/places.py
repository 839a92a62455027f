"""Places: the ids of a prepared text, and where in it each stands."""

from __future__ import annotations

import numpy as np

from .pinyin import FILLER
from .sentences import fitted
from .tokenizer import Tokenizer
from .traced import Traced


def encode_places(text: Traced, tokenizer: Tokenizer) -> tuple[np.ndarray, np.ndarray]:
    """The ids of sentences.encode, and where each token has its middle.

    Returns:
        int64 (T,) and float64 (T,), increasing: characters of what the text is traced from.
    """
    fit, _ = fitted(text, tokenizer)
    if tokenizer.kind in ("pieces", "echo"):  # whose places are not known: evenly
        found = tokenizer.encode(fit.text)
        return found, (np.arange(len(found)) + 0.5) * len(fit) / max(len(found), 1)
    other = FILLER if tokenizer.kind == "pinyin" else None
    ids, middles = [], []
    for token, start, stop in tokenizer.places(fit.text):
        if (index := tokenizer.ids.get(token, other)) is None:
            continue
        ids.append(index)
        middle = (start + stop) / 2
        at = min(int(middle), len(fit) - 1)
        middles.append(fit.starts[at] + (middle - at) * (fit.stops[at] - fit.starts[at]))
    return np.array(ids, np.int64), np.array(middles, np.float64)
