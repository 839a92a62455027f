"""Samples: fixed sentences spoken by a run's averaged weights. Trains nothing.

Files go to run_dir/samples/step_N/: a .wav and a .png of the log mel for each sentence, and to the
trackers that can show them. The main process makes them on the CPU while the others wait.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nanospeech.audio import wave as audio
from nanospeech.audio.mel import log_mel
from nanospeech.config import SampleOptions
from nanospeech.errors import BackendError, InputError, require
from nanospeech.load import load_engine
from nanospeech.pictures import pyplot
from nanospeech.release.folder import load_config, resolve
from nanospeech.speech.speaker import Speaker
from nanospeech_torch.train.objectives.base import Objective

from .config import LogConfig


class SpokenSamples:
    """Called by the trainer every log.sample_every steps.

    Args:
        config: which sentences, whose voice, which vocoder.
        objective: the model that speaks.
        folder: of the run.

    Raises:
        InputError: the model does not speak.
    """

    def __init__(self, config: LogConfig, objective: Objective, folder: Path):
        if not objective.speaks:
            raise InputError(
                f"log.sample_every is {config.sample_every}, but only a speech model speaks, and "
                f"this one is a {type(objective).__name__}; set it to 0, or give train() an "
                "on_sample of your own"
            )
        self.config, self.folder = config, folder

    def save(self, saved: dict[str, Any], step: int, trackers: Iterable[Any]) -> None:
        """Speaks with the weights of a step, and writes the samples.

        Args:
            saved: the content of an exported checkpoint (step_N.pt).
            step: of the run.
            trackers: Accelerate's.
        """
        spoken = self.speak(saved)
        folder = self.folder / "samples" / f"step_{step:08d}"
        self.write(folder, spoken)
        show(trackers, step, folder, spoken)

    def speak(self, saved: dict[str, Any]) -> list[np.ndarray]:
        """The sentences, float32 waves at 24 kHz."""
        from convert import convert

        shipped = resolve(self.config.vocoder)
        voices = resolve(self.config.voices)
        with tempfile.TemporaryDirectory() as temporary:
            path = Path(temporary) / "weights.pt"
            torch.save(saved, path)
            folder = Path(temporary) / "release"
            convert(
                path,
                folder,
                vocoder=shipped,
                voices=voices / "voices",
                default_voice=load_config(voices).default_voice,
                dtype="float32",
            )
            engine = load_engine(folder, backend="torch", device="cpu")
            speaker = Speaker(engine, options=SampleOptions(), seed=0)
            return [speaker.speak(text).wave for text in self.config.sentences]

    def write(self, folder: Path, waves: list[np.ndarray]) -> None:
        """One .wav and, where matplotlib is there, one .png a sentence."""
        folder.mkdir(parents=True, exist_ok=True)
        for i, (text, wave) in enumerate(zip(self.config.sentences, waves)):
            audio.write(folder / f"{i}.wav", wave, 24_000)
            try:
                picture(folder / f"{i}.png", wave, text)
            except BackendError:
                pass  # pictures are optional


def picture(path: Path, wave: np.ndarray, title: str) -> None:
    """The log mel of a wave."""
    plt = pyplot()

    figure, axis = plt.subplots(figsize=(8, 3), constrained_layout=True)
    axis.imshow(log_mel(wave).T, origin="lower", aspect="auto", vmin=-9, vmax=2)
    axis.set(title=title, xlabel="frame (93.75 a second)", ylabel="mel band")
    figure.savefig(path, dpi=80)
    plt.close(figure)


def show(trackers: Iterable[Any], step: int, folder: Path, waves: list[np.ndarray]) -> None:
    """Gives the samples to the trackers."""
    for tracker in trackers:
        for i, wave in enumerate(waves):
            image = folder / f"{i}.png"
            if tracker.name == "tensorboard":
                tracker.writer.add_audio(f"sample/{i}", torch.from_numpy(wave)[None], step, 24_000)
                if image.exists():
                    pixels = pixels_of(image)
                    tracker.writer.add_image(f"mel/{i}", pixels, step, dataformats="HWC")
            elif tracker.name in ("wandb", "trackio"):
                kinds = require(tracker.name, "trackers")
                tracked: dict[str, Any] = {
                    f"sample/{i}": kinds.Audio(str(folder / f"{i}.wav"))
                    if tracker.name == "trackio"
                    else kinds.Audio(wave, sample_rate=24_000)
                }
                if image.exists():
                    tracked[f"mel/{i}"] = kinds.Image(str(image))
                tracker.log(tracked, step=step)


def pixels_of(path: Path) -> np.ndarray:
    """A picture as uint8 (height, width, 3)."""
    plt = pyplot()

    return (plt.imread(path)[..., :3] * 255).astype(np.uint8)
