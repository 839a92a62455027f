"""A vocoder's sound against Griffin-Lim's, on recordings that it was not trained on."""

from __future__ import annotations

import csv
import json
import sys
import tarfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from nanospeech.audio import mel
from nanospeech.audio import wave as audio
from nanospeech.config import AudioConfig
from nanospeech.corpus.samples import words_beside
from nanospeech.corpus.tars import Header, split_name
from nanospeech.errors import BackendError, DataError, InputError, reason
from nanospeech.evaluate.griffin_lim import griffin_lim
from nanospeech.files import is_of_mac
from nanospeech.measure import metrics
from nanospeech_torch.vocoder import Vocos

AUDIO = AudioConfig()
MEASURES = ("pesq", "mel_distance", "dnsmos", "rtf")


@dataclass
class Clip:
    """One recording, float32 at AUDIO.sample_rate, and what is said."""

    key: str
    text: str
    wave: np.ndarray


def load_average(path: Path) -> tuple[Vocos, int]:
    """The moving average of a run, and its step; or the vocoder of a release folder.

    Args:
        path: whatever nanospeech convert --vocoder reads.

    Raises:
        CheckpointError: it is missing, damaged, or not a vocoder's.
    """
    from convert import read_vocoder_source

    config, source = read_vocoder_source(path)
    model = Vocos(config)
    model.load_state_dict({name: tensor.float() for name, tensor in source.tensors.items()})
    return model.eval(), source.step or 0


def read_clips(sources: Iterable[Path], keep: Callable[[str], bool], most: int) -> list[Clip]:
    """Decodes the recordings of tars and folders whose keys are to be kept, at most so many.

    Raises:
        DataError: a source cannot be read.
    """
    clips: list[Clip] = []
    for path in sources:
        try:
            waves, texts = (from_folder if path.is_dir() else from_tar)(path, keep)
        except (OSError, tarfile.TarError, ValueError) as e:
            raise DataError(f"cannot read recordings of {path}: {reason(e)}") from e
        clips += [Clip(k, texts.get(k, ""), w) for k, w in waves.items() if len(w) >= AUDIO.n_fft]
        if len(clips) >= most:
            break
    return clips[:most]


def from_tar(path: Path, keep: Callable[[str], bool]) -> tuple[dict, dict]:
    """Waves and texts of a shard, by their keys."""
    waves: dict[str, np.ndarray] = {}
    texts: dict[str, str] = {}
    with tarfile.open(path, tarinfo=Header) as tar:
        for member in tar:
            key, kind = split_name(member.name)
            content = tar.extractfile(member) if keep(key) else None
            if content is None:
                continue
            if kind == "json":
                texts[key] = json.loads(content.read()).get("text", "")
                continue
            try:
                waves[key] = audio.read(content.read(), AUDIO.sample_rate)
            except InputError:
                continue  # a picture, a list of words: the tar may hold anything
    return waves, texts


def from_folder(path: Path, keep: Callable[[str], bool]) -> tuple[dict, dict]:
    """Waves of a folder and the folders in it, and texts of the .txt beside them."""
    waves: dict[str, np.ndarray] = {}
    texts: dict[str, str] = {}
    for file in sorted(path.rglob("*")):
        key = file.relative_to(path).with_suffix("").as_posix()
        if file.suffix.lower() in audio.FORMATS and keep(key) and not is_of_mac(file):
            waves[key] = audio.read(file, AUDIO.sample_rate)
            beside = words_beside(file)
            texts[key] = beside.read_text(encoding="utf-8").strip() if beside else ""
    return waves, texts


def file_name(key: str) -> str:
    """A key, which may hold folders, as the name of a file."""
    return key.replace("/", "_")


@torch.no_grad()
def vocode(model: Vocos, log_mel: np.ndarray) -> np.ndarray:
    """One log mel (N, M) to its wave."""
    return model(torch.from_numpy(log_mel)[None])[0].numpy()


def distance(wave: np.ndarray, log_mel: np.ndarray) -> float:
    """L1 between the mel of a wave and the log mel that it was made from."""
    again = mel.log_mel(wave)
    frames = min(len(again), len(log_mel))
    return float(np.abs(again[:frames] - log_mel[:frames]).mean())


