"""Vocoder runs: read a checkpoint, export its weights, compare its sound with Griffin-Lim's.

Used by train_vocoder.py, whose --export and --evaluate these are.
"""

from __future__ import annotations

import csv
import json
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from griffin_lim import griffin_lim
from safetensors.torch import save_file
from tqdm import tqdm
from vocoder_data import AUDIO, Clip, clip_wave

from nanospeech import audio, mel
from nanospeech.config import VocoderConfig, from_dict
from nanospeech.errors import CheckpointError, DataError
from nanospeech_torch.vocoder import Vocos


def load_checkpoint(path: Path) -> dict:
    """Reads a run's own checkpoint.

    Raises:
        CheckpointError: it is missing or damaged.
    """
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as e:
        raise CheckpointError(f"there is no {path}; train first, or give another --run") from e
    except Exception as e:
        raise CheckpointError(f"{path} cannot be read ({e}); move it away to begin anew") from e


def load_average(path: Path) -> tuple[Vocos, int]:
    """The moving average of a run, and its step."""
    state = load_checkpoint(path)
    model = Vocos(from_dict(VocoderConfig, state["config"], str(path)))
    model.load_state_dict(state["average"])
    return model.eval(), state["step"]


@torch.no_grad()
def vocode(model: Vocos, log_mel: np.ndarray) -> np.ndarray:
    """One log mel (N, M) to its wave."""
    device = next(model.parameters()).device
    return model(torch.from_numpy(log_mel)[None].to(device))[0].cpu().numpy()


def distance(wave: np.ndarray, log_mel: np.ndarray) -> float:
    """L1 between the mel of a wave and the log mel that it was made from."""
    again = mel.log_mel(wave)
    frames = min(len(again), len(log_mel))
    return float(np.abs(again[:frames] - log_mel[:frames]).mean())


def mel_distance(model: Vocos, clips: list[Clip]) -> float:
    """Mean distance over clips of at least one window."""
    mels = [mel.log_mel(clip_wave(c)) for c in clips if len(c.samples) >= AUDIO.n_fft]
    return float(np.mean([distance(vocode(model, m), m) for m in mels])) if mels else float("nan")


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
    """
    model, step = load_average(checkpoint)
    clips = [c for c in clips if len(c.samples) >= AUDIO.n_fft]
    if not clips:
        raise DataError("no held-out recordings; give shards with --held-out")
    makers = {"vocoder": lambda m: vocode(model, m), "griffin_lim": griffin_lim}
    found: dict[str, list[float]] = {name: [] for name in makers}
    seconds = dict.fromkeys(makers, 0.0)
    for clip in tqdm(clips, desc="evaluate"):
        original = clip_wave(clip)
        log_mel = mel.log_mel(original)
        waves = {"original": original}
        for name, make in makers.items():
            begun = time.perf_counter()
            waves[name] = make(log_mel)
            seconds[name] += time.perf_counter() - begun
            found[name].append(distance(waves[name], log_mel))
        for name, wave in waves.items():
            (folder / name).mkdir(parents=True, exist_ok=True)
            audio.write(folder / name / f"{clip.key}.wav", wave)
    with (folder / "texts.csv").open("w", newline="", encoding="utf-8") as f:
        csv.writer(f).writerows([("key", "text"), *((c.key, c.text) for c in clips)])
    spoken = sum(len(c.samples) for c in clips) / AUDIO.sample_rate
    result = {
        "step": step,
        "clips": len(clips),
        "mel_distance": {k: round(float(np.mean(v)), 4) for k, v in found.items()},
        "rtf": {k: round(v / spoken, 4) for k, v in seconds.items()},
        "waves": str(folder),
    }
    print(json.dumps(result))
