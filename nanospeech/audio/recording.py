"""Recording: how good a recording of a voice is; its hiss and rumble taken out. Knows no models."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from nanospeech.audio.editing import join, unclipped
from nanospeech.audio.mel import window
from nanospeech.audio.opus import as_file

CLIPPED = 0.999  # a magnitude from which samples count as clipped
RUN = 3  # such samples in a row: a single one may be a peak that just fits
CLIPPING = 1e-4  # share of clipped samples that is heard
# Of a recording that was clipped and then made softer: samples so near to its highest are of one
# height, and in a flat top, beside which it falls by so many times that; of a round one the samples
# beside three such are at most four times as far below. Of 823 recordings of speech none had two.
FLAT, FALLS, TOPS = 2e-3, 4.0, 3
FINE = 500  # steps up to the highest sample without which each top is flat, as of 8 bits
FLOATS = "FLOAT", "DOUBLE"  # subtypes of files that hold what exceeds full scale as well
AUDIBLE = 60.0  # dB below the strongest frequency: what is weaker ends the bandwidth
SMOOTHED = 9  # bins that are looked at together, so that no single one decides
BESIDE = 300, 800  # Hz from where a recording ends: what is compared below and above
LOUD = 95  # percentile of a frequency's power over time: what it has when it sounds
QUIET_SHARE = 10  # percent of the frames, the quietest, that are taken for noise
PAUSES = 12.0  # dB between speech and its quietest frames; with less there are no pauses to go by
MOST_DENOISED = 12.0  # dB that are taken off the noise; more would sound hollow
RUMBLE = 45.0  # Hz below which no voice has its pitch
LOWEST = 55.0  # Hz from which a recording without rumble begins, 3 dB softer there
STEEPNESS = 8  # order of that high-pass: 0.1 dB at 70 Hz, 19 at 42
RUMBLES = -25.0  # dB of rumble from which it is taken out: less is usual
STILL = 25.0  # dB below speech from which a moment may be a part of a gap
GAP, GAP_KEPT = 1.0, 0.5  # seconds from which a pause is a gap, and what is left of it
JOINED = 0.01  # seconds in which what is left of a gap passes into what follows


def spectra(wave: np.ndarray, size: int, hop: int) -> np.ndarray:
    """Windowed spectra of a wave, padded so that every sample is in as many: complex (N, F)."""
    padded = np.pad(np.asarray(wave, np.float32), (size, 2 * size))
    frames = np.lib.stride_tricks.sliding_window_view(padded, size)[::hop]
    return np.fft.rfft(frames * window(size), axis=-1)


def overlapped(found: np.ndarray, size: int, hop: int, samples: int) -> np.ndarray:
    """The wave of `spectra`, for a hop of a quarter of the size: float32 (samples,)."""
    frames = np.fft.irfft(found, size) * window(size)
    out = np.zeros(samples + 3 * size)
    for index, frame in enumerate(frames):
        out[index * hop : index * hop + size] += frame
    return (out[size : size + samples] / 1.5).astype(np.float32)  # four squared windows' sum


def bandwidth(wave: np.ndarray, rate: int) -> float:
    """The highest frequency of a recording, in Hz: above it all is 60 dB below the strongest.

    Args:
        wave: float32 (n,).
        rate: its samples a second.

    Returns:
        0 for silence.
    """
    return end_of_sound(wave, rate)[0]


def end_of_sound(wave: np.ndarray, rate: int) -> tuple[float, float]:
    """Where a recording's sound ends, and how steeply.

    Returns:
        Its bandwidth, and by how many dB it falls there: 20 and more where a telephone or a codec
        ends it, under 10 where a voice has little above.
    """
    size = int(rate * 0.085)
    power = np.abs(spectra(wave, size, size // 4)) ** 2
    level = np.percentile(power, LOUD, axis=0)
    if not level.max(initial=0) > 0:
        return 0.0, 0.0
    heard = level > level.max() * 10 ** (-AUDIBLE / 10)
    most = np.convolve(heard, np.ones(SMOOTHED), "same") > SMOOTHED / 2
    if not most.any():
        return 0.0, 0.0
    last = int(np.flatnonzero(most)[-1])
    near, far = (round(hertz * size / rate) for hertz in BESIDE)
    db = 10 * np.log10(np.maximum(level / level.max(), 1e-16))
    above, below = db[last + near : last + far], db[max(0, last - far) : max(1, last - near)]
    return last * rate / size, float(np.median(below) - np.median(above)) if len(above) else 0.0


def depth(wave: np.ndarray, rate: int = 24_000) -> float:
    """By how many dB the quietest tenth of a wave's 20 ms blocks is below its loudest tenth.

    Noise and echo make it small: 40 and more is a quiet room, under 20 a loud one.
    """
    block = rate // 50
    blocks = wave[: len(wave) // block * block].reshape(-1, block)
    if not len(blocks):
        return 0.0
    power = 20 * np.log10(np.sqrt(np.mean(np.square(blocks, dtype=np.float64), axis=1)) + 1e-6)
    return float(np.percentile(power, 90) - np.percentile(power, 10))


def denoised(wave: np.ndarray, rate: int) -> np.ndarray:
    """Lowers a steady noise by up to 12 dB: a Wiener filter of the spectrum of its pauses.

    The noise's power is that of the quietest tenth of the frames (after Boll, "Suppression of
    acoustic noise in speech using spectral subtraction", 1979). A wave without pauses, whose
    quietest frames may be speech, is returned as it is.

    Args:
        wave: float32 (n,).
        rate: its samples a second.
    """
    size = max(64, int(rate * 0.0427) // 4 * 4)
    hop = size // 4
    inside = slice(size // hop, -2 * size // hop)  # frames without padding
    found = spectra(wave, size, hop)
    power = np.abs(found) ** 2
    level = power.sum(1)
    usual = level[inside] if len(level[inside]) > 20 else level
    quiet = np.percentile(usual, QUIET_SHARE)
    if quiet <= 0 or 10 * np.log10(np.percentile(usual, 90) / quiet) < PAUSES:
        return wave
    noise = power[(level <= quiet) & (level > 0)].mean(0)
    snr = np.maximum(power / np.maximum(noise, 1e-20) - 1, 0)
    gain = np.pad(snr / (snr + 1), 1, mode="edge")
    # over neighbours in time and frequency, as single ones that stay would tinkle
    gain = (gain[:-2] + gain[1:-1] + gain[2:]) / 3
    gain = (gain[:, :-2] + gain[:, 1:-1] + gain[:, 2:]) / 3
    return overlapped(found * np.maximum(gain, 10 ** (-MOST_DENOISED / 20)), size, hop, len(wave))


def fast(size: int) -> int:
    """A length from `size` on, at most an eighth more, of which a Fourier transform is fast."""
    step = 1 << max(0, size.bit_length() - 4)
    return -(-size // step) * step


def rumble(wave: np.ndarray, rate: int = 24_000) -> float:
    """What lies below all voices, such as steps, wind and a hand on the microphone.

    Returns:
        its power relative to the whole wave's, in dB; minus infinity for silence.
    """
    if not np.any(wave):
        return -np.inf
    size = fast(len(wave))
    power = np.abs(np.fft.rfft(wave, size)) ** 2
    low = power[np.fft.rfftfreq(size, 1 / rate) < RUMBLE].sum()
    return float(10 * np.log10(max(low, 1e-30) / power.sum()))


def without_rumble(wave: np.ndarray, rate: int = 24_000) -> np.ndarray:
    """A wave without rumble: a Butterworth high-pass's magnitudes, phases as they are.

    Its ends go on turned about themselves for half a second, so that rumble does not begin or end
    with it, which would be heard as a thud.
    """
    if not len(wave):
        return wave
    more = min(rate // 2, len(wave) - 1)
    longer = np.pad(wave, more, "reflect", reflect_type="odd")
    size = fast(len(longer))
    hertz = np.fft.rfftfreq(size, 1 / rate)
    gain = 1 / np.sqrt(1 + (LOWEST / np.maximum(hertz, 1)) ** (2 * STEEPNESS))
    clear = np.fft.irfft(np.fft.rfft(longer, size) * gain, size)
    return clear[more : more + len(wave)].astype(np.float32)


def above_rumble(wave: np.ndarray, most: float = RUMBLES) -> np.ndarray:
    """A wave without its rumble; the same array where it has little.

    Rumble is hardly heard, but a model takes it for a part of the voice.

    Args:
        wave: float32 (n,) at 24 kHz.
        most: dB of rumble that are left as they are.
    """
    return without_rumble(wave) if rumble(wave) > most else wave


def gaps(wave: np.ndarray, rate: int = 24_000) -> list[tuple[int, int]]:
    """Where nobody speaks for longer than within a text: what of it may be cut out.

    Returns:
        samples (start, stop), in order; GAP_KEPT seconds are left of each gap, half on either side.
    """
    block = rate // 100
    blocks = wave[: len(wave) // block * block].reshape(-1, block)
    level = np.sqrt(np.mean(np.square(blocks, dtype=np.float64), axis=1))
    heard = level[level > level.max(initial=0) / 100]  # speech, beneath a slam of a door as well
    if not len(heard):
        return []
    still = level < np.percentile(heard, 90) * 10 ** (-STILL / 20)
    edges = np.flatnonzero(np.diff(still, prepend=False, append=False)) * block
    side = int(GAP_KEPT / 2 * rate)
    pairs = zip(edges[::2].tolist(), edges[1::2].tolist())
    return [(a + side, b - side) for a, b in pairs if b - a > GAP * rate]


def without_gaps(wave: np.ndarray, found: list[tuple[int, int]], rate: int = 24_000) -> np.ndarray:
    """A wave without what was found by `gaps`; the same array if that is nothing."""
    if not found:
        return wave
    starts, stops = zip(*found)
    parts = [wave[a:b] for a, b in zip((0, *stops), (*starts, len(wave)))]
    return join(parts, int(JOINED * rate))


def clipped_share(wave: np.ndarray) -> float:
    """Share of a recording's samples that are clipped: in runs of three or more at full scale.

    Args:
        wave: float (n,) in [-1, 1].

    Returns:
        0 to 1. Good recordings have 0; from about 1e-4 on clipping is heard.
    """
    full = np.abs(wave) >= CLIPPED
    edges = np.flatnonzero(np.diff(np.concatenate([[False], full, [False]]).astype(np.int8)))
    runs = edges[1::2] - edges[::2]
    return float(runs[runs >= RUN].sum() / max(1, len(wave)))


def flat_share(wave: np.ndarray) -> float:
    """Share of a recording's samples that were clipped before it was made softer.

    They are in flat tops of one height. What was resampled or compressed since has none.

    Args:
        wave: float (n,).

    Returns:
        0 to 1; 0 where there are fewer such tops than TOPS above or below.
    """
    clipped = 0
    for side in (wave, -wave):
        top = side.max(initial=0)
        edges = np.flatnonzero(np.diff(side >= top * (1 - FLAT), prepend=False, append=False))
        starts, stops = edges[::2], edges[1::2]
        inside = (stops - starts >= RUN) & (starts > 0) & (stops < len(side))
        starts, stops = starts[inside], stops[inside]
        falls = np.maximum(side[starts - 1], side[stops]) < top * (1 - FALLS * FLAT)
        if np.count_nonzero(falls) < TOPS:
            continue
        steps = np.diff(np.unique(side[side > top / 2]))
        if not len(steps) or steps.min() * FINE < top:  # none are in a square wave
            clipped += int((stops - starts)[falls].sum())
    return clipped / max(1, len(wave))


def clipping(source: str | Path | bytes, seconds: float = 600.0) -> float:
    """Share of a file's samples that are clipped, at full scale or below, of its worst channel.

    Args:
        source: a path, or the bytes of a whole file. It is heard at its own rate, as another one
            hides what is clipped.
        seconds: of its beginning that are looked at.

    Returns:
        0 to 1.

    Raises:
        OSError, RuntimeError: it cannot be read.
    """
    from nanospeech.audio.sound_file import SoundFile

    with SoundFile(as_file(source, seconds)) as f:
        most = min(f.frames, int(seconds * f.samplerate))
        wave = f.read(most, dtype="float32", always_2d=True)
        if f.subtype in FLOATS:
            wave = unclipped(wave)
    return max((max(clipped_share(one), flat_share(one)) for one in wave.T), default=0.0)