class Measure:
    """The measures whose packages are installed; a missing one is reported once.

    Args:
        names: of MEASURES.
    """

    def __init__(self, names: Sequence[str] = MEASURES):
        self.names = list(names)
        for name, package in (("pesq", "pesq"), ("dnsmos", "dnsmos")):
            try:
                if name in self.names:
                    metrics.check(package)
            except BackendError as e:
                print(f"{name} is left out: {e}", file=sys.stderr)
                self.names.remove(name)

    def __call__(self, clip: Clip, wave: np.ndarray, log_mel: np.ndarray) -> dict[str, float]:
        """The measures of a wave that was made from a recording's mel; NaN where one cannot be."""
        makers: dict[str, Callable[[], float]] = {
            "pesq": lambda: metrics.pesq_wb(clip.wave, wave),
            "mel_distance": lambda: distance(wave, log_mel),
            "dnsmos": lambda: metrics.dnsmos(wave)["ovrl"],
        }
        found = {}
        for name in (n for n in self.names if n in makers):
            try:
                found[name] = makers[name]()
            except InputError:  # too short, or silent
                found[name] = float("nan")
        return found


def evaluate(checkpoint: Path, clips: list[Clip], folder: Path, iterations: int = 60) -> None:
    """Resynthesises held-out clips by the vocoder and by Griffin-Lim, and measures all three.

    folder/{recording,vocoder,griffin_lim}/KEY.wav, texts.csv, results.csv (a row for each clip and
    maker) and summary.json remain; the last line that is printed is the summary.

    Args:
        checkpoint: as for load_average.
        clips: the recordings.
        folder: where the results go.
        iterations: of Griffin-Lim.

    Raises:
        DataError: there are no clips.
    """
    model, step = load_average(checkpoint)
    if not clips:
        raise DataError(
            "no held-out recordings; give shards with --held-out, or --data and a larger "
            "--held-out-share"
        )
    makers: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "vocoder": lambda m: vocode(model, m),
        "griffin_lim": lambda m: griffin_lim(m, iterations),
    }
    measure, rows = Measure(), []
    for clip in tqdm(clips, desc="evaluate", disable=None):
        log_mel = mel.log_mel(clip.wave)
        seconds = len(clip.wave) / AUDIO.sample_rate
        for name in ("recording", *makers):
            begun = time.process_time()
            wave = makers[name](log_mel) if name in makers else clip.wave
            spent = {"rtf": (time.process_time() - begun) / seconds} if name in makers else {}
            row = {"key": clip.key, "of": name, "seconds": round(seconds, 3)}
            rows.append(row | measure(clip, wave, log_mel) | spent)
            (folder / name).mkdir(parents=True, exist_ok=True)
            audio.write(folder / name / f"{file_name(clip.key)}.wav", wave)
    write_csv(folder / "texts.csv", [{"key": file_name(c.key), "text": c.text} for c in clips])
    write_csv(folder / "results.csv", rows)
    table = {name: summary([r for r in rows if r["of"] == name]) for name in ("recording", *makers)}
    heard = round(sum(len(c.wave) for c in clips) / AUDIO.sample_rate, 1)
    found = {"step": step, "clips": len(clips), "seconds": heard, "iterations": iterations}
    found |= {"table": table, "folder": str(folder)}
    (folder / "summary.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(found))


def summary(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Mean and standard deviation over clips of each measure; rtf is of CPU time.

    Where a measure could not be taken of all, as PESQ of silence, "clips" is of how many it is.
    """
    found = {}
    for name in MEASURES:
        values = np.array([r[name] for r in rows if name in r])
        if len(values) and not np.isnan(values).all():
            numbers = {"mean": np.nanmean(values), "sd": np.nanstd(values)}
            found[name] = {k: round(float(v), 4) for k, v in numbers.items()}
            if (count := int(np.isfinite(values).sum())) < len(rows):
                found[name]["clips"] = count
    return found


def write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    """Rows with their names; a name that a row lacks is empty."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    with path.open("w", newline="", encoding="utf-8") as f:
        writer = csv.DictWriter(f, names)
        writer.writeheader()
        writer.writerows(rows)
