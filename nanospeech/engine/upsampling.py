"""Upsampling: how many patches each token of a text lasts. Plans in NumPy; runs no model."""

from __future__ import annotations

import numpy as np

from nanospeech.errors import InputError

from .alignment import monotonic_search
from .sampling import share_frames

PACE = (
    0.3  # power by which durations of an aligned model follow the prompt's pace (see total_seconds)
)
MASKED = 0.5  # of the means' variance; in clear recordings, bands have no less than 1.1 of it
LONGEST = 6.0  # log of 403 patches; larger predictions come from broken weights


def patch_means(mel_NM: np.ndarray, p: int) -> np.ndarray:
    """Mean of the frames of each patch of p; the last may have fewer: (ceil(N / p), M)."""
    starts = np.arange(0, len(mel_NM), p)
    counts = np.minimum(len(mel_NM) - starts, p)
    return np.add.reduceat(mel_NM, starts, axis=0) / counts[:, None]


def average_durations(count_B: np.ndarray, patches_B: np.ndarray, width: int, p: int) -> np.ndarray:
    """Each token the same patches, the remainder to the last tokens (F5-TTS v1): int64 (B, T).

    Raises:
        InputError: an item with more tokens than patches.
    """
    durations = np.zeros((len(count_B), width), np.int64)
    for row, count, patches in zip(durations, count_B, patches_B):
        check_room(count, patches, p)
        each, rest = divmod(int(patches), int(count))
        row[:count] = each
        row[count - rest : count] += 1
    return durations


def predicted_patches(log_durations_BT: np.ndarray) -> np.ndarray:
    """Predicted patches of each token, at least 1: float64 (B, T)."""
    return np.maximum(np.exp(np.minimum(log_durations_BT.astype(np.float64), LONGEST)), 1)


def total_seconds(each_T: np.ndarray, known: int, prompt: float, pace: float) -> float:
    """Seconds of prompt and new speech, from predicted seconds of each token.

    Predictions for the new tokens are multiplied by (true / predicted length of the prompt) **
    pace: 0 uses the prediction alone, 1 adopts the prompt's pace. Single sentences are read faster
    or slower by chance, so the best value is between.

    Args:
        each_T: predicted seconds of each token.
        known: tokens of the prompt; 0 where its words are not among them, -1 where it is not known
            which are. Nothing is scaled then.
        prompt: its seconds.
        pace: 0 to 1.
    """
    if known < 0:
        return max(prompt, float(each_T.sum()))
    if not known:
        return prompt + float(each_T.sum())
    stretch = max(prompt, 1e-3) / max(float(each_T[:known].sum()), 1e-3)
    return prompt + float(each_T[known:].sum()) * stretch**pace


def searched_durations(normal_NM: np.ndarray, means_TM: np.ndarray, p: int) -> np.ndarray:
    """Patches of each token in a recording: int64 (T,), by monotonic search (arXiv 2005.11129).

    With fewer patches than tokens there is no such path, and the patches are distributed evenly.
    Where noise or a narrow band hides the speech, bands vary less than the means do. Each band is
    then taken for an offset and a gain of 0 to 1 of what it would have been, which are fitted to
    the path, and the search is done again (as signal bias removal, Rahim and Juang 1996).

    Args:
        normal_NM: normalised mel.
        means_TM: the aligner's mean mel of each token.
        p: frames a patch.
    """
    patches = patch_means(normal_NM, p)
    tokens = len(means_TM)
    if len(patches) < tokens:
        return share_frames(np.ones(tokens), len(patches), least=0)
    found = best_path(patches, means_TM)
    for _ in range(2):
        spoken = np.repeat(means_TM, found, axis=0)
        if (patches.var(0) >= MASKED * spoken.var(0)).all():
            break
        here, there = patches - patches.mean(0), spoken - spoken.mean(0)
        gain = (here * there).mean(0) / np.maximum(np.square(there).mean(0), 1e-6)
        found = best_path(here, (means_TM - spoken.mean(0)) * np.clip(gain, 0, 1))
    return found


def best_path(patches_NM: np.ndarray, means_TM: np.ndarray) -> np.ndarray:
    """Patches of each token on the monotonic path that is nearest to its tokens' means."""
    # -0.5 |y - mu|^2 without |y|^2, which is the same on every path
    score = patches_NM @ means_TM.T - 0.5 * np.square(means_TM).sum(-1)
    counts = np.array([len(patches_NM)]), np.array([len(means_TM)])
    return monotonic_search(score[None], *counts)[0]


def planned_durations(
    normal_BNM: np.ndarray,
    means_BTM: np.ndarray,
    guesses_BT: np.ndarray,
    count_B: np.ndarray,
    patches_B: np.ndarray,
    prompt_B: np.ndarray,
    prompt_tokens_B: np.ndarray,
    p: int,
) -> np.ndarray:
    """Patches of each token of prompt and new text: int64 (B, T).

    They sum to patches_B, less the prompt's where its words are not in the text.

    Args:
        normal_BNM: normalised prompt mels.
        means_BTM: the aligner's mean mel of each token.
        guesses_BT: predicted patches of each token.
        count_B: tokens of each text.
        patches_B: patches of each item, at least count_B.
        prompt_B: frames of each prompt.
        prompt_tokens_B: tokens that each prompt speaks; 0 if its words are not in the text, -1
            scales the guesses of all tokens.
        p: frames a patch.

    Raises:
        InputError: the new tokens do not fit behind the prompt.
    """
    durations = np.zeros(guesses_BT.shape, np.int64)
    for b, (count, total, known) in enumerate(zip(count_B, patches_B, prompt_tokens_B)):
        spent = 0 if known < 0 else -(-int(prompt_B[b]) // p)
        known = max(known, 0)
        if known:
            mel = normal_BNM[b, : prompt_B[b]]
            durations[b, :known] = searched_durations(mel, means_BTM[b, :known], p)
        fresh, left = count - known, total - spent
        check_room(fresh, left, p)
        if fresh == 0 and left > 0:
            raise InputError(
                f"prompt_tokens_B says that the prompt speaks all {count} tokens, but lens_B leaves"
                f" {left * p} frames behind it; give it some new text"
            )
        if fresh:
            durations[b, known:count] = share_frames(guesses_BT[b, known:count], int(left))
    return durations


def check_room(tokens: int, patches: int, p: int) -> None:
    """Raises InputError where tokens outnumber the patches that they are to fill."""
    if tokens > patches:
        raise InputError(
            f"{tokens} tokens do not fit in {max(0, patches) * p} frames: this model needs at least"
            f" {p} a token; give more time (lens_B), or less text"
        )
