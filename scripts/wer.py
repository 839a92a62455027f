"""Word error rate: how much of what is spoken a speech recogniser understands.

    python scripts/wer.py --model FOLDER --whisper base --out wer.csv --wavs spoken/
    python scripts/wer.py --recordings shards/shard-000000.tar --limit 25    # of recordings
    python scripts/wer.py --wav-dir spoken/                       # of X.wav with X.txt beside it

Speaks each sentence of scripts/sentences.txt (or --texts), lets Whisper write down what it hears,
and counts the differences. Not a measure of how natural it sounds. Needs the extra "eval". The
last line of the output is one JSON document.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import tarfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from nanospeech import audio
from nanospeech.config import SampleOptions
from nanospeech.errors import DataError, InputError, NanospeechError, require

try:
    from .wer_text import cer, edit_distance, normalize, wer
except ImportError:  # run as a file, not imported from the package
    from wer_text import cer, edit_distance, normalize, wer

WHISPER_RATE = 16_000
SENTENCES = Path(__file__).with_name("sentences.txt")


@dataclass(frozen=True)
class Result:
    """One utterance: what was said, what was heard, and how far apart they are."""

    key: str
    text: str
    heard: str
    words: int
    edits: int
    wer: float
    cer: float
    seconds: float
    compute_seconds: float | None = None  # of synthesis; None for recordings


def load_whisper(name: str = "base", threads: int = 2) -> Any:
    """A faster-whisper model on the CPU in int8: a folder, or a size that it downloads.

    Raises:
        BackendError: faster-whisper is not installed.
        InputError: there is no such model.
    """
    faster_whisper = require("faster_whisper", "eval")
    try:
        return faster_whisper.WhisperModel(
            name, device="cpu", compute_type="int8", cpu_threads=threads
        )
    except (ValueError, RuntimeError, OSError) as e:
        raise InputError(f"cannot load Whisper {name!r}: {e}") from e


def transcribe(model: Any, wave: np.ndarray, sample_rate: int = audio.SAMPLE_RATE) -> str:
    """What Whisper hears in a wave: English, a beam of 5; the same every time.

    Args:
        model: of load_whisper.
        wave: float32 (n,).
        sample_rate: of the wave, in Hz.
    """
    # where its beam runs in circles Whisper draws at random instead: let it draw the same again
    require("ctranslate2", "eval").set_random_seed(0)
    segments, _ = model.transcribe(
        audio.resample(wave, sample_rate, WHISPER_RATE),
        language="en",
        beam_size=5,
        condition_on_previous_text=False,
    )
    return " ".join(segment.text.strip() for segment in segments)


def judge(
    model: Any, key: str, text: str, wave: np.ndarray, sample_rate: int, compute: float | None
) -> Result:
    """Transcribes one utterance and scores it alone."""
    heard = transcribe(model, wave, sample_rate)
    words = normalize(text).split()
    edits = edit_distance(words, normalize(heard).split())
    seconds = len(wave) / sample_rate
    if not words:
        raise InputError(f"{key}: the text {text!r} holds no words")
    return Result(
        key,
        text,
        heard,
        len(words),
        edits,
        edits / len(words),
        cer([(text, heard)]),
        seconds,
        compute,
    )


def summarize(results: Sequence[Result]) -> dict[str, Any]:
    """The figures of a run: wer and cer over the whole corpus, and the real-time factor."""
    if not results:
        raise DataError("nothing was measured")
    pairs = [(r.text, r.heard) for r in results]
    seconds = sum(r.seconds for r in results)
    summary: dict[str, Any] = {
        "utterances": len(results),
        "words": sum(r.words for r in results),
        "edits": sum(r.edits for r in results),
        "wer": round(wer(pairs), 4),
        "cer": round(cer(pairs), 4),
        "perfect": sum(r.edits == 0 for r in results),
        "over_half_wrong": sum(r.wer > 0.5 for r in results),
        "audio_seconds": round(seconds, 2),
    }
    if all(r.compute_seconds is not None for r in results):
        compute = sum(r.compute_seconds or 0.0 for r in results)
        summary |= {"compute_seconds": round(compute, 2), "rtf": round(compute / seconds, 4)}
    return summary


Utterance = tuple[str, str, np.ndarray, int, "float | None"]


def read_texts(path: Path, limit: int | None = None) -> list[str]:
    """A sentence a line; empty lines do not count."""
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as e:
        raise InputError(f"cannot read the sentences in {path}: {e}") from e
    if not (texts := [line for line in lines if line][:limit]):
        raise InputError(f"{path} holds no sentences; write one a line")
    return texts


def load_speaker(args: argparse.Namespace, options: SampleOptions) -> Any:
    """The model and voice that the arguments name, warmed up by one sentence."""
    from nanospeech import Speaker, load_engine

    engine = load_engine(args.model, backend=args.backend, device=args.device, dtype=args.dtype)
    reference = {"ref_audio": args.ref_audio, "ref_text": args.ref_text}
    speaker = Speaker(engine, voice=args.voice, options=options, seed=args.seed, **reference)
    speaker.speak("This sentence is not measured.")
    return speaker


def spoken(speaker: Any, texts: Sequence[str]) -> Iterator[Utterance]:
    """Synthesises the sentences one by one."""
    for i, text in enumerate(texts):
        start = time.perf_counter()
        speech = speaker.speak(text)
        yield f"{i:03d}", text, speech.wave, speech.sample_rate, time.perf_counter() - start


def recorded(shards: Sequence[Path], limit: int | None = None) -> Iterator[Utterance]:
    """Recordings of WebDataset shards: an audio file and {key}.json with "text" for each key."""
    count = 0
    for shard in shards:
        try:
            with tarfile.open(shard) as tar:
                for key, parts in samples(tar):
                    if limit is not None and count >= limit:
                        return
                    count += 1
                    yield key, *parts
        except (OSError, tarfile.TarError) as e:
            raise InputError(f"cannot read the shard {shard}: {e}") from e


def samples(tar: tarfile.TarFile) -> Iterator[tuple[str, tuple[str, np.ndarray, int, None]]]:
    kept: dict[str, dict[str, bytes]] = {}
    for member in tar:
        key, _, extension = member.name.partition(".")
        file = tar.extractfile(member)
        if file is None or extension not in ("json", "mp3", "wav", "flac", "ogg"):
            continue
        parts = kept.setdefault(key, {})
        parts["json" if extension == "json" else "audio"] = file.read()
        if len(parts) == 2:
            text = json.loads(parts["json"])["text"]
            wave = audio.read(parts["audio"])
            del kept[key]
            yield key, (text, wave, audio.SAMPLE_RATE, None)


def from_folder(folder: Path, texts: Path, limit: int | None = None) -> Iterator[Utterance]:
    """Waves of a folder in order of their names, each with its .txt, or else the line of texts."""
    paths = sorted(p for p in folder.glob("*") if p.suffix.lower() in audio.FORMATS)[:limit]
    if not paths:
        raise InputError(f"there are no {', '.join(audio.FORMATS)} files in {folder}")
    lines = None if all(p.with_suffix(".txt").exists() for p in paths) else read_texts(texts)
    if lines is not None and len(lines) < len(paths):
        raise InputError(f"{folder} holds {len(paths)} waves, but {texts} only {len(lines)} lines")
    for i, path in enumerate(paths):
        text = lines[i] if lines else path.with_suffix(".txt").read_text(encoding="utf-8").strip()
        yield path.stem, text, audio.read(path), audio.SAMPLE_RATE, None


def save_wave(folder: Path, key: str, text: str, wave: np.ndarray, sample_rate: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    audio.write(folder / f"{key}.wav", wave, sample_rate)
    (folder / f"{key}.txt").write_text(text + "\n", encoding="utf-8")


def write_csv(path: Path, results: Sequence[Result]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as f:
        writer = csv.DictWriter(f, [field.name for field in fields(Result)])
        writer.writeheader()
        writer.writerows(asdict(r) for r in results)


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument(
        "--model", help="release folder or Hub repository; the packaged one if not given"
    )
    p.add_argument("--backend", default="auto", help="auto, torch or mlx")
    p.add_argument("--device", help="for example cpu, cuda or mps")
    p.add_argument("--dtype", help="float32, bfloat16 or float16")
    p.add_argument("--voice", help="built-in voice")
    p.add_argument("--ref-audio", type=Path, help="instead of a voice, a recording to imitate")
    p.add_argument("--ref-text", help="what is said in it")
    p.add_argument("--seed", type=int, default=0, help="seed of the noise")
    p.add_argument("--texts", type=Path, default=SENTENCES, help="sentences, one a line")
    p.add_argument(
        "--recordings", type=Path, nargs="+", metavar="TAR", help="measure these instead"
    )
    p.add_argument("--wav-dir", type=Path, metavar="DIR", help="measure these waves instead")
    p.add_argument("--whisper", default="base", help="faster-whisper size or folder")
    p.add_argument("--threads", type=int, default=2, help="threads of the recogniser")
    p.add_argument("--limit", type=int, help="only the first so many")
    p.add_argument("--out", type=Path, metavar="CSV", help="write a row for each utterance")
    p.add_argument("--wavs", type=Path, metavar="DIR", help="keep the spoken waves")
    group = p.add_argument_group("sampling")
    for f in fields(SampleOptions):
        kind = {"int": int, "str": str}.get(str(f.type).split("|")[0].strip(), float)
        flag = "--" + f.name.replace("_", "-")
        group.add_argument(flag, type=kind, default=f.default, help=f.metadata.get("help"))
    return p


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measures what the arguments ask for, prints a line an utterance, returns the summary."""
    options = SampleOptions(**{f.name: getattr(args, f.name) for f in fields(SampleOptions)})
    if args.limit is not None and args.limit < 1:
        raise InputError(f"--limit is {args.limit}; choose at least 1")
    if args.recordings and args.wav_dir:
        raise InputError("--recordings and --wav-dir exclude each other; give one")
    about: dict[str, Any] = {"whisper": str(args.whisper)}
    model = load_whisper(args.whisper, args.threads)
    if args.recordings:
        utterances = recorded(args.recordings, args.limit)
    elif args.wav_dir:
        utterances = from_folder(args.wav_dir, args.texts, args.limit)
    else:
        texts = read_texts(args.texts, args.limit)
        speaker = load_speaker(args, options)
        about |= {"model": args.model, "backend": speaker.engine.backend, "seed": args.seed}
        about |= {"voice": args.voice, **asdict(options)}
        utterances = spoken(speaker, texts)
    results = []
    for key, text, wave, sample_rate, compute in utterances:
        results.append(r := judge(model, key, text, wave, sample_rate, compute))
        print(f"{r.wer:6.1%}  {r.key}  {text}" + (f"\n   heard: {r.heard}" if r.edits else ""))
        if args.wavs:
            save_wave(args.wavs, key, text, wave, sample_rate)
    if args.out:
        write_csv(args.out, results)
    return about | summarize(results)


def main(argv: list[str] | None = None) -> int:
    try:
        summary = run(parser().parse_args(argv))
    except NanospeechError as e:
        print(f"error: {e}", file=sys.stderr)
        return 2
    print(f"WER {summary['wer']:.2%}, CER {summary['cer']:.2%} over {summary['words']} words")
    print(json.dumps(summary))
    return 0


if __name__ == "__main__":
    sys.exit(main())
