"""Makes speakers of speakers: recordings with other pitches and formants, as shards to train on.

    pip install 'nanospeech-tts[eval]' pyworld-prebuilt
    python -m scripts.recipes.revoice shards/*.tar --out virtual --per-speaker 12

The WORLD vocoder (Morise et al. 2016) takes speech apart into pitch, spectral envelope and noise.
Each run of --per-speaker clips of one person becomes one virtual speaker: its factors of pitch, of
formants and of noise stay the same for all of its clips, so that a prompt and what follows it
agree. A shorter vocal tract has a higher voice: pitch moves with the formants, and a little by
itself. What a person says, the rhythm, the room and the microphone stay.

Speakers are functions of --seed and of the clips' order alone; shards that are there are not made
again, and refused where they were made of other clips. Each has MP3s and `{key}.json` with text,
duration in seconds, speaker (NAME-v31-004), source and license of the recording. Let a recogniser
hear the result (`nanospeech prepare hear`).
"""

from __future__ import annotations

import json
import sys
import tarfile
import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path

import numpy as np
from tqdm import tqdm

from nanospeech.audio import wave as audio
from nanospeech.audio.mp3 import encode
from nanospeech.audio.wave import SAMPLE_RATE
from nanospeech.cli import Parser, command
from nanospeech.corpus.layouts import Sample, find
from nanospeech.corpus.mp3 import BadAudio, decode, in_parallel
from nanospeech.errors import InputError, require
from nanospeech.files import whole
from nanospeech.machine import cores
from nanospeech.prepare.shards import add_files
from scripts.recipes.clip_shard import check_alike

FORMANTS = 0.16  # log of the largest factor: 1.17
PITCHES = (75.0, 320.0)  # Hz, of the median: what people speak at
LEAST_SECONDS = 0.8


@dataclass(frozen=True)
class Factors:
    """What a virtual speaker's voice is multiplied by.

    Attributes:
        formants: of the frequencies of the spectral envelope.
        pitch: of the fundamental frequency.
        noise: power of the aperiodicity, a share below 1: above 1 less breath.
    """

    formants: float
    pitch: float
    noise: float


def draw_factors(seed: int, number: int) -> Factors:
    """Of the virtual speaker of that number; at least 5 % in formants away from the recording."""
    rng = np.random.default_rng([seed, number])
    way = rng.choice([-1.0, 1.0]) * rng.uniform(0.05, FORMANTS)
    pitch = float(np.exp(2.2 * way + 0.12 * rng.standard_normal()))
    return Factors(float(np.exp(way)), pitch, float(np.exp(rng.uniform(-0.25, 0.25))))


def revoice(wave: np.ndarray, factors: Factors) -> np.ndarray:
    """A recording in another voice, as long and as loud.

    Args:
        wave: float32 (n,) at 24 kHz.
        factors: of pitch (bounded, so that the median stays within PITCHES), formants and noise.

    Returns:
        float32 (n,).
    """
    world = require("pyworld", package="pyworld-prebuilt")
    x = wave.astype(np.float64)
    f0, times = world.dio(x, SAMPLE_RATE, f0_floor=60.0, f0_ceil=600.0)
    f0 = world.stonemask(x, f0, times, SAMPLE_RATE)
    spectrum = world.cheaptrick(x, f0, times, SAMPLE_RATE)
    noise = world.d4c(x, f0, times, SAMPLE_RATE)
    places = np.arange(spectrum.shape[1]) / factors.formants
    spectrum = np.exp(stretch(np.log(spectrum), places))
    noise = np.clip(stretch(noise, places), 1e-6, 1.0) ** factors.noise
    if (voiced := f0[f0 > 0]).size:
        lowest, highest = (p / np.median(voiced) for p in PITCHES)
        f0 = f0 * np.clip(factors.pitch, lowest, max(lowest, highest))
    made = world.synthesize(f0, spectrum, noise, SAMPLE_RATE)
    made = np.pad(made, (0, max(0, len(wave) - len(made))))[: len(wave)]
    made *= audio.rms(wave) / max(audio.rms(made), 1e-9)
    return (made / max(1.0, np.abs(made).max() / 0.95)).astype(np.float32)


