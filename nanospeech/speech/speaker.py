"""Speaker: a voice that speaks texts with a loaded engine, chunk by chunk. Needs no array library.

chunks.py sends chunks through the engine; streaming.py makes a stream's first chunks small;
batching.py groups many texts.
"""

from __future__ import annotations

import dataclasses
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nanospeech.audio import wave as audio
from nanospeech.audio.loudness import Leveller
from nanospeech.config import BatchLimits, SampleOptions
from nanospeech.errors import InputError
from nanospeech.output import OutputOptions
from nanospeech.release.voices import (
    MAX_REFERENCE,
    VoiceSettings,
    check_reference,
    default_voice,
    find_voice,
    make_prompt,
    warn_of_strangers,
)
from nanospeech.text.headings import ending
from nanospeech.text.pauses import pause_after
from nanospeech.text.sentences import encode, fold, is_speakable, readable
from nanospeech.text.tags import hide, show

from . import batching, streaming
from . import chunks as speech
from . import durations as lengths
from .chunks import CROSS_FADE, Chunk, Utterance
from .durations import DURATIONS, MIN_SPEECH, Lengths, choose_durations
from .pauses import Paced, find_marks, set_pauses

__all__ = ["DURATIONS", "Speaker", "Utterance", "check_speech"]

SPEEDS = (0.25, 4.0)
MAX_SECONDS = 3600.0  # longest speech that --duration accepts


def check_speech(
    text: str | None, speed: float, seed: int | None, seconds: float | None = None
) -> None:
    """Checks arguments before any model is loaded.

    Raises:
        InputError: there is no text, or speed, seed or length are out of range.
    """
    if text is not None and not is_speakable(fold(text)):
        raise InputError(f"there is no text to speak in {text[:40]!r}")
    if not SPEEDS[0] <= speed <= SPEEDS[1]:
        raise InputError(f"speed is {speed}; choose {SPEEDS[0]:g} to {SPEEDS[1]:g}")
    if seed is not None and seed < 0:
        raise InputError(f"seed is {seed}; choose 0 or more")
    if seconds is not None and not 0 < seconds <= MAX_SECONDS:
        raise InputError(f"duration is {seconds} s; choose more than 0, up to {MAX_SECONDS:g}")


class Part(NamedTuple):
    """A chunk's text, and the pause after it."""

    text: str
    after: str


