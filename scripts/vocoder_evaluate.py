"""Vocoder runs: read a checkpoint, export its weights, compare its sound with Griffin-Lim's.

Used by train_vocoder.py, whose --export and --evaluate these are.
"""

from __future__ import annotations

import csv
import json
import tarfile
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from griffin_lim import griffin_lim
from safetensors.torch import save_file
from tqdm import tqdm

from nanospeech import audio, mel
from nanospeech.config import AudioConfig, VocoderConfig, from_dict
from nanospeech.errors import CheckpointError, DataError, InputError
from nanospeech_torch.sources import split_name
from nanospeech_torch.vocoder import Vocos

AUDIO = AudioConfig()


@dataclass
class Clip:
    """One recording, float32 at AUDIO.sample_rate, and what is said."""

    key: str
    text: str
    wave: np.ndarray


def newest(run: Path) -> Path:
    """The newest weights of a run folder: step_N.pt, or checkpoint.pt of earlier versions.

    Raises:
        CheckpointError: there are none.
    """
    for name in ("step_*.pt", "checkpoint.pt"):
        if found := sorted(run.glob(name)):
            return found[-1]
    raise CheckpointError(f"{run} holds no step_N.pt; train first, or give another --run")


def load_average(path: Path) -> tuple[Vocos, int]:
    """The moving average of a run, and its step.

    Args:
        path: step_N.pt of the trainer, or a checkpoint.pt of earlier versions.

    Raises:
        CheckpointError: it is missing, damaged, or not a vocoder's.
    """
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as e:
        raise CheckpointError(f"there is no {path}; train first, or give another --run") from e
    except Exception as e:
        raise CheckpointError(f"{path} cannot be read: {e}") from e
    if "average" in state:
        config, weights = state["config"], state["average"]
    elif "vocoder" in state.get("config", {}):
        config, weights = state["config"]["vocoder"], state["ema_state_dict"]
    else:
        raise CheckpointError(f"{path} is not a vocoder's checkpoint; give another --run")
    model = Vocos(from_dict(VocoderConfig, config, str(path)))
    try:
        model.load_state_dict({k.removeprefix("vocoder."): v for k, v in weights.items()})
    except RuntimeError as e:
        raise CheckpointError(f"{path} does not fit its own config: {e}") from e
    return model.eval(), state["step"]


def read_clips(shards: Iterable[Path], keep: Callable[[str], bool], most: int) -> list[Clip]:
    """Decodes the recordings whose keys are to be kept, at most so many.

    Raises:
        DataError: a shard cannot be read.
    """
    clips, texts = [], {}
    for path in shards:
        waves = {}
        try:
            with tarfile.open(path) as tar:
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
        except (OSError, tarfile.TarError, ValueError) as e:
            raise DataError(f"cannot read the shard {path}: {e}") from e
        clips += [Clip(k, texts.get(k, ""), w) for k, w in waves.items() if len(w) >= AUDIO.n_fft]
        if len(clips) >= most:
            break
    return clips[:most]


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


def export(checkpoint: Path, folder: Path, dtype: str = "float16") -> None:
    """Writes a run's moving average: folder/vocoder.safetensors, and vocoder.json, its config."""
    model, step = load_average(checkpoint)
    kind = {"float16": torch.float16, "float32": torch.float32}[dtype]
    tensors = {k: v.to(kind).contiguous() for k, v in model.state_dict().items()}
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "vocoder.safetensors", {"step": str(step)})
    text = json.dumps(asdict(model.config), indent=2) + "\n"
    (folder / "vocoder.json").write_text(text, encoding="utf-8")
    size = (folder / "vocoder.safetensors").stat().st_size
    print(f"wrote {folder}/vocoder.safetensors, {size / 1e6:.1f} MB, step {step}")


def evaluate(checkpoint: Path, clips: list[Clip], folder: Path) -> None:
    """Resynthesises held-out clips; writes the waves and prints mel distances as JSON.

    folder/{original,vocoder,griffin_lim}/KEY.wav and folder/texts.csv remain.

    Raises:
        DataError: there are no clips.
    """
    model, step = load_average(checkpoint)
    if not clips:
        raise DataError(
            "no held-out recordings; give shards with --held-out, or --data and a larger "
            "--held-out-share"
        )
    makers = {"vocoder": lambda m: vocode(model, m), "griffin_lim": griffin_lim}
    found: dict[str, list[float]] = {name: [] for name in makers}
    seconds = dict.fromkeys(makers, 0.0)
    for clip in tqdm(clips, desc="evaluate", disable=None):
        log_mel = mel.log_mel(clip.wave)
        waves = {"original": clip.wave}
        for name, make in makers.items():
            begun = time.perf_counter()
            waves[name] = make(log_mel)
            seconds[name] += time.perf_counter() - begun
            found[name].append(distance(waves[name], log_mel))
        for name, wave in waves.items():
            (folder / name).mkdir(parents=True, exist_ok=True)
            audio.write(folder / name / f"{file_name(clip.key)}.wav", wave)
    with (folder / "texts.csv").open("w", newline="", encoding="utf-8") as f:
        csv.writer(f).writerows([("key", "text"), *((file_name(c.key), c.text) for c in clips)])
    spoken = sum(len(c.wave) for c in clips) / AUDIO.sample_rate
    result = {
        "step": step,
        "clips": len(clips),
        "mel_distance": {k: round(float(np.mean(v)), 4) for k, v in found.items()},
        "rtf": {k: round(v / spoken, 4) for k, v in seconds.items()},
        "waves": str(folder),
    }
    print(json.dumps(result))
