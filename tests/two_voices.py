"""A release folder of two voices, one with weights of its own."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from nanospeech.release.folder import MODEL
from nanospeech.release.tensors import read_tensors
from nanospeech.release.voice_weights import added, difference, is_thin


def copy_with_two_voices(release: Path, folder: Path, slower: float = 0.0) -> Path:
    """A copy of a folder with its voice "tone" and, with weights, "other".

    Args:
        slower: added to the logarithm of the durations of the second voice's tokens.
    """
    shutil.copytree(release, folder)
    base = {n: t.astype(np.float32) for n, t in read_tensors(folder / MODEL).items()}
    rng = np.random.default_rng(0)
    tuned = {n: t + 0.02 * rng.standard_normal(t.shape).astype(np.float32) for n, t in base.items()}
    tuned["transformer.aligner.to_duration.2.bias"] += slower
    change = difference(base, tuned, sum(t.size for t in base.values()) // 2)
    for suffix in (".wav", ".txt"):
        shutil.copy(folder / f"voices/tone{suffix}", folder / f"voices/other{suffix}")
    save_file(change, folder / "voices" / "other.safetensors")
    return folder


def two_voices_and_one(release: Path, two: Path, alone: Path, slower: float = 0.0) -> None:
    """Two copies: one with two voices, and one of a model that speaks as the second of them."""
    copy_with_two_voices(release, two, slower)
    shutil.copytree(release, alone)
    base = {n: t.astype(np.float32) for n, t in read_tensors(two / MODEL).items()}
    assert not all(map(is_thin, base.values()))
    change = read_tensors(two / "voices" / "other.safetensors")
    save_file(added(base, change, two), alone / MODEL)
