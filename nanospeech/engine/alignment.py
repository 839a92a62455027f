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
    rows = np.arange(batch)
    moved = np.zeros((frames, batch, tokens), bool)
    best = np.full((batch, tokens + 1), -np.inf, np.float32)  # one column ahead of token 0
    best[:, 1] = score[:, 0, 0]
    for n in range(1, frames):
        moved[n] = best[:, :-1] > best[:, 1:]
        best[:, 1:] = np.maximum(best[:, :-1], best[:, 1:]) + score[:, n]
        best[:, 0] = -np.inf
    durations = np.zeros((batch, tokens), np.int64)
    token = np.asarray(tokens_B, np.int64) - 1
    for n in range(frames - 1, -1, -1):
        inside = n < np.asarray(frames_B)
        durations[rows, token] += inside
        token = token - (inside & moved[n, rows, token])
    return durations


def frame_tokens(durations_BT: np.ndarray, frames: int) -> np.ndarray:
    """Which token each frame belongs to: int64 (B, frames); the last one past the end."""
    ends = np.cumsum(durations_BT, axis=1)
    index = (np.arange(frames)[None, :, None] >= ends[:, None, :]).sum(-1)
    return np.minimum(index, durations_BT.shape[1] - 1)