def stretch(rows: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Each row (frames, bins) read at other places, linearly; beyond the last bin the last."""
    places = np.minimum(places, rows.shape[1] - 1)
    low = np.minimum(places.astype(int), rows.shape[1] - 2)
    share = places - low
    return np.ascontiguousarray((1 - share) * rows[:, low] + share * rows[:, low + 1])


def plan(
    samples: Sequence[Sample], per_speaker: int, seed: int
) -> Iterator[tuple[Sample, int, str]]:
    """Each clip with its virtual speaker's number and name; clips in an order of the seed's."""
    people: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        people[sample.speaker or "unnamed"].append(sample)
    number = 0
    for name, clips in sorted(people.items()):
        order = np.random.default_rng([seed, 1]).permutation(len(clips))
        groups = max(1, len(clips) // per_speaker)
        for of_speaker, group in enumerate(np.array_split(order, groups)):
            for i in group:
                yield clips[i], number, f"{name}-v{seed}-{of_speaker:03d}"
            number += 1


def make(item: tuple[Sample, int, str], seed: int) -> tuple[Sample, bytes, float] | None:
    """One clip's new sample, MP3 and seconds; None if it cannot be read or is too short."""
    sample, number, name = item
    try:
        wave = decode(sample.audio.read(), min_seconds=LEAST_SECONDS)[0]
    except BadAudio:
        return None
    data = encode(revoice(wave, draw_factors(seed, number)))
    return replace(sample, speaker=name), data, len(wave) / SAMPLE_RATE


def files_of(sample: Sample, data: bytes, seconds: float) -> dict[str, bytes]:
    """A new sample's members of a shard, by their extensions."""
    meta = sample.extra | {"text": sample.text, "speaker": sample.speaker}
    meta["duration"] = round(seconds, 4)
    return {"mp3": data, "json": json.dumps(meta).encode()}


@command
def main(argv: list[str] | None = None) -> int:
    parser = Parser("python -m scripts.recipes.revoice", __doc__)
    parser.add_argument("data", type=Path, nargs="+", help="as `prepare shards` reads them")
    parser.add_argument("--out", type=Path, required=True, help="folder of shards")
    parser.add_argument("--without", nargs="*", default=[], help="speakers to leave out")
    parser.add_argument("--per-speaker", type=int, default=12, help="clips of one virtual speaker")
    parser.add_argument("--per-shard", type=int, default=250)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=cores(), help="processes")
    a = parser.parse_args(argv)
    for flag in ("per_speaker", "per_shard", "jobs"):
        if getattr(a, flag) < 1:
            raise InputError(f"--{flag.replace('_', '-')} is {getattr(a, flag)}; 1 or more")
    require("pyworld", package="pyworld-prebuilt")
    found = find(a.data)[0]
    if strangers := sorted({*a.without} - {s.speaker for s in found}):
        raise InputError(f"no recordings of {', '.join(strangers)}, who are to be left out")
    samples = [s for s in found if s.speaker not in a.without]
    if not samples:
        raise InputError("no recordings are left but those of --without")
    items = list(plan(samples, a.per_speaker, a.seed))
    # speakers' clips lie far apart in a shard, as they do in a corpus that was shuffled
    items = [items[i] for i in np.random.default_rng([a.seed, 2]).permutation(len(items))]
    a.out.mkdir(parents=True, exist_ok=True)
    made_of = zlib.crc32(repr([(s.key, name) for s, _, name in items]).encode())
    settings = {"recordings": made_of, "per_speaker": a.per_speaker, "per_shard": a.per_shard}
    check_alike(a.out, f"virtual-{a.seed}", settings)
    shards = [items[start : start + a.per_shard] for start in range(0, len(items), a.per_shard)]
    paths = [a.out / f"virtual-{a.seed}-{n:06d}.tar" for n in range(len(shards))]
    todo = [(path, some) for path, some in zip(paths, shards) if not path.exists()]
    each = chain.from_iterable(some for _, some in todo)
    results = in_parallel(partial(make, seed=a.seed), each, a.jobs)
    made = left_out = 0
    done = len(items) - sum(len(some) for _, some in todo)
    with tqdm(total=len(items), initial=done, unit="clip", disable=None) as bar:
        for path, some in todo:
            with whole(path, several=True) as part, tarfile.open(part, "w") as tar:
                for result in islice(results, len(some)):
                    if result is None:
                        left_out += 1
                    else:
                        add_files(tar, f"{result[0].key}-v{a.seed}", files_of(*result))
                        made += 1
                    bar.update()
    of = f"{1 + max(n for _, n, _ in items)} virtual speakers"
    print(f"{a.out}: {of}, {made} clips made now, {left_out} left out: too short or unreadable")
    return 0


if __name__ == "__main__":
    sys.exit(main())
