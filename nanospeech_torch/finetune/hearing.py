"""Hearing: similarity of a voice to recordings that were held back, and its word errors."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nanospeech.audio import wave as audio
from nanospeech.errors import NanospeechError
from nanospeech.measure import metrics
from nanospeech.output import MEASURED
from nanospeech.release.folder import Release
from nanospeech.text.languages import spoken_code

from .recordings import Recording

MORE_ERRORS = 0.05  # share of the words by which errors must rise for a warning


@dataclass(frozen=True)
class Heard:
    """Results for a voice that spoke the words of the held-back recordings.

    Attributes:
        similarity: mean cosine to the recordings' mean embedding; None if not measured.
        errors: number of words misheard; None if not measured.
        words: number of words in the texts.
    """

    similarity: float | None
    errors: int | None
    words: int

    def describe(self) -> str:
        """The available figures in words."""
        parts = []
        if self.similarity is not None:
            parts.append(f"similarity {self.similarity:.2f}")
        if self.errors is not None:
            parts.append(f"{self.errors} of {self.words} words misheard")
        return ", ".join(parts)


@dataclass
class Ears:
    """The measures; those that are not available are listed in `missing`.

    Args:
        whisper: a faster-whisper size or folder.
        language: code of what is spoken.
        embed: a speaker encoder, for tests; None loads Resemblyzer where it is installed.
        transcribe: a function from wave to text, likewise; None loads Whisper.
    """

    whisper: str = "base"
    language: str = "en"
    embed: metrics.Embed | None = None
    transcribe: Callable[[np.ndarray], str] | None = None
    missing: list[str] = field(default_factory=list)

    def __post_init__(self):
        if self.embed is None:
            self.embed = self.attempt("similarity", metrics.load_encoder)
        if self.transcribe is None:
            self.transcribe = self.attempt("word errors", self.recogniser)

    def attempt(self, what: str, load: Callable[[], Any]) -> Any:
        """The result of load, or None and the reason for its failure."""
        try:
            return load()
        except NanospeechError as e:
            self.missing.append(f"{what} before and after cannot be measured: {e}")
            return None

    def recogniser(self) -> Callable[[np.ndarray], str]:
        metrics.check("whisper")
        model = metrics.load_whisper(self.whisper)
        metrics.check_language(model, self.language)
        return lambda wave: metrics.transcribe(model, wave, language=self.language)

    def hear(self, speaker: Any, held: Sequence[Recording]) -> Heard:
        """Measures a nanospeech.Speaker on the words of recordings."""
        found = speaker.speak_many([r.text for r in held])
        said = [(r.text, u.wave) for r, u in zip(held, found) if not isinstance(u, Exception)]
        return Heard(self.similarity([wave for _, wave in said], held), *self.errors(said))

    def similarity(self, waves: Sequence[np.ndarray], held: Sequence[Recording]) -> float | None:
        least = int(metrics.MIN_SECONDS * audio.SAMPLE_RATE)
        spoken = [w for w in waves if len(w) >= least and not audio.is_silent(w)]
        own = [w for r in held if len(w := r.wave()) >= least]
        if self.embed is None or not spoken or not own:
            return None
        mine, theirs = (np.stack([self.embed(w) for w in ws]) for ws in (spoken, own))
        return float(metrics.to_mean(mine, theirs).mean())

    def errors(self, said: Sequence[tuple[str, np.ndarray]]) -> tuple[int | None, int]:
        if self.transcribe is None:
            return None, 0
        from nanospeech.measure.wer import word_edits

        counts = [word_edits(text, self.transcribe(wave), self.language) for text, wave in said]
        return sum(c[0] for c in counts), sum(c[1] for c in counts)


def worse(before: Heard, after: Heard, strength: float = 1.0) -> list[str]:
    """Warnings of what is worse after finetuning than before, by weights of that strength."""
    found = []
    was, now = before.similarity, after.similarity
    # as they are told: a difference that nobody sees is none
    if was is not None and now is not None and round(now, 2) < round(was, 2):
        found.append(
            f"it sounds less like the recordings ({now:.2f}) than what it began with ({was:.2f}):"
            f" {'a higher --strength, ' if strength < 1 else ''}more --steps, or more recordings"
        )
    if before.errors is not None and after.errors is not None:
        more = after.errors - before.errors
        if more > MORE_ERRORS * max(after.words, 1):
            found.append(
                f"{more} words more are misheard than of what it began with: a lower --strength,"
                " fewer --steps in a new --run, and check that the texts are just what is said"
            )
    return found


def compare(
    held: Sequence[Recording],
    release: Release,
    begun: str | None,
    prompt: Recording,
    args: argparse.Namespace,
    strength: float = 1.0,
) -> None:
    """Prints similarity and word errors on held-back recordings, before and after finetuning.

    Args:
        held: recordings that were not trained on.
        release: the model that was finetuned.
        begun: its voice whose weights training started from; a model that imitates, or has no
            such voice, speaks with the new voice's prompt instead.
        prompt: the new voice's.
        args: of the command.
        strength: share of the trained weights in the new voice's.
    """
    others = [r for r in held if r.text != prompt.text]
    if len(others) < len(held):  # a recording is most like itself
        print("the prompt was held back too, and is not measured with")
    held = others
    if not held:
        print(
            "no recordings were held back to measure with; --held-back 4 in a new --run keeps four"
        )
        return
    print(f"measuring with {len(held)} recordings that were held back", file=sys.stderr)
    ears = Ears(args.whisper, spoken_code(*(r.language for r in held), release.config.language))
    for line in ears.missing:
        print(line)
    if ears.embed is None and ears.transcribe is None:
        return
    from nanospeech.load import load_engine
    from nanospeech.speech.speaker import Speaker

    # training begins with the model's own weights; an imitator may speak by its release's vocoder
    whole = release.beside or release
    engine = load_engine(whole.folder, backend="torch", itself=release.beside is None)
    if begun is None or release.config.imitates:
        speaker = Speaker(
            engine, None, prompt.as_prompt(), prompt.text, seed=args.seed, output=MEASURED
        )
        begun = "the recording alone" if release.config.imitates else "the model"
    else:
        speaker = Speaker(engine, begun, seed=args.seed, output=MEASURED)
    before = ears.hear(speaker, held)
    print(f"before, as {begun}: {before.describe()} ({len(held)} held back)")
    engine = load_engine(args.output, backend="torch")
    after = ears.hear(Speaker(engine, seed=args.seed, output=MEASURED), held)
    print(f"after, as {args.voice}: {after.describe()}")
    for warning in worse(before, after, strength):
        print(f"warning: {warning}", file=sys.stderr)
