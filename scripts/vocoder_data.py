"""Vocoder data: recordings out of WebDataset shards, and random segments of them with their mels.

Shards are decoded once, into a folder of int16 arrays that are mapped, not loaded.
"""

from __future__ import annotations

import json
import os
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from nanospeech import audio, mel
from nanospeech.config import AudioConfig
from nanospeech.errors import DataError, InputError
from nanospeech_torch import vocoder_loss as losses

AUDIO = AudioConfig()


@dataclass
class Clip:
    """One recording: where it lies in its shard's int16 samples, and what is said."""

    key: str
    text: str
    samples: np.ndarray


def read_shard(path: Path, cache: Path) -> list[Clip]:
    """Decodes a shard once; afterwards its samples are mapped from the run folder.

    Raises:
        DataError: it is no tar, or holds no recording.
    """
    samples_file, index_file = cache / f"{path.stem}.npy", cache / f"{path.stem}.json"
    if not index_file.exists():
        cache.mkdir(parents=True, exist_ok=True)
        index, waves = decode_shard(path)
        save_atomically(samples_file, lambda f: np.save(f, np.concatenate(waves)))
        save_atomically(index_file, lambda f: f.write(json.dumps(index).encode()))
    index = json.loads(index_file.read_text(encoding="utf-8"))
    samples = np.load(samples_file, mmap_mode="r")
    edges = np.cumsum([0] + [n for _, _, n in index])
    return [Clip(k, t, samples[a:b]) for (k, t, _), a, b in zip(index, edges, edges[1:])]


def decode_shard(path: Path) -> tuple[list[tuple[str, str, int]], list[np.ndarray]]:
    """(key, text, number of samples) and int16 wave of each recording that can be read."""
    index, waves, texts, bad = [], [], {}, []
    try:
        with tarfile.open(path) as tar:
            for member in tqdm(tar, desc=path.stem, leave=False, disable=None):
                key, _, kind = member.name.partition(".")
                content = tar.extractfile(member)
                if content is None:
                    continue
                if kind == "json":
                    texts[key] = json.loads(content.read()).get("text", "")
                    continue
                try:
                    wave = audio.read(content.read(), AUDIO.sample_rate)
                except InputError:
                    bad.append(member.name)
                    continue
                waves.append((np.clip(wave, -1, 1) * 32767).astype(np.int16))
                index.append((key, len(waves[-1])))
    except (OSError, tarfile.TarError, ValueError) as e:
        raise DataError(f"cannot read the shard {path}: {e}") from e
    if bad:
        print(f"{path}: {len(bad)} files are no audio: {', '.join(bad[:5])}", file=sys.stderr)
    if not waves:
        raise DataError(f"{path} holds no recording; wanted {{key}}.mp3 or another audio format")
    return [(key, texts.get(key, ""), n) for key, n in index], waves


def split_clips(
    data: list[Path], held_out: list[Path], first: int, cache: Path
) -> tuple[list[Clip], list[Clip]]:
    """Clips to train on, and clips held out.

    Args:
        data: shards to train on.
        held_out: shards to leave out whole, also where `data` names them.
        first: recordings to leave out at the start of each other shard.
        cache: folder for the decoded recordings.

    Raises:
        DataError: a shard cannot be read, or nothing is left to train on.
    """
    train, held = [], []
    for path in held_out:
        held += read_shard(path, cache)
    kept_out = {p.resolve() for p in held_out}
    for path in data:
        if path.resolve() in kept_out:
            continue
        clips = read_shard(path, cache)
        held += clips[:first]
        train += clips[first:]
    if not train:
        raise DataError("no recording is left to train on; give more shards with --data")
    return train, held


class Segments:
    """Random stretches of recordings, longer recordings oftener; a pure function of the step."""

    def __init__(self, clips: list[Clip], frames: int, batch: int, weights: dict[str, float]):
        self.clips, self.frames, self.batch = clips, frames, batch
        seconds = np.array([len(c.samples) for c in clips], np.float64)
        for prefix, weight in weights.items():
            seconds[[c.key.startswith(prefix) for c in clips]] *= weight
        self.chance = seconds / seconds.sum()

    def draw(self, seed: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
        """Waves (B, (N - 1) * hop) and their mels (B, N, M), which know what lies around them."""
        random = np.random.default_rng(seed)
        samples, side = (self.frames - 1) * AUDIO.hop_length, AUDIO.n_fft // 2
        waves = []
        for i in random.choice(len(self.clips), self.batch, p=self.chance):
            clip = self.clips[i].samples
            start = random.integers(0, max(1, len(clip) - samples + 1))
            low, high = max(0, start - side), min(len(clip), start + samples + side)
            wave = clip[low:high].astype(np.float32) / 32768
            left = side - (start - low)
            right = max(0, samples + 2 * side - left - len(wave))
            wave = np.pad(wave, (left, 0), mode="reflect")  # as at the start of an utterance
            wave = np.pad(wave, (0, right))
            waves.append(wave * 10 ** (random.uniform(-6, 2) / 20))
        around = torch.from_numpy(np.stack(waves))
        window = torch.from_numpy(mel.window(AUDIO.n_fft))
        spectrum = torch.stft(
            around,
            AUDIO.n_fft,
            AUDIO.hop_length,
            window=window,
            center=False,
            return_complex=True,
        )
        return around[:, side:-side], losses.mel_of_magnitude(spectrum.abs(), AUDIO)


def clip_wave(clip: Clip) -> np.ndarray:
    return clip.samples.astype(np.float32) / 32768


def save_atomically(path: Path, write) -> None:
    """Calls write(file) on a file beside `path`, then moves it there."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    with part.open("wb") as f:
        write(f)
    os.replace(part, path)
