"""Prompts: the recording that a finetuned voice speaks after, chosen from its data or by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from nanospeech.audio import wave as audio
from nanospeech.config import ModelConfig
from nanospeech.corpus.samples import Source, clean, words_beside
from nanospeech.errors import DataError, InputError
from nanospeech.release.prompt import make_prompt
from nanospeech.text.tokenizer import WORDS, Tokenizer

from .recordings import Recording, utf8

PROMPT_SECONDS = (3.0, 6.0)
LONGEST_PROMPT = 12.0


def choose_prompt(
    recordings: Sequence[Recording],
    config: ModelConfig,
    tokenizer: Tokenizer,
    warn: Callable[[str], None] = print,
) -> Recording:
    """The recording that makes the best prompt: 3 to 6 s, clean, whole sentences, a usual pace.

    Raises:
        DataError: none can be a prompt.
    """
    low, high = PROMPT_SECONDS
    fitting = [r for r in recordings if low <= r.seconds <= high]
    if not fitting:
        fitting = sorted(
            (r for r in recordings if r.seconds <= LONGEST_PROMPT),
            key=lambda r: max(low - r.seconds, r.seconds - high),
        )[:5]
        if fitting:
            warn(f"no recording lasts {low:g} to {high:g} s; the nearest becomes the prompt")
    rates = [len(r.text) / r.seconds for r in recordings]
    usual = float(np.median(rates))
    best: tuple[float, Recording] | None = None
    for r in fitting:
        try:
            wave = r.wave()
            make_prompt(wave, r.text, config, tokenizer)
        except InputError:
            continue
        score = clean_score(wave) - 10 * abs(np.log(len(r.text) / r.seconds / usual))
        score -= 6 * odd_text(r.text, tokenizer)
        if best is None or score > best[0]:
            best = score, r
    if best is None:
        raise DataError(
            "no recording can be a prompt; add one of 3 to 6 s with just its words, or name one by"
            " --prompt"
        )
    return best[1]


def read_prompt(path: Path, config: ModelConfig, tokenizer: Tokenizer) -> Recording:
    """A prompt, chosen by hand or by nanospeech prepare prompts.

    Raises:
        InputError: there is no X.txt with its words, in UTF-8, in its folder, or the model cannot
            speak after the recording.
    """
    if (words := words_beside(path)) is None:
        words = path.with_suffix(".txt")
        raise InputError(f"{words} is missing; it should hold the words of {path.name}")
    text, wave = clean(utf8(words)), audio.read(path)
    try:
        make_prompt(wave, text, config, tokenizer)
    except InputError as e:
        raise InputError(f"{path} cannot be the prompt: {e}") from e
    return Recording(path.stem, Source(path), text, len(wave) / audio.SAMPLE_RATE)


def clean_score(wave: np.ndarray) -> float:
    """Decibels between speech and the quietest tenth of 20 ms blocks; less where it is clipped.

    At most 40: a higher value depends on pauses more than on noise.
    """
    block = audio.SAMPLE_RATE // 50
    blocks = wave[: len(wave) // block * block].reshape(-1, block)
    level = 20 * np.log10(np.sqrt(np.mean(np.square(blocks), axis=1)) + 1e-5)
    clipped = 30 * float(np.mean(np.abs(wave) > 0.99 * max(0.5, np.abs(wave).max())) > 1e-3)
    return float(min(40.0, np.percentile(level, 90) - np.percentile(level, 10))) - clipped


def odd_text(text: str, tokenizer: Tokenizer) -> int:
    """Counts what makes a text a poor prompt: ambiguous words and signs, a missing end."""
    odd = sum(c.isdigit() or c in "*/&@#()[]" for c in text)
    odd += sum(w.isupper() and len(w) > 1 for w in WORDS.findall(text))
    return odd + (text[-1:] not in ".!?") + ("..." in text) + len(tokenizer.unknown(text.lower()))
