"""Makes nanospeech/audio/speech_restorer.npz: a small network that hears speech in noise.

    python -m scripts.recipes.speech_restorer kathleen-000000.tar asp-000000.tar kokoro-s0-*.tar \\
        others/*.tar --without stella callie --out nanospeech/audio/speech_restorer.npz

What ships is of these: kathleen, darshan, 29 mixtures of Kokoro-82M's voices and synthetic
speakers (scripts/recipes/synthesize.py --seed 73 --speakers 200 --hours 1.6, English voices, the
first six shards of 100 clips), 162 speakers in all of whom there is enough. SHARDS are clean
recordings of full band. An example is 4.1 s of one speaker: in noise of some colour 6 to 28 dB
below it, or (--narrow, a share of them) without the bands that a telephone or a low rate leaves
out. What is learned is the difference between the most probable speech (noise.py, narrow.py) and
the speech. Of a narrow band it does no better than that on people, so nanospeech uses it for noise
alone (restorer.py). 2,600 examples take six minutes of two cores, --minutes 9 are 2,400 steps.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from nanospeech.audio import restorer
from nanospeech.audio import wave as audio
from nanospeech.audio.mel import band_edges, log_bands, log_mel
from nanospeech.audio.narrow import LEAST, expected, speech_mels
from nanospeech.audio.noise import HOP, OVER, SIZE, most_likely, noise_in
from nanospeech.audio.recording import spectra
from nanospeech.cli import Parser, command
from nanospeech.corpus.layouts import find
from nanospeech.corpus.mp3 import BadAudio, decode
from nanospeech.errors import InputError
from nanospeech.files import whole

SAMPLES, FRAMES = 98_304, 384  # of an example
HEARD = 320  # frames of an example that a step takes, from anywhere
SECONDS = 2.0, 12.0  # of a recording
MOST = 30  # recordings of a speaker
QUIET = 0.01  # the peak of one that has no speech
SNR = 6.0, 28.0  # dB
NOISES, LENGTH = 300, 1 << 17  # noises that examples take, and the samples of each
SMALL = "synthetic", "mix"  # begin the names of speakers whose share is a quarter of a person's
HIDDEN, BATCH, RATE = 96, 16, 1.5e-3


class Restorer(nn.Module):
    """The network of nanospeech/audio/restorer.py, to be trained: (B, 3 M, N) to (B, M, N)."""

    def __init__(self, bands: int):
        super().__init__()
        self.first = nn.Conv1d(3 * bands, HIDDEN, 3, padding=1)
        self.convs = nn.ModuleList(
            nn.Conv1d(HIDDEN, HIDDEN, 5, padding=2 * d, dilation=d) for d in restorer.DILATIONS
        )
        self.whole = nn.Linear(2 * HIDDEN, HIDDEN)
        self.out = nn.Conv1d(HIDDEN, bands, 1)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.get_parameter("bias"))
        self.bands = bands

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x)
        for i, conv in enumerate(self.convs):
            hidden = hidden + conv(gelu(hidden))
            if i == restorer.POOLED:
                bent = gelu(hidden)
                pooled = torch.cat([bent.mean(2), bent.std(2, correction=0)], 1)
                hidden = hidden + self.whole(pooled)[:, :, None]
        return x[:, : self.bands] + self.out(gelu(hidden))

    def arrays(self) -> dict[str, np.ndarray]:
        """The weights as restorer() has them."""
        found: dict[str, np.ndarray] = {}
        for name, t in self.state_dict().items():
            array = t.numpy().astype(np.float16)
            array = array[:, :, 0] if name == "out.weight" else array
            name = name.replace("first.", "in.").replace("convs.", "")
            found[name] = np.ascontiguousarray(array.T)  # kernels are (K, in, out)
        return found


def gelu(x: Tensor) -> Tensor:
    return nn.functional.gelu(x, approximate="tanh")


def noise(rng: np.random.Generator) -> np.ndarray:
    """Noise of some colour, now and then with a hum: (LENGTH,), of variance 1."""
    hertz = np.fft.rfftfreq(LENGTH, 1 / audio.SAMPLE_RATE)
    spectrum = np.fft.rfft(rng.standard_normal(LENGTH))
    power = rng.choice([0, 1, 2, rng.uniform(-0.3, 2.3)])
    spectrum *= np.maximum(hertz, 40) ** (-power / 2)
    if rng.random() < 0.6:  # its own colour
        octaves = np.log2(np.maximum(hertz, 30))
        for _ in range(rng.integers(1, 5)):
            off = (octaves - rng.uniform(6, 13.5)) / rng.uniform(0.3, 1.5)
            spectrum *= 10 ** (rng.normal(0, 6) / 20 * np.exp(-off * off / 2))
    found = np.fft.irfft(spectrum, LENGTH)
    if rng.random() < 0.15:
        at, pitch = np.arange(LENGTH) / audio.SAMPLE_RATE, rng.choice([50, 60, 100, 120, 250])
        for k in range(1, rng.integers(2, 8)):
            phase = 2 * np.pi * (pitch * k * at + rng.random())
            found += found.std() * rng.uniform(0, 0.6) * np.sin(phase)
    return (found / found.std()).astype(np.float32)


@dataclass
class Example:
    """What is given and wanted, float16 (N, 3 M) and (N, M) in SCALE nats, and where it counts."""

    given: np.ndarray
    wanted: np.ndarray
    counts: np.ndarray  # bool (M,)


def in_noise(wave: np.ndarray, other: np.ndarray, rng: np.random.Generator) -> Example:
    """A clip with noise that is to be taken out."""
    speech, loud = speech_mels(), audio.rms(wave)
    poor = wave + other * (loud * 10 ** (-rng.uniform(*SNR) / 20))
    shift = np.log(audio.rms(poor) / speech.rms)
    heard, clean = (log_bands(np.abs(spectra(x, SIZE, HOP))) - shift for x in (poor, wave))
    floor = noise_in(heard)
    likely = most_likely(heard, floor + np.log(OVER), speech)
    given = restorer.features(heard, likely, floor, speech.mean)
    return example(given, clean, np.ones(heard.shape[1], bool))


def in_narrow_band(wave: np.ndarray, rng: np.random.Generator) -> Example | None:
    """A clip that ends at a telephone's band, or a lower rate's; None where too little is left."""
    speech, kind = speech_mels(), rng.integers(4)
    low = (rng.uniform(200, 350), 0.0, rng.uniform(80, 400), 0.0)[kind]
    rates = rng.choice([3400.0, 5512.0, 7900.0, 12_000.0])
    high = (rng.uniform(3200, 3700), rng.uniform(3000, 4200), rates, rng.uniform(4200, 8100))[kind]
    spectrum, hertz = np.fft.rfft(wave), np.fft.rfftfreq(len(wave), 1 / audio.SAMPLE_RATE)
    poor = np.fft.irfft(np.where((hertz < low) | (hertz > high), 0, spectrum), len(wave))
    shift = np.log(audio.rms(poor) / speech.rms)
    heard, clean = (log_mel(x.astype(np.float32)) - shift for x in (poor, wave))
    begins = band_edges(audio.SAMPLE_RATE, heard.shape[1])[1:-1]
    gone = begins > high + rng.uniform(-250, 50) * (high < 11_000)
    gone |= begins < (low and low + rng.uniform(-20, 60))
    if not gone.any() or (~gone).sum() < LEAST:
        return None
    likely, bands = heard.copy(), heard.shape[1]
    likely[:, gone] = expected(heard, gone, speech)
    given = restorer.features(heard, likely, heard, speech.mean)
    given[:, 2 * bands :] = 1.0  # no noise
    given[:, bands : 2 * bands][:, gone] = 0.0
    given[:, 2 * bands :][:, gone] = restorer.ABOVE[0]
    return example(given, clean, gone)


def example(given: np.ndarray, clean: np.ndarray, counts: np.ndarray) -> Example:
    wanted = (np.maximum(clean, restorer.FLOOR) - speech_mels().mean) / restorer.SCALE
    return Example(given[:FRAMES].astype("f2"), wanted[:FRAMES].astype("f2"), counts)


def people(shards: list[Path], without: list[str]) -> dict[str, list[np.ndarray]]:
    """Waves by speaker, of those whose two longest make an example."""
    found: dict[str, list[np.ndarray]] = defaultdict(list)
    for sample in tqdm(find(shards)[0], "recordings", unit=" files", disable=None):
        who = sample.speaker or ""
        if who not in without and len(found[who]) < MOST:
            try:
                wave = decode(sample.audio.read(), *SECONDS)[0]
            except BadAudio:
                continue
            if np.abs(wave).max() >= QUIET:
                found[who].append(wave)
    longest = {who: sum(sorted(map(len, waves))[-2:]) for who, waves in found.items()}
    return {who: waves for who, waves in found.items() if longest[who] >= SAMPLES}


def examples(
    speakers: dict[str, list[np.ndarray]], count: int, narrow: float, seed: int
) -> list[Example]:
    """So many, of speakers drawn alike, people four times as often as synthetic ones."""
    rng, names = np.random.default_rng(seed), sorted(speakers)
    noises = [noise(rng) for _ in range(min(NOISES, count))]
    share = np.array([1.0 if name.startswith(SMALL) else 4.0 for name in names])
    found: list[Example] = []
    with tqdm(total=count, desc="examples", disable=None) as bar:
        while len(found) < count:
            waves = speakers[names[rng.choice(len(names), p=share / share.sum())]]
            wave = np.concatenate([waves[i] for i in rng.permutation(len(waves))[:2]])
            begin = int(rng.uniform(0, max(1, len(wave) - SAMPLES)))
            wave = wave[begin : begin + SAMPLES]
            if len(wave) < SAMPLES or np.abs(wave).max() < QUIET:
                continue
            if rng.random() < narrow:
                one = in_narrow_band(wave, rng)
            else:
                other = np.roll(noises[rng.integers(len(noises))], rng.integers(LENGTH))
                one = in_noise(wave, other[:SAMPLES], rng)
            if one is not None:
                found.append(one)
                bar.update()
    return found


def trained(found: list[Example], minutes: float) -> Restorer:
    """The mean of a network's weights over its training."""
    torch.manual_seed(0)
    rng, speech = np.random.default_rng(0), speech_mels()
    net = Restorer(len(speech.mean))
    kept = {name: t.detach().clone() for name, t in net.state_dict().items()}
    optimizer = torch.optim.AdamW(net.parameters(), RATE, (0.9, 0.98), weight_decay=0.02)
    middle = torch.tensor(speech.mean, dtype=torch.float32)[None, :, None]
    began, step = time.monotonic(), 0
    with tqdm(desc="steps", disable=None) as bar:
        while (done := (time.monotonic() - began) / (60 * minutes)) < 1:
            rate = RATE * min(1.0, (step + 1) / 200)
            for group in optimizer.param_groups:
                group["lr"] = rate * max(0.01, (1 + math.cos(math.pi * done)) / 2)
            chosen = [found[i] for i in rng.integers(0, len(found), BATCH)]
            at = int(rng.integers(0, FRAMES - HEARD))
            given, wanted = (
                torch.tensor(np.stack([part(e)[at : at + HEARD] for e in chosen]).astype("f4"))
                .transpose(1, 2)
                .contiguous()
                for part in (lambda e: e.given, lambda e: e.wanted)
            )
            counts = np.stack([np.where(e.counts, 1 + ~e.counts.all(), 0) + 0.02 for e in chosen])
            power = torch.exp(2 * (wanted * restorer.SCALE + middle)).sum(1, keepdim=True)
            loud = power > power.amax(2, keepdim=True) * 10**-4.5
            weight = torch.tensor(counts.astype("f4"))[:, :, None] * torch.where(loud, 1.0, 0.3)
            loss = ((net(given) - wanted).abs() * weight).sum() / weight.sum()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            step += 1
            decay = min(0.998, step / (step + 20))
            for name, t in net.state_dict().items():
                kept[name].lerp_(t, 1 - decay)
            bar.update()
            bar.set_postfix(nats=f"{restorer.SCALE * loss.item():.3f}")
    net.load_state_dict(kept)
    return net


