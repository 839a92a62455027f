"""GPU clips: recordings and mels in a GPU's memory, and segments cut of them. No model.

A segment is drawn by the frame that it begins at, so that a batch is a gather of three tables.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from nanospeech.audio.wave import set_level, unclipped
from nanospeech.config import AudioConfig
from nanospeech.corpus.held_out import is_held_out
from nanospeech.corpus.mp3 import BadAudio, decode
from nanospeech.corpus.tars import split_name
from nanospeech.errors import InputError
from nanospeech_torch.mel import MelSpec
from nanospeech_torch.train.data.clips import Skip, features

AUDIO = AudioConfig()
HOP = AUDIO.hop_length
KINDS = ("recordings", "clear", "made", "spoken")
FORMATS = ("flac", "mp3", "wav")

Recording = tuple[str, np.ndarray, "np.ndarray | None"]  # key, wave, made mel


@dataclass
class Clips:
    """Recordings and mels, one after another, on one device.

    Attributes:
        hops: int16 (N, HOP), the samples of each frame's hop.
        mels: float16 (N, M), the recordings' own.
        made: (N, M), those that a speech model made of them; zeros where it made none.
        spoken: (K, M), mels without recordings.
        starts: of each of KINDS that there is, the frames at which a segment can begin: any
            recording, clear ones, clear ones with a made mel, and spoken mels.
    """

    hops: Tensor
    mels: Tensor
    made: Tensor
    spoken: Tensor
    starts: dict[str, Tensor]

    def draw(self, counts: dict[str, int], rng: np.random.Generator) -> Tensor:
        """Where the segments of a batch begin, so many of each kind."""
        found = []
        for kind, n in counts.items():
            if n:
                starts = self.starts[kind]
                which = torch.from_numpy(rng.integers(0, len(starts), n))
                found.append(starts[which.to(starts.device, non_blocking=True)])
        return torch.cat(found)


def read_tar(path: Path, held_out: float) -> dict[str, dict[str, bytes]]:
    """The files of each clip of a shard, by their extensions; without those held out."""
    found: dict[str, dict[str, bytes]] = {}
    with tarfile.open(path) as tar:
        for member in tar:
            key, kind = split_name(member.name)
            content = tar.extractfile(member)
            if content is not None and not is_held_out(key, share=held_out):
                found.setdefault(key, {})[kind] = content.read()
    return found


def recording(key: str, files: dict[str, bytes], level: float) -> Recording | None:
    """A clip's wave at a level, RMS, and its made mel; None: unusable."""
    kind = next((k for k in FORMATS if k in files), None)
    if kind is None:
        return None
    try:
        wave = unclipped(set_level(decode(files[kind])[0], level)[0])
        made = features(files["npy"], AUDIO.n_mels) if "npy" in files else None
    except (BadAudio, Skip):
        return None
    return key, wave, made


def read(
    recordings: Iterable[Path],
    made: Iterable[Path],
    spoken: Iterable[Path],
    level: float,
    held_out: float,
) -> tuple[list[Recording], list[np.ndarray]]:
    """The recordings, with their made mels, and the spoken mels of shards.

    Args:
        recordings: shards of audio.
        made: shards of `nanospeech prepare mels` of some of these recordings, by their keys.
        spoken: shards of `nanospeech prepare spoken`.
        level: RMS that recordings are brought to, that of the model which made the mels.
        held_out: share of the recordings that is left out.

    Raises:
        InputError: two recordings have one key.
    """
    keyed: dict[str, dict[str, bytes]] = {}
    for path in recordings:
        here = read_tar(path, held_out)
        if twice := keyed.keys() & here.keys():
            raise InputError(
                f"{path} has a recording {min(twice)}, as another shard has: make shards of all at "
                "once by nanospeech prepare shards, which gives each a name of its own"
            )
        keyed |= here
    for path in made:
        keyed |= read_tar(path, held_out)
    at_level = partial(recording, level=level)
    with ThreadPoolExecutor() as pool:
        found = [x for x in pool.map(at_level, keyed, keyed.values()) if x is not None]
    files = [f for path in spoken for f in read_tar(path, 0.0).values()]
    return found, [features(f["npy"], AUDIO.n_mels) for f in files if "npy" in f]


def gather(
    recordings: Iterable[Recording],
    spoken: Iterable[np.ndarray],
    clear: set[str] | None,
    frames: int,
    device: torch.device,
) -> Clips:
    """Puts clips on a device.

    Args:
        recordings: float32 waves with their made mels.
        spoken: mels.
        clear: keys of the clear recordings; None: all are.
        frames: of a segment; clips that are shorter are left out.
        device: where to.

    Raises:
        InputError: no recording is as long as a segment.
    """
    mel_of, at = MelSpec(AUDIO).to(device), 0
    hops, mels, others = [], [], []
    starts: dict[str, list[np.ndarray]] = {kind: [] for kind in KINDS}
    for key, wave, made in recordings:
        if (n := len(wave) // HOP) < frames:
            continue
        sound = torch.from_numpy(np.ascontiguousarray(wave[: n * HOP])).to(device)
        mels.append(mel_of(sound[None])[0, :n].half())
        hops.append((sound.clamp(-1, 1) * 32767).round().short().view(n, HOP))
        begin, kinds = np.arange(n - frames + 1), ["recordings"]
        kinds += ["clear"] if clear is None or key in clear else []
        for kind in kinds:
            starts[kind].append(at + begin)
        others.append(other := torch.zeros_like(mels[-1]))
        if made is not None and (m := min(n, len(made))) >= frames:
            other[:m] = torch.from_numpy(made[:m]).to(device)
            if "clear" in kinds:
                starts["made"].append(at + begin[: m - frames + 1])
        at += n
    if not hops:
        raise InputError(f"no recording is as long as a segment, {frames} frames")
    long, at = [torch.from_numpy(m).half() for m in spoken if len(m) >= frames], 0
    for m in long:
        starts["spoken"].append(at + np.arange(len(m) - frames + 1))
        at += len(m)
    spoken_mels = torch.cat([*long, torch.zeros(1, AUDIO.n_mels).half()]).to(device)
    there = {k: torch.from_numpy(np.concatenate(v)).to(device) for k, v in starts.items() if v}
    return Clips(torch.cat(hops), torch.cat(mels), torch.cat(others), spoken_mels, there)
