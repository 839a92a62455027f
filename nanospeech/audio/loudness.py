"""Loudness: integrated loudness (ITU-R BS.1770-5, EBU R 128), and waves levelled to one.

Their peaks are limiter.py's.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain

import numpy as np

from .limiter import AHEAD, CEILING, PEAK, limit, limited, limiting, peaks

log = logging.getLogger("nanospeech")
BLOCK, STEP = 0.4, 0.1  # seconds of a gating block, and between two
ABSOLUTE, RELATIVE = -70.0, -10.0  # LUFS, and LU below the mean of the louder blocks
OFFSET = -0.691  # dB, so that a sine of 997 Hz at full scale has -3.01 LUFS
EDGE = 0.01  # seconds of the fades at both ends
MEASURED = 30.0  # seconds of a long wave that its gain goes by
SOON = 1.0  # and of a voice's first stream
KNOWN = 1.0  # seconds of speech that what is known of a voice weighs as much as, in a stream
AGAIN = 0.25  # seconds more that a stream's loudness is measured again after
SLOPE = 4.0  # dB a second that a stream's gain moves by at most
CORRECTIONS, MOST_CORRECTED = 5, 3.0  # rounds, and dB, that make up for what limiting takes away
SHORT = 1.0  # LU, and more, below what was asked for: they are told
LOUDEST_GAIN = 30.0  # dB: what is nearly silent is not raised to noise
POOL = 16  # samples, at most, that a correction has one gain for


@lru_cache
def k_weighting(rate: int) -> np.ndarray:
    """Impulse response of the K weighting at a sample rate: float32 (n,), 0.35 s long.

    A high shelf and a high pass, bilinear transforms of analogue filters whose digital form at 48
    kHz is that of BS.1770 (De Man, "Evaluation of implementations of the EBU R128 loudness
    measurement", 2018).
    """
    n = 1 << int(rate * 2).bit_length()  # long enough that nothing of the tail comes round
    z = np.exp(-2j * np.pi * np.arange(n // 2 + 1) / n)
    k, high = np.tan(np.pi * 1681.974450955533 / rate), 10 ** (3.999843853973347 / 20)
    shelf = biquad(z, k, 0.7071752369554196, (high, high**0.4996667741545416, 1.0))
    k = np.tan(np.pi * 38.13547087602444 / rate)
    # BS.1770 has 1, -2, 1 for this filter's numerator at any rate: without its gain
    passed = biquad(z, k, 0.5003270373238773, (1.0, 0.0, 0.0)) * (
        1 + k / 0.5003270373238773 + k * k
    )
    return np.fft.irfft(shelf * passed, n)[: int(0.35 * rate)].astype(np.float32)


def biquad(z: np.ndarray, k: float, q: float, zeros: tuple[float, float, float]) -> np.ndarray:
    """Response at z of (a s^2 + b s/q + c) / (s^2 + s/q + 1), for s = (1 - z) / (1 + z) / k.

    Args:
        z: complex, e^(-jw): a delay of one sample.
        k: tangent of half the corner's angle.
        q: quality.
        zeros: a, b and c.
    """

    def quadratic(a: float, b: float, c: float) -> np.ndarray:
        middle, c = b * k / q, c * k * k
        return a + middle + c + 2 * (c - a) * z + (a - middle + c) * z * z

    return quadratic(*zeros) / quadratic(1.0, 1.0, 1.0)


@lru_cache
def k_spectrum(rate: int) -> np.ndarray:
    """Transform of the K weighting, of a length that suits it: complex64."""
    kernel = k_weighting(rate)
    return np.fft.rfft(kernel, 1 << (4 * len(kernel)).bit_length())


def weighted(wave: np.ndarray, rate: int) -> np.ndarray:
    """The wave with the K weighting, float32 (n,), by transforms of bounded length."""
    spectrum, wave = k_spectrum(rate), np.asarray(wave, np.float32)
    size = 2 * (len(spectrum) - 1)
    room = size - len(k_weighting(rate)) + 1
    out = np.zeros(len(wave) + size, np.float32)
    for start in range(0, len(wave), room):
        part = np.fft.rfft(wave[start : start + room], size)
        out[start : start + size] += np.fft.irfft(part * spectrum, size)
    return out[: len(wave)]


def loudness(wave: np.ndarray, rate: int) -> float:
    """Integrated loudness of a mono wave, in LUFS (BS.1770-5).

    Args:
        wave: float (n,). One shorter than a gating block of 0.4 s counts as one block.
        rate: its samples a second.

    Returns:
        LUFS; -inf for silence.
    """
    return level(heard(wave, rate))


def level(blocks: np.ndarray) -> float:
    """LUFS of the mean power of gating blocks; -inf for none."""
    return float(OFFSET + 10 * np.log10(blocks.mean())) if len(blocks) else -np.inf


def heard(wave: np.ndarray, rate: int) -> np.ndarray:
    """Power of the gating blocks that count, one for each STEP in which something is heard."""
    return gated(np.square(weighted(wave, rate)), *block_and_step(len(wave), rate))


def block_and_step(samples: int, rate: int) -> tuple[int, int]:
    """Samples of a gating block, at most all of them, and of a step."""
    return min(samples, round(BLOCK * rate)), round(STEP * rate)


def gated(power: np.ndarray, block: int, step: int) -> np.ndarray:
    """Mean power of the blocks that count of weighted samples, one a step."""
    if not len(power):
        return np.zeros(0)
    return summed(np.concatenate([[0.0], np.cumsum(power, dtype=np.float64)]), block, step)


def summed(total: np.ndarray, block: int, step: int) -> np.ndarray:
    """gated() of the sums of the first 0, 1, 2 and so on of its samples."""
    starts = np.arange(0, len(total) - block, step)
    mean = (total[starts + block] - total[starts]) / block
    found = mean[mean > 10 ** ((ABSOLUTE - OFFSET) / 10)]
    return found[found > found.mean() * 10 ** (RELATIVE / 10)] if len(found) else found


class Hearing:
    """The gating blocks of a wave that comes in pieces, each of which is weighted once.

    Args:
        rate: its samples a second.
    """

    def __init__(self, rate: int):
        self.rate = rate
        self.before = np.zeros(len(k_weighting(rate)) - 1, np.float32)  # what the next ones hear of
        self.total = np.zeros(1)  # power of the first 0, 1, 2 and so on samples

    def __len__(self) -> int:
        return len(self.total) - 1

    def add(self, wave: np.ndarray) -> None:
        """Hears the next piece: float32 (n,)."""
        known = np.concatenate([self.before, wave])
        power = np.square(weighted(known, self.rate)[len(self.before) :])
        more = np.cumsum(np.concatenate([self.total[-1:], power]), dtype=np.float64)
        self.total = np.concatenate([self.total, more[1:]])
        self.before = known[len(wave) :]

    def blocks(self) -> np.ndarray:
        """heard() of all pieces as one wave."""
        if not len(self):
            return np.zeros(0)
        return summed(self.total, *block_and_step(len(self), self.rate))


def bounded(gain: float) -> float:
    """A stream's gain in dB, as it is used: to 0.01, as where pieces end moves it by 1e-7, which
    nobody hears and which would change a stream's bytes.
    """
    return min(round(gain, 2), LOUDEST_GAIN)


class Leveller:
    """Brings waves that come in pieces to a loudness.

    Both ends fade over 10 ms, and no true peak exceeds -1 dBTP. Where pieces end changes nothing,
    but in a stream, whose gain follows what is heard of it.

    Args:
        rate: samples a second.
        target: LUFS; None leaves the level as it is, but for what would clip.
        known: LUFS of the voice before it is levelled, for streams; None measures the first
            second of the first stream that has so much, and keeps that for those that follow.
    """

    def __init__(self, rate: int, target: float | None, known: float | None = None):
        self.rate, self.target, self.known = rate, target, known
        self.told = False

    def __call__(self, waves: Iterable[np.ndarray], early: bool = False) -> Iterator[np.ndarray]:
        """
        Args:
            waves: float32 (n,) pieces that follow each other.
            early: wait for nothing: go by what is known of the voice, then more and more by what
                was heard; else by the first 30 seconds of these waves, which are waited for.

        Yields:
            float32 pieces; as many samples as came in.
        """
        edge, spoken = int(EDGE * self.rate), UntilInterrupt(waves)
        if self.target is None:
            yield from limited(faded(spoken, edge), self.rate)
        elif early:
            yield from limited(faded(self._following(iter(spoken), self.target), edge), self.rate)
        else:
            yield from self._measured(iter(spoken), self.target, edge)
        if spoken.interrupt is not None:
            raise spoken.interrupt

    def _following(self, waves: Iterator[np.ndarray], target: float) -> Iterator[np.ndarray]:
        """The pieces of a stream at a gain that follows its loudness.

        Its second piece is heard before it is handed on; the gain is then what brings the mean of
        what is known and what was heard to the target.
        """
        known = self.known
        if known is None:
            first = begun(waves, round(SOON * self.rate))
            known = target - gain_to(target, first, self.rate)
            if len(heard(first, self.rate)) * STEP >= SOON / 2:  # "Hm." tells little of a voice
                self.known = known
            waves = chain([first], waves)
        start = gain = goal = bounded(target - known)
        hearing, measured = Hearing(self.rate), 0
        for wave in waves:
            if len(hearing) < MEASURED * self.rate:
                hearing.add(wave)
            if measured and len(hearing) - measured >= AGAIN * self.rate:
                goal = self._gain(hearing.blocks(), target, start)
                measured = len(hearing)
            measured = measured or len(hearing)
            moved = np.arange(1, len(wave) + 1) * (SLOPE / self.rate)
            gains = gain + np.sign(goal - gain) * np.minimum(moved, abs(goal - gain))
            gain = float(gains[-1]) if len(gains) else gain
            yield wave * (10 ** (gains / 20)).astype(np.float32)

    def _gain(self, blocks: np.ndarray, target: float, start: float) -> float:
        """dB for a stream of which these blocks were heard, and which began with so much gain."""
        seconds = len(blocks) * STEP
        if not seconds:
            return start
        own = target - level(blocks)
        return bounded((KNOWN * start + seconds * own) / (KNOWN + seconds))

    def _measured(
        self, waves: Iterator[np.ndarray], target: float, edge: int
    ) -> Iterator[np.ndarray]:
        """The pieces at one gain, that of their first 30 seconds."""
        wanted = round(MEASURED * self.rate)
        first = begun(waves, wanted + 1)
        if len(first) <= wanted:  # all of it: its peaks are looked for once
            whole = np.concatenate([np.zeros(0, np.float32), *faded([first], edge)])
            if len(whole):
                yield self._levelled(whole, target).wave
        else:
            factor = np.float32(10 ** (self._levelled(first[:wanted], target).gain / 20))
            louder = (wave * factor for wave in chain([first], waves))
            yield from limited(faded(louder, edge), self.rate)

    def _levelled(self, wave: np.ndarray, target: float) -> Levelled:
        """A wave at the target; there is one warning where limiting leaves it much quieter."""
        found = Levelled(wave, target, self.rate)
        if found.short > SHORT and not self.told:
            self.told = True
            log.warning(
                "the speech has about %.1f LUFS, not the %g asked for: its peaks, of %g dBTP at"
                " most, leave no room for more",
                *(target - found.short, target, PEAK),
            )
        return found


class UntilInterrupt:
    """Waves that end at Ctrl-C, which is kept: what was spoken by then is still to be handed out.

    Attributes:
        interrupt: that Ctrl-C, for the caller to raise in the end, or None.
    """

    def __init__(self, waves: Iterable[np.ndarray]):
        self.waves = waves
        self.interrupt: KeyboardInterrupt | None = None

    def __iter__(self) -> Iterator[np.ndarray]:
        try:
            yield from self.waves
        except KeyboardInterrupt as e:
            self.interrupt = e


def begun(waves: Iterator[np.ndarray], samples: int) -> np.ndarray:
    """The first samples of waves, at least so many if there are."""
    first: list[np.ndarray] = [np.zeros(0, np.float32)]
    while sum(map(len, first)) < samples and (wave := next(waves, None)) is not None:
        first.append(wave)
    return np.concatenate(first)


class Levelled:
    """A wave at a loudness, with what the limiter takes away made up for.

    Args:
        wave: float32 (n,).
        target: LUFS.
        rate: samples a second.

    Attributes:
        gain: dB; 0 for silence.
        short: dB by which limiting leaves it below the target, about.
        wave: float32 (n,), limited.
    """

    def __init__(self, wave: np.ndarray, target: float, rate: int):
        self.gain, self.short, reach = 0.0, 0.0, max(1, int(AHEAD * rate))
        power = np.square(weighted(wave, rate))
        block, step = block_and_step(len(wave), rate)
        measured = level(gated(power, block, step))
        if np.isfinite(measured):
            self.gain = min(target - measured, LOUDEST_GAIN)
        most = min(self.gain + MOST_CORRECTED, LOUDEST_GAIN)
        found = peaks(wave, above=CEILING / 10 ** (max(most, 0.0) / 20))
        # Gains move slowly beside the weighting's response: they may as well come after it
        pool = next(n for n in range(POOL, 0, -1) if block % n == step % n == 0)
        power, highest = pooled(power, pool).mean(1), pooled(found, pool).max(1)
        for _ in range(CORRECTIONS if np.isfinite(measured) else 0):
            factor = 10 ** (self.gain / 20)
            if (gains := limiting(highest * factor, max(1, reach // pool))) is None:
                break
            now = level(gated(power * np.square(gains * factor), block // pool, step // pool))
            self.short = target - now
            self.gain = min(self.gain + self.short, most)
        factor = np.float32(10 ** (self.gain / 20))
        self.wave = limit(wave * factor, reach, found * factor)


def pooled(values: np.ndarray, pool: int) -> np.ndarray:
    """Rows of so many values each, zeros after the last: (n, pool)."""
    return np.pad(values, (0, -len(values) % pool)).reshape(-1, pool)


def gain_to(target: float, wave: np.ndarray, rate: int) -> float:
    """dB that bring a wave to a loudness, with what the limiter takes away; none for silence."""
    return Levelled(wave, target, rate).gain


def faded(waves: Iterable[np.ndarray], samples: int) -> Iterator[np.ndarray]:
    """Pieces whose whole rises from zero and falls to it over so many samples, at most its half."""
    held = np.zeros(0, np.float32)
    begun = False
    ramp = (np.arange(samples, dtype=np.float32) + np.float32(0.5)) / np.float32(max(samples, 1))
    for wave in waves:
        held = np.concatenate([held, wave])
        if not begun and len(held) < 2 * samples:
            continue
        if not begun:
            held[:samples] *= ramp
            begun = True
        cut = len(held) - samples
        if cut > 0:
            yield held[:cut]
            held = held[cut:]
    n = len(held) if begun else (len(held) + 1) // 2
    short = (np.arange(n, dtype=np.float32) + np.float32(0.5)) / np.float32(max(n, 1))
    if not begun:
        held[:n] *= short
    held[len(held) - n :] *= short[::-1]
    if len(held):
        yield held
