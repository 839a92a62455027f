"""Postfilter: mels made clearer before they become sound. NumPy only, the same for both backends.

A small model's mels are blurred along the bands, which dulls formants, and flicker between the
frames of a patch, which roughens tones. Postfilters of speech codecs sharpen formants too (Chen and
Gersho, "Adaptive postfiltering for quality enhancement of coded speech", 1995).
"""

from __future__ import annotations

import numpy as np

from nanospeech.config import PostfilterConfig

WIDTH = 2.0  # bands: the standard deviation of the blur that sharpening goes away from
REACH = 6  # bands to each side that the blur takes in


def postfilter(mel_NM: np.ndarray, config: PostfilterConfig | None) -> np.ndarray:
    """Smooths over frames, then sharpens over bands.

    Args:
        mel_NM: float32 log mel of new speech alone, (N, M).
        config: how much of each; None leaves the mel as it is.

    Returns:
        float32 (N, M). What is constant over frames stays so, and the mean over bands hardly moves.
    """
    if config is None or not len(mel_NM):
        return mel_NM
    ends = np.pad(mel_NM, ((1, 1), (0, 0)), mode="edge")
    mel = mel_NM + config.smooth * (ends[:-2] - 2 * mel_NM + ends[2:])
    mel = mel + config.sharpen * (mel - blurred(mel))
    return mel.astype(np.float32)


def blur_weights() -> np.ndarray:
    """Weights of a band and of REACH neighbours to each side in its blur; they add up to 1."""
    offsets = np.arange(-REACH, REACH + 1)
    weights = np.exp(-0.5 * (offsets / WIDTH) ** 2)
    return weights / weights.sum()


def blurred(mel_NM: np.ndarray) -> np.ndarray:
    """Each band's Gaussian mean with its neighbours; mirrored at the ends."""
    weights = blur_weights()
    bands = np.pad(mel_NM, ((0, 0), (REACH, REACH)), mode="symmetric")
    count = mel_NM.shape[1]
    return sum(w * bands[:, k : k + count] for k, w in enumerate(weights))  # type: ignore[return-value]
