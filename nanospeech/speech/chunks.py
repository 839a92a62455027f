"""Speech: chunks of text through an engine, one or several at once. Knows no files and no streams.

A chunk is what is spoken in one go; an utterance is what comes of a text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from nanospeech.arguments import check_kind
from nanospeech.audio import wave as audio
from nanospeech.audio.postfilter import postfilter
from nanospeech.config import SampleOptions
from nanospeech.engine.sampling import noise
from nanospeech.release.prompt import Prompt
from nanospeech.text.tokenizer import pad_tokens
from nanospeech.text.written import Written

from .latents import sample_latents

CROSS_FADE = 0.03  # seconds
CONTEXT = 16  # frames of the prompt that the vocoder sees before the new ones
TO_PATH = (
    "the path of a file (into an open one:"
    " soundfile.write(file, speech.wave, speech.sample_rate, format='WAV'))"
)
FADES = 200  # a chunk's edges fade over a second divided by this


@dataclass(frozen=True)
class Word:
    """A word of the text, and when it is heard.

    Attributes:
        text: as written, with its marks: "9:30", "Dr.", "$5".
        start: seconds from the beginning of the speech.
        end: seconds; equal to the start for marks that stand alone and are not said.
        chunk: number of the chunk that it begins in, from 0.
        place: of its first character in the text that was given.
    """

    text: str
    start: float
    end: float
    chunk: int
    place: int


@dataclass(frozen=True, eq=False)  # arrays have no one truth of ==
class Utterance:
    """Finished speech; equal to itself alone.

    Attributes:
        wave: float32 (n,), 24 kHz.
        sample_rate: of the wave, in Hz.
        elapsed: seconds of work; in a batch its share of them, by frames.
        seed: makes the same samples again.
        chunks: texts of the chunks, as the model read them.
        words: each as written, and when it is heard; None for a model that is not aligned, if no
            other finds them (Speaker's aligner).
    """

    wave: np.ndarray
    sample_rate: int
    elapsed: float
    seed: int
    chunks: tuple[str, ...]
    words: tuple[Word, ...] | None = None

    @property
    def seconds(self) -> float:
        return len(self.wave) / self.sample_rate

    @property
    def rtf(self) -> float:
        """Real-time factor: seconds of work for a second of audio."""
        return self.elapsed / max(self.seconds, 1e-9)

    def save(self, path: str | Path) -> None:
        """Writes WAV, FLAC, Ogg, Opus or MP3, by extension.

        Raises:
            InputError: it cannot be written there.
        """
        check_kind("path", path, (str, PathLike), TO_PATH)
        audio.write(path, self.wave, self.sample_rate)


@dataclass(frozen=True)
class Mark:
    """A place within a chunk where a pause is due.

    Attributes:
        start: its first token that has no sound.
        stop: behind its last one.
        kind: "clause" or "sentence".
    """

    start: int
    stop: int
    kind: str


@dataclass(frozen=True, eq=False)
class Chunk:
    """A part of a text that is generated at once.

    Attributes:
        text: as the model reads it.
        tokens: int64 ids of it.
        frames: mel frames of new speech, whole patches.
        seed: of its noise.
        marks: of an aligned model's chunk, in order.
        after: kind of the pause after it, see text.pauses.pause_after; or its seconds.
        before: seconds of silence at its beginning, if the text begins so; 0 is the model's own.
        asked: mel frames that its mel is stretched to; None leaves its length.
        speed: by which its pauses are divided; None leaves its pauses and length unchanged.
        words: as written, by their places in the text.
        characters: float (T,) of the text that each token says; -1 for marks and spaces.
    """

    text: str
    tokens: np.ndarray
    frames: int
    seed: int
    marks: tuple[Mark, ...] = ()
    after: str | float = ""
    speed: float | None = None
    words: tuple[Written, ...] = ()
    characters: np.ndarray = field(default_factory=lambda: np.zeros(0))
    before: float = 0.0
    asked: int | None = None


def sample(
    engine: Any,
    prompt: Prompt,
    chunks: Sequence[Chunk],
    options: SampleOptions,
    on_step: Callable[[int, int], None] | None = None,
) -> list[np.ndarray]:
    """Log mels (N, M), or latents, of the new speech of each chunk, as one batch.

    A chunk's mel does not depend on the others of the batch: its noise comes from its own seed, and
    padding is masked. Without cfg_strength in the options, that of the voice is taken.
    """
    if engine.config.echo:
        return sample_latents(engine, prompt, chunks, options, on_step)
    if options.cfg_strength is None:
        options = replace(options, cfg_strength=prompt.settings.cfg_strength)
    start, n_mels = len(prompt.mel), engine.config.audio.n_mels
    lens = np.array([start + chunk.frames for chunk in chunks])
    shape = len(chunks), int(lens.max()), n_mels
    noises, cond = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    cond[:, :start] = prompt.mel
    for row, chunk, frames in zip(noises, chunks, lens):
        row[:frames] = noise(frames, n_mels, chunk.seed)
    mels = engine.sample(
        noises,
        cond,
        pad_tokens([np.concatenate([prompt.tokens, chunk.tokens]) for chunk in chunks]),
        options,
        lens_B=lens,
        prompt_frames_B=np.full(len(chunks), start),
        prompt_tokens_B=np.full(len(chunks), len(prompt.tokens)),
        on_step=on_step,
    )
    config = engine.config.postfilter
    return [postfilter(mel[start:frames], config) for mel, frames in zip(mels, lens)]


def in_context(engine: Any, prompt: Prompt, mel_NM: np.ndarray) -> tuple[np.ndarray, int]:
    """A chunk's mel after the last frames of the prompt, and the number of those frames.

    The vocoder starts on the prompt, which is cut off afterwards: no click, no sound of the prompt.
    Latents are decoded by themselves.
    """
    if engine.config.echo:
        return mel_NM, 0
    context = prompt.mel[-CONTEXT:]
    return np.concatenate([context, mel_NM]), len(context)


def vocode(engine: Any, prompt: Prompt, mels: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Waves of chunks' mels, as one batch, at the prompt recording's own level."""
    rows, contexts = zip(*(in_context(engine, prompt, mel) for mel in mels))
    skip = contexts[0] * engine.config.audio.hop_length
    if len(rows) == 1:
        waves = engine.vocode(rows[0][None])
    else:
        lens = np.array([len(row) for row in rows])
        batch = np.zeros((len(rows), lens.max(), rows[0].shape[1]), np.float32)
        for place, row in zip(batch, rows):
            place[: len(row)] = row
        waves = engine.vocode(batch, lens)
    rate = engine.config.audio.sample_rate
    return [finish(wave[skip:], prompt, rate) for wave in waves]


def finish(
    wave: np.ndarray, prompt: Prompt, rate: int, begins: bool = True, ends: bool = True
) -> np.ndarray:
    """A chunk's wave, or a piece of it, at the recording's level and with edges that fade.

    Args:
        begins: whether the chunk begins with this piece.
        ends: whether it ends with it.
    """
    return audio.fade_edges(wave, rate // FADES, begins, ends) / np.float32(prompt.gain)


def join(waves: Sequence[np.ndarray], rate: int) -> np.ndarray:
    """The waves of a text's chunks as one."""
    return audio.join(waves, int(CROSS_FADE * rate))
