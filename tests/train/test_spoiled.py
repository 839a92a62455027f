"""Spoiled prompts: poor recordings before clean speech, in batches and as conditions."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from nanospeech.audio.mel import log_mel, to_hertz, to_mels
from nanospeech.audio.wave import read
from nanospeech.config import AudioConfig
from nanospeech.errors import InputError
from nanospeech.evaluate.prompts import degraded
from nanospeech_torch.train.data.batch import LossConfig
from nanospeech_torch.train.data.heard import in_room, level_of, narrowed, noisy, spoiled
from nanospeech_torch.train.data.speech import BatchPlan, SpeechBatches
from tests.train.test_golden_batches import (
    LENS,
    MEAN,
    STD,
    VARIANTS,
    by_hand,
    golden_batch,
    numbers,
    of_frames,
    speech,
)
from tests.train.test_golden_pairs import TOKENIZER, items, npy

ROOT = Path(__file__).parents[2]
AUDIO = AudioConfig()
EDGES = to_hertz(np.linspace(0, to_mels(12_000), 102))
HERTZ, BINS = EDGES[1:-1], np.maximum((EDGES[2:] - EDGES[:-2]) / 2 / (24_000 / 1024), 1)
PLAN = BatchPlan(50, 10_000, 120, buckets=1)


def tones(seconds: float = 2.0) -> np.ndarray:
    """A buzz of 150 Hz that comes and goes four times a second: in each band speech and pauses."""
    t = np.arange(int(seconds * 24_000)) / 24_000
    buzz = np.sum([np.sin(2 * np.pi * 150 * k * t + k * k) / k for k in range(1, 80)], 0)
    return (0.1 * buzz * np.maximum(0, np.sin(2 * np.pi * 4 * t))).astype(np.float32)


def level(mel: np.ndarray) -> float:
    """Level of a mel in decibels: of bands of k bins of magnitude a, power ka^2."""
    return float(10 * np.log10(np.mean(np.sum(np.exp(2 * mel.astype(float)) / BINS, 1))))


def settled(share: float, kind: float = 0.0) -> Any:
    """A generator that draws this share of the way between bounds, and noise without texture."""
    return SimpleNamespace(
        uniform=lambda low, high: low + share * (high - low),
        random=lambda: kind,
        standard_normal=np.zeros,
    )


def taken_apart(mel: np.ndarray, quiet: slice) -> tuple[np.ndarray, np.ndarray]:
    """Powers (N, M) without the noise of its quiet frames, and that of the noise (M,)."""
    power = np.exp(2 * mel)
    noise = power[quiet].mean(0)
    return power - noise, noise


def decibels(power: np.ndarray) -> np.ndarray:
    return 10 * np.log10(power)


def below(power: np.ndarray, noise: np.ndarray) -> float:
    """How many decibels noise is below speech of so many frames."""
    return level(0.5 * np.log(np.maximum(power, 1e-30))) - level(0.5 * np.log(noise)[None])


def slope(noise: np.ndarray) -> float:
    """Decibels by which noise falls an octave, bin for bin."""
    fall = -np.diff(decibels(noise / BINS**2)) / np.diff(np.log2(HERTZ))
    assert np.ptp(fall) < 1e-6
    return fall[0]


@pytest.fixture(scope="module")
def spoils() -> tuple[np.ndarray, list[np.ndarray]]:
    mel = log_mel(tones())
    return mel, [spoiled(mel, AUDIO, np.random.default_rng(i)) for i in range(300)]


def test_spoiled_mels_keep_length_level_and_rhythm(spoils):
    mel, found = spoils
    clear = (HERTZ > 600) & (HERTZ < 2000)  # within every band that is cut
    for other in found:
        assert other.shape == mel.shape and other.dtype == mel.dtype
        assert level(other) == pytest.approx(level(mel), abs=0.1)
        rhythm = np.corrcoef(mel[:, clear].mean(1), other[:, clear].mean(1))[0, 1]
        assert rhythm > 0.7
        assert other.min() >= np.log(1e-5) - 1e-3 and np.isfinite(other).all()
    again = spoiled(mel, AUDIO, np.random.default_rng(7))
    assert np.array_equal(again, found[7])


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_noise_and_bands_are_as_strong_as_is_said(share):
    """Noise 5 to 30 dB below, with 0 to 9 dB an octave; a band of 50 to 400 and 2,500 to 8,000 Hz,
    with 40 to 200 dB an octave, down to a floor 50 to 110 dB below."""
    mel, quiet = np.full((40, 100), 12.0), slice(30, 40)
    mel[quiet] = -200
    speech, noise = taken_apart(spoiled(mel, AUDIO, settled(share, 0.1)), quiet)
    assert np.ptp(decibels(speech[:30])) < 1e-6
    assert below(speech, noise) == pytest.approx(5 + 25 * share, abs=1e-6)
    assert slope(noise) == pytest.approx(9.03 * share, abs=0.01)
    speech, noise = taken_apart(spoiled(mel, AUDIO, settled(share, 0.9)), quiet)
    low, high = 50 + 350 * share, 2500 * 3.2**share
    steep, beyond = 40 + 160 * share, np.maximum(np.log2(low / HERTZ), np.log2(HERTZ / high))
    lost = decibels(speech[0].max() / np.maximum(speech[0], 1e-30))
    clear = steep * beyond < 60  # not lost in the floor's rounding
    assert np.allclose(lost[clear], (steep * np.maximum(beyond, 0))[clear], atol=1e-3)
    assert lost[~clear].min() > 59 and slope(noise) == pytest.approx(0, abs=1e-6)
    whole = decibels(
        np.sum(np.exp(24) / BINS) / np.sum(speech[0] / BINS)
    )  # lost in all, and lifted
    lifted = decibels(speech[0].max()) - decibels(np.exp(24))
    assert below(speech, noise) + whole + lifted == pytest.approx(50 + 60 * share, abs=1e-3)


def test_noise_is_in_every_band_as_real_noise_is():
    """White and pink, by its level alone: means of frames, and how much they differ."""
    spectrum = np.fft.rfft(np.random.default_rng(0).standard_normal(96_000))
    for fall in (0.0, 0.5):
        shaped = spectrum * np.maximum(np.arange(len(spectrum)), 1) ** -fall
        real = log_mel((np.fft.irfft(shaped) * 0.1).astype(np.float32)).astype(float)
        quiet, rng = np.full_like(real, -200), np.random.default_rng(1)
        made = noisy(quiet, AUDIO, level_of(real, AUDIO), fall, rng)
        away, spread = made.mean(0) - real.mean(0), made.std(0) / real.std(0)
        # a little above: the mean of a log of few bins is below the log of their mean
        assert np.abs(away[BINS > 1.5]).max() < 0.3 and np.abs(np.median(away)) < 0.2
        assert 0.8 < np.median(spread) < 1.1


@pytest.mark.parametrize("made", [in_room, spoiled, narrowed])
def test_nothing_is_quieter_than_a_mel_can_be(made):
    mel = np.full((20, 100), np.log(1e-5))
    found = [made(mel, AUDIO, np.random.default_rng(i)) for i in range(8)]
    assert min(m.min() for m in found) >= mel.min()


def test_seven_in_ten_are_noisy_and_six_narrow(spoils):
    """Narrow ones have nothing of the speech at 11 kHz, noisy ones no silent pauses at 1 kHz."""
    mel, found = spoils
    pauses = mel[:, 40] <= np.quantile(mel[:, 40], 0.2)
    narrow = np.array([m[:, HERTZ > 11_000].std(0).mean() < 0.4 for m in found])
    depth = [np.quantile(m[:, 40], 0.9) - m[pauses, 40].mean() for m in found]
    noisy = np.array(depth) < np.log(10 ** (42 / 20))
    assert 0.6 < noisy.mean() < 0.8 and 0.55 < narrow.mean() < 0.85
    assert 0.2 < (narrow & ~noisy).mean() < 0.4  # as a telephone
    assert (~narrow & ~noisy).mean() < 0.08  # steady noise is heard in pauses of other bands


def test_recordings_of_a_telephone_and_of_noise_lie_among_them():
    """Those that `evaluate cloning` makes."""
    wave = read(ROOT / "nanospeech/default/voices/kathleen.flac")
    mel = log_mel(wave)
    found = [spoiled(mel, AUDIO, np.random.default_rng(i)) for i in range(100)]
    for how in ("telephone", "noise"):
        poor = degraded(wave, how)
        real = log_mel(poor * np.sqrt(np.mean(wave**2) / np.mean(poor**2)))
        away = [np.abs(m - real).mean() for m in found]
        assert min(away) < 0.45 * np.abs(mel - real).mean()


def voices(count: int = 240) -> list[dict]:
    rng = np.random.default_rng(0)
    return [
        {
            "__key__": f"{i}",
            "npy": npy(rng.uniform(-5, 0, (30 + i % 20, 100)).astype(np.float16)),
            "text": "c",
            "speaker": f"{i % 40}",
        }
        for i in range(count)
    ]


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_prompts_are_spoiled_and_what_follows_stays_clean(share):
    """So many of the pairs; the span is then the second clip, whose mel is as ever."""
    clean = SpeechBatches(voices(), TOKENIZER, PLAN, AUDIO, LossConfig(pair=1.0))
    some = SpeechBatches(voices(), TOKENIZER, PLAN, AUDIO, LossConfig(pair=1.0, spoil=share))
    found = {"pairs": 0, "spoiled": 0}
    for (text, was), (other, row) in zip(items(clean), items(some)):
        assert text == other and np.array_equal(row["mel"], was["mel"])
        heard = np.concatenate([row["heard"], row["mel"][len(row["heard"]) :]])
        touched = np.flatnonzero(np.abs(heard - row["mel"]).max(1) > 0)
        found["pairs"] += " " in text
        if len(touched):
            assert " " in text and touched.max() < row["prompt"] < row["lens"]
            assert len(touched) > 0.9 * row["prompt"]
            assert np.flatnonzero(row["span"]).tolist() == list(range(row["prompt"], row["lens"]))
            found["spoiled"] += 1
    assert found["pairs"] > 100
    assert found["spoiled"] / found["pairs"] == pytest.approx(share, abs=0.12 if share < 1 else 0)


def test_clips_by_themselves_have_no_prompt_to_spoil():
    loss = LossConfig(pair=0.0, spoil=1.0, band=1.0)
    found = items(SpeechBatches(voices(20), TOKENIZER, PLAN, AUDIO, loss))
    assert len(found) == 20 and not any(len(row["heard"]) for _, row in found)


@pytest.mark.parametrize(("kind", "patch"), VARIANTS)
def test_a_spoiled_prompt_is_the_condition_and_the_speaker_and_never_the_target(kind, patch):
    batch, clean = golden_batch(), golden_batch()
    rng = np.random.default_rng(3)
    heard = (MEAN + STD * rng.standard_normal(batch.mel[:, :3].shape)).astype(np.float32)
    heard[1] = batch.mel[1, :3]  # whose span begins at once
    batch.heard = torch.from_numpy(heard)
    model, network = speech(kind, patch)
    _, plain = speech(kind, patch)
    found = numbers(model(batch))
    [(state, cond, text, _, _)] = network.calls
    for b, n in enumerate(LENS):
        want = by_hand(clean, b, kind, patch)
        assert np.allclose(state[b, :n], want["state"], atol=1e-6)
        expected = want["cond"]
        given = expected.any(-1)
        expected[:3] = np.where(given[:3, None], (heard[b] - MEAN) / STD, 0)
        assert np.allclose(cond[b, :n], expected, atol=1e-6)
        if kind != "aligned":  # there, what is heard moves the sounds that are searched
            assert np.allclose(text[b, : -(-n // patch)], want["text"], atol=1e-6)
            assert of_frames(want["text"], patch, n).shape[0] == n
    if kind == "aligned":
        both = np.concatenate([heard, batch.mel.numpy()[:, 3:]], 1)
        for b, frames in enumerate(batch.prompt.tolist()):
            patches = -(-frames // patch)
            sound = (both[b, : LENS[b]] - MEAN) / STD
            each = [sound[i * patch : (i + 1) * patch].mean(0) for i in range(patches)]
            assert np.allclose(network.speaker[b], np.mean(each, 0), atol=1e-5)
    assert plain.calls == [] and found["flow"][0] > 0


@pytest.mark.parametrize(("kind", "patch"), VARIANTS)
def test_a_prompt_that_is_heard_as_it_was_spoken_changes_nothing(kind, patch):
    """Also where one item's prompt is longer than another item."""
    batch, calls, sums = golden_batch(), [], []
    batch.drop_audio[:] = False
    for frames in (0, min(LENS) + 3):
        batch.heard = batch.mel[:, :frames].clone()
        model, network = speech(kind, patch)
        sums.append(numbers(model(batch)))
        calls += network.calls
    assert sums[0] == sums[1]
    assert all(np.array_equal(plain, heard) for plain, heard in zip(*calls))


def test_spoil_is_a_chance():
    assert LossConfig().spoil == 0
    for bad in (-0.1, 1.1):
        with pytest.raises(InputError, match="spoil"):
            LossConfig(spoil=bad)
