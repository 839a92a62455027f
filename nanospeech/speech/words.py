"""Words: when each word, as it is written, is heard in the finished speech.

An aligned model finds the frames of each token in the mel that was made (engine.align, arXiv
2005.11129); pauses, speed and cross-fades then move them as they move the sound.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from nanospeech.errors import CheckpointError, InputError
from nanospeech.text.places import encode_places
from nanospeech.text.sentences import prepared
from nanospeech.text.tokenizer import Tokenizer
from nanospeech.text.traced import Traced, joined
from nanospeech.text.written import Written

from .chunks import CROSS_FADE, Chunk, Word
from .pauses import Paced, sounds

log = logging.getLogger("nanospeech")


class Piece(NamedTuple):
    """A piece of a stream: float32 (n,), and the words whose sound it completes."""

    wave: np.ndarray
    words: tuple[Word, ...]


class Aligned(NamedTuple):
    """Where tokens are: frames (T + 1,) between them, and the characters that they are of (T,)."""

    edges: np.ndarray
    characters: np.ndarray


def choose_aligner(engine: Any, other: Any = None) -> Any:
    """The engine that finds the words: the model itself if it is aligned, else the other, if any.

    Raises:
        CheckpointError: the other is not aligned, or has other mels.
    """
    if is_aligned(engine) or other is None:
        return engine if is_aligned(engine) else None
    if not is_aligned(other):
        raise CheckpointError(
            f"the model in {other.folder} cannot find words: it was trained with text_upsampling"
            f" {other.config.dit.text_upsampling!r}, not 'aligned'"
        )
    ours, theirs = engine.config.audio, other.config.audio
    for name in ("sample_rate", "n_fft", "hop_length", "n_mels"):
        if getattr(ours, name) != getattr(theirs, name):
            raise CheckpointError(
                f"the model in {other.folder} cannot find words in this one's speech: its {name} is"
                f" {getattr(theirs, name)}, not {getattr(ours, name)}"
            )
    return other


def is_aligned(engine: Any) -> bool:
    """Whether a model can find tokens in a mel."""
    return engine.config.dit.text_upsampling == "aligned"


def align(aligner: Any, mel_NM: np.ndarray, chunk: Chunk, paced: Paced) -> Aligned:
    """The tokens of a chunk in its mel, before its pauses are set.

    Args:
        aligner: of choose_aligner.
        mel_NM: as it was made.
        chunk: of the mel.
        paced: the mel with its pauses, and the alignment if the aligner made the mel.
    """
    if paced.ends is not None:
        return Aligned(np.concatenate([[0], paced.ends]), chunk.characters)
    text, tokenizer = Traced.of(chunk.text), aligner.tokenizer
    edge = aligner.config.dit.edge
    line = prepared(text, tokenizer).in_one_line()
    line = joined([Traced.of(edge, -len(edge)), line, Traced.of(edge, len(text))])
    ids, places = encode_places(line, tokenizer)
    try:
        ends = np.cumsum(aligner.align(mel_NM, ids))
    except InputError as e:
        log.warning("the words of %r are timed by their length alone: %s", chunk.text[:40], e)
        ends = np.linspace(0, len(mel_NM), len(ids) + 1)[1:]
    return Aligned(np.concatenate([[0], ends]), heard(ids, places, tokenizer))


def heard(ids: np.ndarray, places: np.ndarray, tokenizer: Tokenizer) -> np.ndarray:
    """The places of tokens that sound; -1 for marks and spaces."""
    loud = [sounds(token, tokenizer) for token in ids]
    return np.where(np.array(loud, bool), places, -1.0)


def frames(found: Aligned, words: Sequence[Written]) -> list[tuple[float, float] | None]:
    """First frame of each word and the one behind its last; None for one without a sound."""
    spans: list[tuple[float, float] | None] = []
    for word in words:
        inside = (found.characters >= word.start) & (found.characters < word.stop)
        tokens = np.flatnonzero(inside)
        spans.append(
            (float(found.edges[tokens[0]]), float(found.edges[tokens[-1] + 1]))
            if len(tokens)
            else None
        )
    return spans


class Timeline:
    """The words of chunks that follow each other, in seconds of the whole speech.

    Args:
        engine: that speaks.
        aligner: of choose_aligner; None finds no words.
    """

    def __init__(self, engine: Any, aligner: Any):
        self.aligner = aligner
        audio = engine.config.audio
        self.rate, self.hop = audio.sample_rate, audio.hop_length
        self.samples = 0  # of the chunks that are complete
        self.waiting: list[Word] = []
        self.cut = False  # whether the last word goes on in the next chunk

    def add(self, mel_NM: np.ndarray, chunk: Chunk, paced: Paced, index: int) -> None:
        """Takes the words of the next chunk.

        Args:
            mel_NM: of the chunk as it was made.
            paced: the same with its pauses.
            index: of the chunk.
        """
        if self.aligner is None or not chunk.words:
            return
        overlap = min(int(CROSS_FADE * self.rate), self.samples, paced.samples(self.hop))
        begin = (self.samples - overlap + paced.silence[0]) / self.rate
        spans = frames(align(self.aligner, mel_NM, chunk, paced), chunk.words)
        at = begin
        for word, span in zip(chunk.words, spans):
            start = end = at
            if span is not None:
                start = max(at, begin + self.seconds(paced.place(span[0], begins=True)))
                end = max(start, begin + self.seconds(paced.place(span[1], begins=False)))
            if self.cut:
                self.waiting[-1] = replace(self.waiting[-1], end=end)
            else:
                self.waiting.append(Word(word.text, start, end, index, word.place))
            at, self.cut = end, not word.whole

    def seconds(self, frame: float) -> float:
        """When a frame begins; its middle is at frame * hop samples."""
        return max(0.0, (frame - 0.5) * self.hop / self.rate)

    def counted(self, pieces: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
        """The pieces of the last chunk's wave."""
        samples = 0
        for piece in pieces:
            samples += len(piece)
            yield piece
        self.joined(samples)

    def joined(self, samples: int) -> None:
        """Takes the length of the last chunk's wave."""
        self.samples += samples - min(int(CROSS_FADE * self.rate), self.samples, samples)

    def take(self, samples: int, last: bool = False) -> tuple[Word, ...]:
        """The words that are complete after so many samples of the whole.

        A word that goes on in the next chunk waits for it.

        Args:
            last: no samples follow: all words that are left.
        """
        ready, count = len(self.waiting) - (self.cut and not last), 0
        while count < ready and (last or self.waiting[count].end * self.rate <= samples):
            count += 1
        taken, self.waiting = self.waiting[:count], self.waiting[count:]
        end = samples / self.rate
        return tuple(replace(w, start=min(w.start, end), end=min(w.end, end)) for w in taken)
