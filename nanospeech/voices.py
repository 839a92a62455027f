"""Voices: recordings with their words, those of release folders and a user's own, as prompts."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from . import audio
from .config import ModelConfig, SampleOptions, from_dict
from .errors import CheckpointError, InputError
from .mel import log_mel
from .text import byte_length, encode, is_speakable, prepare
from .tokenizer import Tokenizer

SUFFIXES = (".wav", ".flac", ".ogg", ".mp3")
# its voices/ and default/voices/ serve models without any of their own
PACKAGED = Path(__file__).parent
MAX_REFERENCE = 60.0  # seconds
MIN_REFERENCE = 0.5
REFERENCE_TAIL = 0.1  # seconds of silence after the prompt, so that its last sound does not leak
PACES = (0.5, 2.0)  # and speeds
BYTES_PER_SECOND = (5.0, 40.0)  # plausible speech; a prompt with the wrong text must not run away


@dataclass(frozen=True)
class Manner:
    """How a voice speaks with its folder's model: what its NAME.json may say.

    Attributes:
        pace: how much longer its speaker takes than the model foretells after the prompt, of which
            one sentence says little (scripts/durations.py --set-pace).
        speed: how fast it speaks, to its speaker's 1: a fast reader's voice is clearer a little
            slower.
        cfg_strength: its guidance, where none is asked for; None is the model's.
    """

    pace: float = 1.0
    speed: float = 1.0
    cfg_strength: float | None = None

    def __post_init__(self):
        for name, x in ("pace", self.pace), ("speed", self.speed):
            if not PACES[0] <= x <= PACES[1]:
                raise InputError(f"{name} is {x}, should be {PACES[0]:g} to {PACES[1]:g}")
        SampleOptions(cfg_strength=self.cfg_strength)  # which knows its bounds

    @staticmethod
    def load(path: Path) -> Manner:
        """Reads a NAME.json, which need not be there.

        Raises:
            CheckpointError: it is not JSON, or not this.
        """
        if not path.is_file():
            return Manner()
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as e:
            raise CheckpointError(f"cannot read {path}: {e}") from e
        return from_dict(Manner, values, str(path))


@dataclass(frozen=True)
class Voice:
    """A prompt: its recording and the words spoken in it.

    Attributes:
        weights: file of what it changes in its folder's model, if anything; see voice_weights.
        manner: how it speaks with that model.
    """

    name: str
    audio: Path
    text: str
    weights: Path | None = None
    manner: Manner = Manner()


@dataclass(frozen=True)
class Prompt:
    """A voice as the model is given it.

    Attributes:
        mel: float32 (N, M) log mel, whole patches, at the raised level.
        tokens: int64 ids of its words and the space that follows them.
        rate: UTF-8 bytes of its text a second.
        gain: by how much the recording was raised.
        manner: the Voice's.
    """

    mel: np.ndarray
    tokens: np.ndarray
    rate: float
    gain: float
    manner: Manner = Manner()


def folders(release: str | Path | None) -> list[Path]:
    """Where voices are looked for, first the release's own."""
    own = [Path(release) / "voices"] if release is not None else []
    return [*own, PACKAGED / "default" / "voices", PACKAGED / "voices"]


def list_voices(release: str | Path | None = None) -> list[str]:
    """Names of all voices, sorted: recordings that have their words beside them."""
    return sorted({name for folder in folders(release) for name in _in_folder(folder)})


def find_voice(name: str, release: str | Path | None = None) -> Voice:
    """Looks up a voice by name.

    Names are matched against what the folders list, so none can lead out of them.

    Raises:
        InputError: there is no such voice; the message lists the choices.
        CheckpointError: what its NAME.json says cannot be.
    """
    for folder in folders(release):
        if audio := _in_folder(folder).get(name):
            try:
                text = audio.with_suffix(".txt").read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as e:
                raise InputError(f"cannot read the words of voice {name!r}: {e}") from e
            if not text:
                raise InputError(
                    f"voice {name!r} has no words: {audio.with_suffix('.txt')} is empty"
                )
            weights = audio.with_suffix(".safetensors")
            own = release is not None and folder == Path(release) / "voices"
            if not own:  # what was measured with another model means nothing here
                return Voice(name, audio, text)
            there = weights if weights.is_file() else None
            return Voice(name, audio, text, there, Manner.load(audio.with_suffix(".json")))
    names = list_voices(release)
    choices = f"choose from {', '.join(names)}" if names else "there are none; give a reference"
    raise InputError(f"voice {name!r} not found; {choices}")


