"""Alignment: the monotonic search that finds which token each frame speaks. NumPy only.

Glow-TTS (arXiv 2005.11129), section 3: among all monotonic paths in which every token keeps at
least one frame, the one with the highest score, by dynamic programming.
"""

from __future__ import annotations

import numpy as np


def monotonic_search(score_BNT: np.ndarray, frames_B: np.ndarray, tokens_B: np.ndarray):
    """Frames of each token on the best path.

    Args:
        score_BNT: float, how well frame n fits token t.
        frames_B: int, valid frames of each item; at least tokens_B of them.
        tokens_B: int, valid tokens of each item, at least 1.

    Returns:
        int64 (B, T) frames per token, 0 past tokens_B, summing to frames_B.
    """
    score = np.asarray(score_BNT, np.float32)
    batch, frames, tokens = score.shape
    moved = np.empty((batch, frames, tokens), bool)
    best = np.full((batch, tokens + 1), -np.inf, np.float32)  # one column ahead of token 0
    before, here = best[:, :-1], best[:, 1:]
    better = np.empty_like(here)
    here[:, 0] = score[:, 0, 0]
    for n in range(1, frames):
        np.greater(before, here, out=moved[:, n])
        np.maximum(before, here, out=better)
        np.add(better, score[:, n], out=here)
    durations = np.zeros((batch, tokens), np.int64)
    for b, count in enumerate(np.asarray(frames_B)):
        token, steps, path = int(tokens_B[b]) - 1, moved[b].tobytes(), []
        for n in range(int(count) - 1, 0, -1):
            path.append(token)
            token -= steps[n * tokens + token]
        path.append(token)
        durations[b] = np.bincount(path, minlength=tokens)
    return durations


def frame_tokens(durations_BT: np.ndarray, frames: int) -> np.ndarray:
    """Which token each frame belongs to: int64 (B, frames); the last one past the end."""
    ends = np.cumsum(durations_BT, axis=1)
    index = (np.arange(frames)[None, :, None] >= ends[:, None, :]).sum(-1)
    return np.minimum(index, durations_BT.shape[1] - 1)
