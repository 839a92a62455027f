"""Pipeline: text to audio with a loaded engine, chunk by chunk. Knows no array library."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from . import audio
from .config import SampleOptions
from .errors import CheckpointError, InputError
from .sampling import noise
from .text import byte_length, encode, fold, is_speakable, pack, readable
from .tokenizer import pad_tokens
from .voices import MAX_REFERENCE, check_reference, default_voice, find_voice, make_prompt

MIN_SPEECH = 0.35  # seconds of new speech; without it "Hi." comes out clipped
SLOW_START = 0.45  # a text lasts this and half of what the rule says: words alone are spoken slowly
CHUNK_SECONDS = 10.0  # new speech in one go; models drift on more than they were trained on
CROSS_FADE = 0.03  # seconds
SENTENCE_PAUSE = 0.15  # least silence between sentences, in seconds
CONTEXT = 16  # frames of the prompt that the vocoder sees before the new ones
SPEEDS = (0.25, 4.0)
MAX_SECONDS = 3600.0  # that can be asked for
# who tells how long a text lasts, and what is asked for it (`own` of Engine.duration); the errors
# of a duration model and of token durations are not the same ones, so their mean is better
ASKED = {"both": (False, True), "model": (False,), "tokens": (True,), "rule": ()}
DURATIONS = tuple(ASKED)


@dataclass(frozen=True)
class Utterance:
    """Finished speech.

    Attributes:
        wave: float32 (n,), 24 kHz.
        sample_rate: of the wave, in Hz.
        elapsed: seconds that it took to make.
        seed: makes the same samples again.
        chunks: the texts that were spoken in one go each, as the model read them.
    """

    wave: np.ndarray
    sample_rate: int
    elapsed: float
    seed: int
    chunks: tuple[str, ...]

    @property
    def seconds(self) -> float:
        return len(self.wave) / self.sample_rate

    @property
    def rtf(self) -> float:
        """Real-time factor: seconds of work for a second of audio."""
        return self.elapsed / max(self.seconds, 1e-9)

    def save(self, path: str | Path) -> None:
        """Writes WAV, FLAC, Ogg or MP3, by extension."""
        audio.write(path, self.wave, self.sample_rate)


def check_speech(
    text: str | None, speed: float, seed: int | None, seconds: float | None = None
) -> None:
    """What can be said of a wish to speak before any model is loaded.

    Raises:
        InputError: nothing to say, or a speed, seed or length that cannot be.
    """
    if text is not None and not is_speakable(fold(text)):
        raise InputError(f"there is no text to speak in {text[:40]!r}")
    if not SPEEDS[0] <= speed <= SPEEDS[1]:
        raise InputError(f"speed is {speed}; choose {SPEEDS[0]:g} to {SPEEDS[1]:g}")
    if seed is not None and seed < 0:
        raise InputError(f"seed is {seed}; choose 0 or more")
    if seconds is not None and not 0 < seconds <= MAX_SECONDS:
        raise InputError(f"duration is {seconds} s; choose more than 0, up to {MAX_SECONDS:g}")


def choose_durations(engine: Any, wanted: str | None) -> str:
    """Who tells how long a text lasts: one of DURATIONS.

    Raises:
        InputError: there is no such choice.
        CheckpointError: the model cannot tell.
    """
    aligned = engine.config.dit.text_upsampling == "aligned"
    both = aligned and engine.has_duration_model
    if wanted is None:
        return "both" if both else "model" if engine.has_duration else "rule"
    if wanted not in DURATIONS:
        raise InputError(f"duration {wanted!r} not known; choose from {', '.join(DURATIONS)}")
    if wanted == "model" and not engine.has_duration:
        raise CheckpointError(
            f"{engine.folder} has no duration.safetensors and its model no durations of its own;"
            " choose duration rule, or train a duration model (docs/durations.md)"
        )
    if wanted == "tokens" and not aligned:
        raise CheckpointError(
            f"the model in {engine.folder} has no durations of tokens: it is not an aligned one;"
            " choose duration rule, or model if it has a duration model"
        )
    if wanted == "both" and not both:
        lack = "duration.safetensors" if aligned else "aligned model"
        raise CheckpointError(f"{engine.folder} has no {lack}: choose duration model or rule")
    return wanted


class Speaker:
    """One voice, ready to speak.

    Args:
        engine: of nanospeech.load_engine.
        voice: name of a built-in voice; None for the model's default one.
        ref_audio: instead of a voice, a recording to imitate: a path, or float32 (n,) at 24 kHz;
            0.5 to 60 seconds, best 3 to 10.
        ref_text: what is said in it.
        options: how the ODE is solved.
        speed: of the new speech; 2 is twice as fast.
        seed: of the noise; None draws one.
        chunk_seconds: about how much is spoken in one go.
        duration: who tells how long a text lasts: "model" (the folder's duration model, else an
            aligned model's token durations), "tokens" (the latter), "both" (their geometric mean)
            or "rule" (the prompt's bytes a second); None is the first there of both, model, rule.

    Raises:
        InputError: unknown voice, half a reference, or a recording that cannot be used.
        CheckpointError: the model has no durations, and they are asked for.
    """

    def __init__(
        self,
        engine: Any,
        voice: str | None = None,
        ref_audio: str | Path | np.ndarray | None = None,
        ref_text: str | None = None,
        options: SampleOptions = SampleOptions(),
        speed: float = 1.0,
        seed: int | None = None,
        chunk_seconds: float = CHUNK_SECONDS,
        duration: str | None = None,
    ):
        check_reference(ref_audio, ref_text, voice)
        self.durations = choose_durations(engine, duration)
        check_speech(None, speed, seed)
        if not chunk_seconds > 0:
            raise InputError(f"chunk_seconds is {chunk_seconds}; choose more than 0")
        self.engine, self.options, self.speed = engine, options, speed
        self.seed = secrets.randbits(31) if seed is None else seed
        self.chunk_seconds = chunk_seconds
        self.sample_rate: int = engine.config.audio.sample_rate
        if ref_audio is None:
            if voice is None:
                found = default_voice(engine.folder, engine.config.default_voice)
            else:
                found = find_voice(voice, engine.folder)
            ref_audio, ref_text = found.audio, found.text
        if not isinstance(ref_audio, np.ndarray):
            ref_audio = audio.read(ref_audio, self.sample_rate, MAX_REFERENCE)
        self.prompt = make_prompt(ref_audio, ref_text or "", engine.config, engine.tokenizer)

    def chunks(self, text: str) -> list[str]:
        """The texts that speak() will say in one go each: normalised, no words lost.

        Raises:
            InputError: there is nothing to say.
        """
        budget = max(16.0, self.prompt.rate * self.chunk_seconds * self.speed)
        packed = pack(readable(text, self.engine.tokenizer), budget)
        chunks = [" ".join(c.split()) for c in packed if is_speakable(c)]
        if not chunks and is_speakable(fold(text)):
            raise InputError(f"the model knows no character of {text[:40]!r}")
        if not chunks:
            raise InputError("there is no text to speak")
        return chunks

    def frames(self, text: str, tokens: np.ndarray, seconds: float | None = None) -> int:
        """Mel frames of new speech for a chunk.

        Args:
            text: the chunk.
            tokens: its ids.
            seconds: its wanted length; None asks the model, or else goes by the prompt's rate.
        """
        config, prompt = self.engine.config, self.prompt
        frame_rate = config.audio.frame_rate
        if seconds is None:
            by_rule = byte_length(text) / prompt.rate
            told = [self._told_seconds(tokens, own) for own in ASKED[self.durations]] or [by_rule]
            # a duration model far off the rule is wrong, and may ask for minutes or for nothing
            told = [s if by_rule / 4 <= s <= 4 * by_rule + 2 else by_rule for s in told]
            length = max(math.prod(told) ** (1 / len(told)), SLOW_START + by_rule / 2)
            seconds = max(length / self.speed, MIN_SPEECH)
        patch = config.dit.patch_size
        least = max(1, len(tokens)) * patch  # a token needs a frame at least
        return max(least, -(-round(seconds * frame_rate) // patch) * patch)

    def _told_seconds(self, tokens: np.ndarray, own: bool) -> float:
        """What the model says of the length of the new speech; see Engine.duration."""
        prompt = self.prompt
        total = self.engine.duration(
            prompt.mel[None],
            pad_tokens([np.concatenate([prompt.tokens, tokens])]),
            lens_B=np.array([len(prompt.mel)]),
            prompt_tokens_B=np.array([len(prompt.tokens)]),
            own=own,
        )
        return float(total[0]) - len(prompt.mel) / self.engine.config.audio.frame_rate

    def stream(
        self,
        text: str,
        seconds: float | None = None,
        on_step: Callable[[int, int], None] | None = None,
    ) -> Iterator[np.ndarray]:
        """Speaks as it goes.

        Args:
            text: any length.
            seconds: wanted length of the whole, instead of the model's.
            on_step: called as on_step(done, steps) after each solver step of all chunks.

        Yields:
            float32 waves; their concatenation is what speak() returns. Ends are held back for
            the cross-fade with what follows.

        Raises:
            InputError: there is nothing to say, before anything is yielded.
        """
        return self._stream(self.chunks(text), text, seconds, on_step)

    def _stream(
        self,
        chunks: list[str],
        text: str,
        seconds: float | None,
        on_step: Callable[[int, int], None] | None,
    ) -> Iterator[np.ndarray]:
        check_speech(text, self.speed, self.seed, seconds)
        return audio.cross_fade(
            self._waves(chunks, seconds, on_step), int(CROSS_FADE * self.sample_rate)
        )

    def _waves(
        self,
        chunks: list[str],
        seconds: float | None,
        on_step: Callable[[int, int], None] | None,
    ) -> Iterator[np.ndarray]:
        steps = self.options.steps
        weight = sum(map(byte_length, chunks))
        for index, chunk in enumerate(chunks):

            def step(done: int, _: int, start: int = index * steps) -> None:
                if on_step is not None:
                    on_step(start + done, len(chunks) * steps)

            share = None
            if seconds is not None:
                # what the cross-fades take away is given back before
                whole = seconds + (len(chunks) - 1) * CROSS_FADE
                share = whole * byte_length(chunk) / weight
            wave = self._speak_chunk(chunk, self.seed + index, share, step)
            if seconds is None and index < len(chunks) - 1:
                wave = self._rest(wave, chunk)
            yield wave

    def _speak_chunk(
        self,
        text: str,
        seed: int,
        seconds: float | None,
        on_step: Callable[[int, int], None],
    ) -> np.ndarray:
        """Text of one chunk to a wave at the prompt recording's own level."""
        engine, prompt = self.engine, self.prompt
        tokens = encode(text + engine.config.dit.edge, engine.tokenizer)
        if not len(tokens):
            raise InputError(f"the model knows no character of {text!r}")
        start = len(prompt.mel)
        total = start + self.frames(text, tokens, seconds)
        n_mels = engine.config.audio.n_mels
        cond = np.zeros((1, total, n_mels), np.float32)
        cond[0, :start] = prompt.mel
        mel = engine.sample(
            noise(total, n_mels, seed)[None],
            cond,
            pad_tokens([np.concatenate([prompt.tokens, tokens])]),
            self.options,
            lens_B=np.array([total]),
            prompt_frames_B=np.array([start]),
            prompt_tokens_B=np.array([len(prompt.tokens)]),
            on_step=on_step,
        )[0]
        # the vocoder starts on the prompt's end, which is cut: no click, and none of its sound
        context = prompt.mel[-CONTEXT:]
        hop = engine.config.audio.hop_length
        wave = engine.vocode(np.concatenate([context, mel[start:total]])[None])[0]
        wave = audio.fade_edges(wave[len(context) * hop :], self.sample_rate // 200)
        return wave / np.float32(prompt.gain)

    def _rest(self, wave: np.ndarray, text: str) -> np.ndarray:
        """Lengthens a chunk's final silence to a sentence's pause, and at least to the overlap."""
        pause = CROSS_FADE + (SENTENCE_PAUSE if text[-1] in ".!?…。！？\"')" else 0)
        _, stop = audio.loud_span(wave, self.sample_rate)
        missing = int(pause * self.sample_rate) - (len(wave) - stop)
        return np.pad(wave, (0, max(0, missing)))

    def speak(
        self,
        text: str,
        seconds: float | None = None,
        progress: bool = False,
    ) -> Utterance:
        """Speaks a text of any length.

        Args:
            text: what to say.
            seconds: wanted length of the whole, instead of the model's.
            progress: show a bar on stderr.

        Raises:
            InputError: there is nothing to say.
        """
        from tqdm import tqdm

        began = time.perf_counter()
        chunks = self.chunks(text)  # once: what cannot be spoken is warned of once
        with tqdm(unit="step", disable=not progress, leave=False) as bar:

            def on_step(done: int, steps: int) -> None:
                bar.total = steps
                bar.update(done - bar.n)

            waves = list(self._stream(chunks, text, seconds, on_step))
        return Utterance(
            np.concatenate(waves),
            self.sample_rate,
            time.perf_counter() - began,
            self.seed,
            tuple(chunks),
        )