@command
def main(argv: list[str] | None = None) -> int:
    parser = Parser(
        prog="python -m scripts.recipes.speech_restorer",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shards", nargs="+", type=Path, help="see above")
    parser.add_argument("--out", type=Path, required=True, help="file to write")
    parser.add_argument("--without", nargs="*", default=[], help="speakers to leave out")
    parser.add_argument("--examples", type=int, default=2600, help="how many (%(default)s)")
    parser.add_argument("--narrow", type=float, default=0.45, help="share (%(default)s)")
    parser.add_argument("--minutes", type=float, default=9.0, help="of training (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the examples (%(default)s)")
    a = parser.parse_args(argv)
    speakers = people(a.shards, a.without)
    if not speakers:
        raise InputError(
            f"no speaker in {', '.join(map(str, a.shards))} has two recordings of {SECONDS[0]:g} to"
            f" {SECONDS[1]:g} s that make {SAMPLES / audio.SAMPLE_RATE:.1f} s, but those left out"
        )
    net = trained(examples(speakers, a.examples, a.narrow, a.seed), a.minutes)
    with whole(a.out) as part, part.open("wb") as file:
        np.savez_compressed(file, **net.arrays())  # type: ignore[arg-type]
    print(f"{a.examples} examples of {len(speakers)} speakers: {a.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
