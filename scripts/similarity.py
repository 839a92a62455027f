"""Speaker similarity: how much speech sounds like a given person, by a speaker encoder.

    python scripts/wer.py --model my_voice --wavs spoken/
    python scripts/similarity.py spoken/ --target runs/anna/data/rest-000000.tar

The mean over utterances of the cosine between an utterance's embedding and the mean embedding of
the target's recordings, by Resemblyzer's encoder (generalised end-to-end loss, arXiv 1710.10467).
As a scale, "self" is what the target's own recordings get, each against the mean of the others.
Recordings are files, folders of them, or WebDataset tars. The last line is one JSON document.

Resemblyzer carries its weights. It names a package that must be compiled, so install it by

    pip install librosa webrtcvad-wheels && pip install --no-deps resemblyzer
"""

from __future__ import annotations

import argparse
import json
import sys
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nanospeech import audio
from nanospeech.errors import BackendError, DataError, InputError, NanospeechError

ENCODER_RATE = 16_000
MIN_SECONDS = 1.0  # shorter recordings tell too little of a speaker
Embed = Callable[[np.ndarray], np.ndarray]


def load_encoder(device: str = "cpu") -> Embed:
    """Maps float32 (n,) at 24 kHz to a speaker embedding of length 1: float32 (256,).

    Raises:
        BackendError: Resemblyzer is not installed.
    """
    try:
        import resemblyzer
    except ImportError as e:
        raise BackendError(
            f"Resemblyzer cannot be imported ({e}); run: pip install librosa webrtcvad-wheels"
            " && pip install --no-deps resemblyzer"
        ) from e
    encoder = resemblyzer.VoiceEncoder(device, verbose=False)

    def embed(wave: np.ndarray) -> np.ndarray:
        wave = audio.resample(wave, audio.SAMPLE_RATE, ENCODER_RATE)
        return np.asarray(encoder.embed_utterance(resemblyzer.preprocess_wav(wave)), np.float32)

    return embed


def waves(inputs: Iterable[Path], limit: int | None = None) -> Iterator[tuple[str, np.ndarray]]:
    """Name and wave, float32 (n,) at 24 kHz, of recordings in tars, folders and files, sorted.

    Args:
        limit: only the first so many that are long enough.

    Raises:
        InputError: something is missing or unreadable.
    """
    count = 0
    for name, data in files(inputs):
        if limit is not None and count >= limit:
            return
        wave = audio.read(data)
        if len(wave) >= MIN_SECONDS * audio.SAMPLE_RATE:
            count += 1
            yield name, wave


def files(inputs: Iterable[Path]) -> Iterator[tuple[str, bytes]]:
    """Name and bytes of each recording."""
    for path in inputs:
        if not path.exists():
            raise InputError(f"there is no {path}")
        if path.suffix.lower() == ".tar":
            try:
                with tarfile.open(path) as tar:
                    for member in tar:
                        file = tar.extractfile(member)
                        if file and Path(member.name).suffix.lower() in audio.FORMATS:
                            yield member.name, file.read()
            except (OSError, tarfile.TarError) as e:
                raise InputError(f"cannot read {path}: {e}") from e
        else:
            inside = sorted(path.iterdir()) if path.is_dir() else [path]
            for file in (p for p in inside if p.suffix.lower() in audio.FORMATS):
                yield str(file), file.read_bytes()


def to_mean(embeddings: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Cosine of each embedding with the target's mean one.

    Args:
        embeddings: (n, E), of length 1.
        target: (m, E), of length 1.

    Returns:
        (n,), in [-1, 1].
    """
    mean = target.mean(0)
    return embeddings @ (mean / np.linalg.norm(mean))


def to_others(target: np.ndarray) -> np.ndarray:
    """Cosine of each embedding with the mean of all but itself: (m,)."""
    rest = target.sum(0) - target
    return np.sum(target * rest, 1) / np.linalg.norm(rest, axis=1)


def measure(
    spoken: Sequence[Path], target: Sequence[Path], limit: int | None, embed: Embed
) -> dict[str, Any]:
    """The summary, after a line an utterance.

    Raises:
        DataError: nothing to measure, or fewer than two recordings of the target.
    """
    theirs = np.array([embed(wave) for _, wave in waves(target, limit)])
    if len(theirs) < 2:
        raise DataError(f"the target needs two recordings or more of at least {MIN_SECONDS:g} s")
    named = [(name, embed(wave)) for name, wave in waves(spoken)]
    if not named:
        raise DataError(f"there is nothing of at least {MIN_SECONDS:g} s to measure")
    values = to_mean(np.array([e for _, e in named]), theirs)
    for (name, _), value in zip(named, values):
        print(f"{value:.3f}  {name}")
    return {
        "utterances": len(values),
        "similarity": round(float(values.mean()), 4),
        "lowest": round(float(values.min()), 4),
        "self": round(float(to_others(theirs).mean()), 4),
        "target_recordings": len(theirs),
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("spoken", nargs="+", type=Path, help="what to measure")
    parser.add_argument("--target", nargs="+", type=Path, required=True, help="the person")
    parser.add_argument("--limit", type=int, default=100, help="recordings of the target, at most")
    parser.add_argument("--device", default="cpu", help="of the encoder")
    args = parser.parse_args(argv)
    try:
        summary = measure(args.spoken, args.target, args.limit, load_encoder(args.device))
    except NanospeechError as e:
        print(f"error: {e}", file=sys.stderr)
        return 2
    print(json.dumps(summary))
    return 0


if __name__ == "__main__":
    sys.exit(main())