def default_voice(release: str | Path | None, preferred: str | None = None) -> Voice:
    """The preferred voice, else the first of the release, else the first of the package.

    Raises:
        InputError: there is none, or the preferred one is missing.
    """
    if preferred is not None:
        return find_voice(preferred, release)
    for folder in folders(release):
        if names := sorted(_in_folder(folder)):
            return find_voice(names[0], release)
    raise InputError("this model has no voices; give a reference recording and its words")


def _in_folder(folder: Path) -> dict[str, Path]:
    if not folder.is_dir():
        return {}
    files = sorted(p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES)
    return {p.stem: p for p in files if p.with_suffix(".txt").is_file()}


def check_reference(ref_audio: Any, ref_text: str | None, voice: str | None = None) -> None:
    """What can be said of a reference before any model is loaded.

    Raises:
        InputError: half a reference, one beside a voice, or a file that is missing or too long.
    """
    if (ref_audio is None) != (ref_text is None):
        have, lack = ("text", "audio") if ref_audio is None else ("audio", "text")
        raise InputError(f"the reference has no {lack}, only {have}; give both, or a voice instead")
    if ref_audio is None:
        return
    if voice is not None:
        raise InputError("give either a voice or a reference recording, not both")
    if not is_speakable(ref_text or ""):
        raise InputError("the reference's text is empty; write down what is said in the recording")
    if not isinstance(ref_audio, np.ndarray):
        audio.check_length(ref_audio, MAX_REFERENCE)


def make_prompt(wave: np.ndarray, text: str, config: ModelConfig, tokenizer: Tokenizer) -> Prompt:
    """Trims, levels and analyses a recording.

    Args:
        wave: float32 (n,) at the model's rate.
        text: what is said in it.

    Raises:
        InputError: silent, too short, too long, or too short for so much text.
    """
    rate = config.audio.sample_rate
    if wave.ndim != 1 or not np.isfinite(wave).all():
        raise InputError("the reference should be one channel of finite samples")
    if audio.is_silent(wave):
        raise InputError("the reference recording is silent")
    if len(wave) > MAX_REFERENCE * rate + 1:
        raise InputError(f"the reference is longer than {MAX_REFERENCE:g} s")
    wave = audio.trim(wave, rate, REFERENCE_TAIL)
    start, stop = audio.loud_span(wave, rate)
    seconds = (stop - start) / rate
    if seconds < MIN_REFERENCE:
        raise InputError(
            f"the reference holds {seconds:.2f} s of sound; at least {MIN_REFERENCE} s are needed"
        )
    tail = max(0, int(REFERENCE_TAIL * rate) - (len(wave) - stop))
    wave, gain = audio.set_level(np.pad(wave, (0, tail)), config.audio.prompt_rms)
    mel = log_mel(wave, config.audio)
    patch = config.dit.patch_size
    mel = mel[: len(mel) // patch * patch]  # no patch is half prompt, half new
    text = " ".join(prepare(text, tokenizer).split())
    if text[-1:].isalnum():
        text += "."  # a prompt that ends openly would run on into the new text
    tokens = encode(config.dit.edge + text + " ", tokenizer)
    if len(tokens) * patch > len(mel):
        raise InputError(
            f"the reference's text of {len(text)} characters cannot be said in its"
            f" {seconds:.1f} s; write down just what is said in the recording"
        )
    return Prompt(mel, tokens, float(np.clip(byte_length(text) / seconds, *BYTES_PER_SECOND)), gain)
