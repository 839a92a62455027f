"""Griffin-Lim: a wave from a log mel without a trained vocoder, to compare vocoders with. NumPy.

    nanospeech evaluate griffin-lim in.wav out.wav

Writes what remains of a recording after a trip through its mel.
"""

from __future__ import annotations

import argparse

import numpy as np

from nanospeech.audio import mel
from nanospeech.audio import wave as audio
from nanospeech.cli import Parser, command
from nanospeech.config import AudioConfig
from nanospeech.errors import InputError


def invert_mel(log_mel: np.ndarray, config: AudioConfig = AudioConfig()) -> np.ndarray:
    """Non-negative magnitudes (N, F) whose mel is nearest to a log mel (N, M)."""
    bank = mel.filterbank(config.sample_rate, config.n_fft, config.n_mels)
    wanted = np.exp(log_mel)
    magnitude = np.maximum(wanted @ np.linalg.pinv(bank), 1e-6)
    for _ in range(30):  # multiplicative updates (Lee and Seung, 2001) keep it non-negative
        magnitude *= (wanted @ bank.T) / np.maximum(magnitude @ bank @ bank.T, 1e-9)
    return magnitude.astype(np.float32)


def stft(wave: np.ndarray, n_fft: int, hop: int) -> np.ndarray:
    """Centred spectrogram, complex64 (N, F)."""
    padded = np.pad(wave, n_fft // 2, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(padded, n_fft)[::hop]
    return np.fft.rfft(frames * mel.window(n_fft)).astype(np.complex64)


def istft(spectrum: np.ndarray, hop: int) -> np.ndarray:
    """The wave (float32, (N - 1) * hop) whose spectrogram is nearest to this one (N, F)."""
    n_fft = 2 * (spectrum.shape[1] - 1)
    window = mel.window(n_fft)
    frames = np.fft.irfft(spectrum, n=n_fft) * window
    wave = np.zeros((len(frames) - 1) * hop + n_fft)
    weight = np.zeros_like(wave)
    for i, frame in enumerate(frames):
        wave[i * hop : i * hop + n_fft] += frame
        weight[i * hop : i * hop + n_fft] += window**2
    inside = slice(n_fft // 2, n_fft // 2 + (len(frames) - 1) * hop)
    return (wave[inside] / np.maximum(weight[inside], 1e-8)).astype(np.float32)


def griffin_lim(
    log_mel: np.ndarray,
    iterations: int = 60,
    momentum: float = 0.99,
    config: AudioConfig = AudioConfig(),
    seed: int = 0,
) -> np.ndarray:
    """A wave for a log mel, by the accelerated Griffin-Lim algorithm (Perraudin et al., 2013).

    Args:
        log_mel: float32 (N, M), N at least 4.
        iterations: transforms there and back.
        momentum: of the phases; 0 is the algorithm of 1984.
        config: the mel's definition.
        seed: of the first phases.

    Returns:
        float32 ((N - 1) * hop_length,).
    """
    magnitude = invert_mel(log_mel, config)
    random = np.random.default_rng(seed).uniform(-np.pi, np.pi, magnitude.shape)
    spectrum, previous = magnitude * np.exp(1j * random), np.zeros((), np.complex64)
    for _ in range(iterations):
        rebuilt = stft(istft(spectrum, config.hop_length), config.n_fft, config.hop_length)
        phase = rebuilt + momentum * (rebuilt - previous)
        spectrum = magnitude * phase / np.maximum(np.abs(phase), 1e-9)
        previous = rebuilt
    return istft(spectrum, config.hop_length)


def build_parser() -> argparse.ArgumentParser:
    parser = Parser("nanospeech evaluate griffin-lim", __doc__)
    parser.add_argument("source", help="a recording")
    parser.add_argument("output", help="where to write it after a trip through its mel")
    parser.add_argument("--iterations", type=int, default=60, help="of phases (default: 60)")
    return parser


@command
def main(argv: list[str] | None = None) -> int:
    args = build_parser().parse_args(argv)
    if args.iterations < 0:
        raise InputError(f"--iterations is {args.iterations}; choose 0 or more")
    log_mel = mel.log_mel(audio.read(args.source))
    audio.write(args.output, griffin_lim(log_mel, args.iterations))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