class Speaker:
    """One voice, ready to speak.

    Args:
        engine: of nanospeech.load_engine.
        voice: name of a built-in voice; None for the model's default one. "default/NAME" gives
            the model the recording of a voice that ships, with a warning.
        ref_audio: instead of a voice, a recording to imitate: a path, or float32 (n,) at 24 kHz;
            0.5 to 60 seconds, best 3 to 10. There is a warning if the model does not imitate.
        ref_text: what is said in it.
        options: how the ODE is solved; a cfg_strength of None takes the voice's, else the
            model's.
        speed: of the new speech, relative to the voice's own; 2 is twice as fast.
        seed: of the noise; None draws one.
        output: pauses and loudness.
        more: chunk_seconds and duration, see Lengths.

    Raises:
        InputError: an unknown voice, a reference without words, or an unusable recording.
        CheckpointError: the model lacks the durations that were chosen.
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
        output: OutputOptions = OutputOptions(),
        **more: Any,
    ):
        check_reference(ref_audio, ref_text, voice)
        wanted = Lengths(**more)
        self.durations = choose_durations(engine, wanted.duration)
        check_speech(None, speed, seed)
        self.options, self.speed, self.output = options, speed, output
        self.seed = secrets.randbits(31) if seed is None else seed
        self.chunk_seconds = wanted.chunk_seconds
        self.sample_rate: int = engine.config.audio.sample_rate
        settings, found = VoiceSettings(), None
        if ref_audio is None:
            if voice is None:
                found = default_voice(engine.folder, engine.config.default_voice)
            else:
                found = find_voice(voice, engine.folder)
            ref_audio, ref_text = found.audio, found.text
            engine = engine.with_voice(found.weights)
            settings = found.settings
        warn_of_strangers(engine.config, engine.folder, found)
        self.engine = engine
        if not isinstance(ref_audio, np.ndarray):
            ref_audio = audio.read(ref_audio, self.sample_rate, MAX_REFERENCE)
        prompt = make_prompt(ref_audio, ref_text or "", engine.config, engine.tokenizer)
        self.prompt = dataclasses.replace(prompt, settings=settings)
        self.level = Leveller(self.sample_rate, output.loudness, settings.loudness)

    def chunks(self, text: str, early: bool = False) -> list[str]:
        """The texts of the chunks: normalised, no words lost.

        Args:
            text: any length.
            early: chunks of stream(), of which the first are small; else those of speak().

        Raises:
            InputError: there is nothing to say.
        """
        return [part.text for part in self.parts(text, early)]

    def parts(self, text: str, early: bool = False) -> list[Part]:
        """The texts of chunks(), with the pauses after them."""
        chunks = list(self._texts([text], early))
        if not chunks and is_speakable(fold(text)):
            raise InputError(f"the model knows no character of {text[:40]!r}")
        if not chunks:
            raise InputError("there is no text to speak")
        return chunks

    def _texts(self, parts: Iterable[str], early: bool) -> Iterator[Part]:
        """The chunks of a text that comes in parts."""
        rate = self.prompt.rate * lengths.model_speed(self.speed)  # bytes a second
        full = max(16.0, rate * self.chunk_seconds)
        sizes = streaming.budgets(rate * streaming.FIRST_SECONDS if early else full, full)
        least = rate * streaming.LEAST_SECONDS
        for part in parts:
            prepared = readable(part, self.engine.tokenizer)
            hidden, tags = hide(prepared, self.engine.tokenizer.tags)  # which are never cut
            for packed in streaming.pack_early(hidden + ending(part), sizes, full, least):
                if is_speakable(chunk := show(packed, tags)):
                    yield Part(" ".join(chunk.split()), pause_after(chunk))

    def frames(self, text: str, tokens: np.ndarray, seconds: float | None = None) -> int:
        """Mel frames of new speech for a chunk.

        Args:
            text: the chunk.
            tokens: its ids.
            seconds: its wanted length; None takes the estimate of the chosen source.
        """
        if seconds is None:
            sources = lengths.DURATION_SOURCES[self.durations]
            seconds = lengths.estimate_seconds(self.engine, self.prompt, text, tokens, sources)
            speed = lengths.model_speed(self.speed) * self.prompt.settings.speed
            seconds = max(seconds / speed, MIN_SPEECH)
        return lengths.frames(self.engine.config, tokens, seconds)

    def chunk(
        self, text: str, seed: int, seconds: float | None = None, after: str | None = None
    ) -> Chunk:
        """One of chunks(), with its ids and its length.

        A short chunk begins with a comma of leading_pause seconds, if the model's config sets that.

        Args:
            text: the chunk.
            seed: of its noise.
            seconds: its wanted length; pauses are then left as the model makes them.
            after: the next pause, see text.pauses.pause_after; None takes that of its last mark.

        Raises:
            InputError: the model knows no character of it.
        """
        config = self.engine.config
        tokens = encode(text + config.dit.edge, self.engine.tokenizer)
        if not len(tokens):
            raise InputError(f"the model knows no character of {text!r}")
        frames, before = self.frames(text, tokens, seconds), 0
        if seconds is not None:
            return Chunk(text, tokens, frames, seed)
        if config.leading_pause and frames < lengths.SHORT * config.audio.frame_rate:
            comma = encode(", ", self.engine.tokenizer)
            tokens, before = np.concatenate([comma, tokens]), len(comma)
            frames += lengths.frames(config, comma, config.leading_pause)
        aligned = config.dit.text_upsampling == "aligned"
        marks = find_marks(text, tokens, before, self.engine.tokenizer) if aligned else ()
        after = pause_after(text) if after is None else after
        return Chunk(text, tokens, frames, seed, marks, after, self.speed)

    def stream(
        self,
        text: str | Iterable[str],
        seconds: float | None = None,
        on_step: Callable[[int, int], None] | None = None,
        early: bool = True,
    ) -> Iterator[np.ndarray]:
        """Speaks a text piece by piece.

        Args:
            text: any length; or an iterable of its parts as they are written, cut anywhere, which
                is spoken sentence by sentence.
            seconds: wanted length of all speech, instead of the model's.
            on_step: called as on_step(done, steps) after each solver step; `steps` is that of all
                chunks that are known by then.
            early: first chunks are a sentence or a clause, later ones grow to the size of those
                of speak(), and the vocoder works in pieces. If False, chunks are those of speak(),
                and the concatenation of all waves is what speak() returns.

        Yields:
            float32 waves. Their ends are held back for the cross-fade with the next chunk.

        Raises:
            InputError: there is no text to speak; for a string before anything is yielded.
        """
        if isinstance(text, str):
            check_speech(text, self.speed, self.seed, seconds)
            return self._stream(self.parts(text, early), seconds, on_step, early)
        if seconds is not None:
            raise InputError("the length of a text that is still being written cannot be chosen")
        return self._stream(self._arriving(text, early), None, on_step, early)

    def _arriving(self, parts: Iterable[str], early: bool) -> Iterator[Part]:
        chunks = streaming.Peekable(self._texts(streaming.whole_sentences(parts), early))
        if not chunks.more():
            raise InputError("there is no text to speak")
        yield from chunks

    def _stream(
        self,
        parts: Iterable[Part],
        seconds: float | None,
        on_step: Callable[[int, int], None] | None,
        early: bool,
    ) -> Iterator[np.ndarray]:
        waves = self._waves(parts, seconds, on_step, early)
        joined = audio.cross_fade(waves, int(CROSS_FADE * self.sample_rate))
        return self.level(joined, early)

    def _waves(
        self,
        parts: Iterable[Part],
        seconds: float | None,
        on_step: Callable[[int, int], None] | None,
        early: bool,
    ) -> Iterator[Iterator[np.ndarray]]:
        """The waves of chunks, each in pieces."""
        steps, known = self.options.steps, len(parts) if isinstance(parts, list) else 0
        shares = repeat(None)
        if seconds is not None:
            shares = lengths.split_seconds(seconds, [part.text for part in parts], CROSS_FADE)
        ahead = streaming.Peekable(parts)
        for index, (part, share) in enumerate(zip(ahead, shares)):

            def step(done: int, _: int, index: int = index) -> None:
                if on_step is not None:
                    on_step(index * steps + done, max(known, index + 1) * steps)

            chunk = self.chunk(part.text, self.seed + index, share, part.after)
            (mel,) = speech.sample(self.engine, self.prompt, [chunk], self.options, step)
            paced = set_pauses(self.engine, mel, chunk, self.output, first=not index)
            yield self._wave(paced, early, ahead)

    def _wave(
        self, paced: Paced, early: bool, ahead: streaming.Peekable[Part]
    ) -> Iterator[np.ndarray]:
        """A chunk's wave in pieces, with the silence behind it if another chunk follows."""
        if early:
            pieces = streaming.vocode_chunk(self.engine, self.prompt, paced.mel)
        else:
            pieces = speech.vocode(self.engine, self.prompt, [paced.mel])
        done, last = 0, paced.samples(self.engine.config.audio.hop_length)
        for piece in pieces:
            cut, done = last - done, done + len(piece)
            if not 0 <= cut < len(piece):
                yield piece
                continue
            if cut:
                yield piece[:cut]
            if not ahead.more():  # which is asked late: it may still be written
                break
            yield piece[cut:]
        self.engine.clear_cache()

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
        began = time.perf_counter()
        check_speech(text, self.speed, self.seed, seconds)
        parts = self.parts(text, early=False)  # once: what cannot be spoken is warned of once
        with step_bar(progress) as on_step:
            waves = list(self._stream(parts, seconds, on_step, early=False))
        return Utterance(
            np.concatenate(waves),
            self.sample_rate,
            time.perf_counter() - began,
            self.seed,
            tuple(part.text for part in parts),
        )

    def speak_many(
        self,
        texts: Sequence[str],
        seeds: Sequence[int] | None = None,
        progress: bool = False,
        raise_errors: bool = False,
        limits: BatchLimits = BatchLimits(),
    ) -> list[Utterance | InputError]:
        """Speaks texts of any lengths, many chunks at once.

        Each is what speak() makes of it alone with the same seed, but for rounding: in float32 that
        cannot be heard or seen, in bfloat16 it is that of any other order of the same sums.

        Args:
            texts: what to say.
            seeds: one for each text; None is the speaker's own for all.
            progress: show a bar on stderr.
            raise_errors: raise the first InputError instead of returning it.
            limits: of a batch.

        Returns:
            As many results as texts, in their order. Where a text cannot be spoken (it is empty, or
            the model knows none of its characters) the InputError that says why stands in its
            place, and the others are spoken all the same.

        Raises:
            InputError: seeds that do not fit the texts; or a text's error, if raise_errors.
        """
        found: list[Any] = [None] * len(texts)
        results = batching.speak_each(self, texts, seeds, limits)
        sizes = [batching.effort(self, text) for text in texts]
        with batching.length_bar(sizes, "text", progress) as done:
            for index, result in results:
                if raise_errors and isinstance(result, InputError):
                    raise result
                found[index] = result
                done(index)
        return found


@contextmanager
def step_bar(shown: bool) -> Iterator[Callable[[int, int], None]]:
    """A bar of solver steps on stderr; gives what stream() takes as on_step."""
    from tqdm import tqdm

    with tqdm(unit="step", disable=not shown, leave=False) as bar:

        def on_step(done: int, steps: int) -> None:
            bar.total = steps
            bar.update(done - bar.n)

        yield on_step
