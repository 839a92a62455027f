"""Narrow: what a recording of a narrow band lacks, estimated from what it has.

A telephone ends at 3.4 kHz, a headset or a file of 16 kHz at 8. A model that learned from full
recordings takes the emptiness above for the voice. Log mels of speech are nearly a Gaussian whose
bands go together, so bands that lack have an expectation given the others: its conditional mean
(Bishop 2006, equation 2.81), frame by frame. Means and covariances of speech ship with the package
(speech_mels.npz, made by scripts/recipes/speech_mels.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from nanospeech.audio.editing import SAMPLE_RATE
from nanospeech.audio.mel import CLAMP, band_edges

LOUD = 95  # percentile of a band over time: what it has when it sounds
# Nats below speech from which a band at the lower or the upper end shows that the recording ends
# there: 35 and 52 dB. Windows leak into low bands, and soft voices have little in high ones.
EMPTY = 4.0, 6.0
SLOPE = 2.5  # nats below speech: those beside them, in which it ends
SILENT = -2.5  # log mel of bands that speech leaves empty: the top ones, in MP3s
REACH = 8200.0  # Hz: what has sound up to there is taken as it is; files of 16 kHz end below
LEAST = 20  # bands that are needed to tell the others by
NOISE = 0.05  # variance that the bands given may have by themselves


@dataclass(frozen=True)
class SpeechMels:
    """What log mels of speech are like, of clean recordings of full band at one level.

    Attributes:
        mean: (M,).
        covariance: (M, M).
        loud: (M,), the usual LOUD percentile of a recording.
        rms: of the recordings.
    """

    mean: np.ndarray
    covariance: np.ndarray
    loud: np.ndarray
    rms: float


@cache
def speech_mels() -> SpeechMels:
    """Those that ship, for 24 kHz and 100 bands."""
    with np.load(Path(__file__).with_name("speech_mels.npz")) as f:
        mean, covariance, loud = (f[n].astype(np.float64) for n in ("mean", "covariance", "loud"))
        return SpeechMels(mean, covariance, loud, float(f["rms"]))


def lacking(mel: np.ndarray, speech: SpeechMels) -> np.ndarray:
    """Which bands a recording lacks, at its lower and its upper end.

    Args:
        mel: float (N, M), log mels of a recording at speech.rms.

    Returns:
        bool (M,).
    """
    below = speech.loud - np.percentile(mel, LOUD, axis=0)
    soft = (below > SLOPE) | (speech.loud < SILENT)
    found = np.zeros(len(soft), bool)
    low, high = run(soft), len(soft) - run(soft[::-1])
    if (below[:low] > EMPTY[0]).any():
        found[:low] = True
    if (below[high:] > EMPTY[1]).any() and band_edges(SAMPLE_RATE, len(soft))[high] < REACH:
        found[high:] = True
    return found


def run(flags: np.ndarray) -> int:
    """How many are true before the first that is not."""
    return int(np.cumprod(flags).sum())


def widened(mel: np.ndarray, rms: float, speech: SpeechMels | None = None) -> np.ndarray:
    """The log mels of a recording with the bands that it lacks; others are as they were.

    Args:
        mel: float32 (N, M), of the bands of `speech`.
        rms: the recording's level.
        speech: those that ship, if not given.

    Returns:
        float32 (N, M); the same array if nothing lacks, or too much to tell.
    """
    speech = speech or speech_mels()
    shift = np.log(rms / speech.rms)
    levelled = mel - shift
    gone = lacking(levelled, speech)
    kept = ~gone
    if not gone.any() or kept.sum() < LEAST:
        return mel
    out = mel.copy()
    out[:, gone] = expected(levelled, gone, speech) + shift
    return np.maximum(out, np.float32(np.log(CLAMP)))


def expected(mel: np.ndarray, gone: np.ndarray, speech: SpeechMels) -> np.ndarray:
    """The mean of the bands that are gone, given the others: float64 (N, gone.sum()).

    Args:
        mel: float (N, M), log mels at speech.rms.
        gone: bool (M,).
    """
    kept = ~gone
    given = speech.covariance[np.ix_(kept, kept)] + NOISE * np.eye(kept.sum())
    weights = np.linalg.solve(given, speech.covariance[np.ix_(kept, gone)])
    return speech.mean[gone] + (mel[:, kept] - speech.mean[kept]) @ weights
