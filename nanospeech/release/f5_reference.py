"""F5 reference: a recording made ready as F5-TTS does it, for checkpoints of its layout.

What F5-TTS leaves out is the text of what it cuts off a long recording; here the text is cut too.
"""

from __future__ import annotations

import logging
import math
import re

import numpy as np

from nanospeech.audio import wave as audio

log = logging.getLogger("nanospeech")
LONGEST = 12.0  # seconds of a reference
FIRST_CUT = 6.0  # seconds before which it is not cut at a silence
SILENCES = ((1.0, -50.0), (0.1, -40.0))  # seconds and dB of full scale: long ones, else short ones
EDGE_DB = -42.0  # of full scale: what is below it at the ends is cut off
TAIL = 0.05  # seconds of silence that are added
BLOCK = 0.01  # seconds
SHORT_BYTES, SHORT_SPEED = 10, 0.3  # texts of fewer bytes, and how fast they are spoken
NEAR = 0.15  # share of a text by which a cut at a mark may be off the estimate
MARKS = re.compile(r"[.!?;:,。！？；：，、…]+[\"'”’)\]]*(?=\s|$)|[。！？；：，、]")


def f5_reference(wave: np.ndarray, text: str, rate: int) -> tuple[np.ndarray, str]:
    """Trims a recording, cuts it at a silence before 12 s, and ends it with 50 ms of silence.

    Args:
        wave: float32 (n,), not silent.
        text: what is said in it.

    Returns:
        The recording and its text; of a recording that was cut, the text of about its part, which
        is warned of.
    """
    wave = without_edges(wave, rate)
    if (end := cut_at_silence(wave, rate)) < len(wave):
        heard = sounding(wave, rate)  # 0: all of it is quieter than a sound has to be
        share = sounding(wave[:end], rate) / heard if heard else end / len(wave)
        kept = first_part(text, share)
        log.warning(
            "the reference lasts %.1f s and was cut at %.1f s; its text was cut to %r, by its"
            " length alone: give a recording of up to %g s with just its words, or keep it as a"
            " voice (nanospeech voices add), which listens to it",
            len(wave) / rate,
            end / rate,
            kept,
            LONGEST,
        )
        wave, text = without_edges(wave[:end], rate), kept
    return np.pad(wave, (0, int(TAIL * rate))), text


def f5_text(text: str) -> str:
    """A reference's text as F5-TTS ends it, so that the new text is set off: ".  " or "。".

    Of the two spaces one is added to every text that ends in a character of a byte; both count in
    lengths.
    """
    text = text.strip()
    if text.endswith("。"):
        return text
    return f"{text}  " if text.endswith(".") else f"{text}.  "


def block_db(wave: np.ndarray, rate: int) -> np.ndarray:
    """Level of each whole 10 ms in dB of full scale."""
    size = max(1, int(BLOCK * rate))
    blocks = wave[: len(wave) // size * size].reshape(-1, size)
    return 10 * np.log10(np.mean(np.square(blocks, dtype=np.float64), axis=1) + 1e-12)


def without_edges(wave: np.ndarray, rate: int) -> np.ndarray:
    """A recording from its first to its last sound above EDGE_DB; one without any as it is."""
    loud = np.flatnonzero(block_db(wave, rate) > EDGE_DB)
    if not len(loud):
        return audio.trim(wave, rate)
    size = max(1, int(BLOCK * rate))
    stop = len(wave) if len(wave) - (loud[-1] + 1) * size < size else (loud[-1] + 1) * size
    return wave[loud[0] * size : stop]


def cut_at_silence(wave: np.ndarray, rate: int) -> int:
    """Samples of a recording to keep: up to the last silence that begins after 6 s and before 12.

    A recording of up to 12 s is kept whole; one without a silence is cut at 12 s.
    """
    if len(wave) <= LONGEST * rate:
        return len(wave)
    level = block_db(wave, rate)
    for seconds, db in SILENCES:
        edges = np.diff(np.concatenate([[0], (level < db).astype(np.int8), [0]]))
        starts, stops = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
        fits = (stops - starts) * BLOCK >= seconds - BLOCK / 2
        fits &= (starts * BLOCK >= FIRST_CUT) & (starts * BLOCK <= LONGEST)
        if fits.any():
            return int(starts[fits][-1] * BLOCK * rate)
    return int(LONGEST * rate)


def sounding(wave: np.ndarray, rate: int) -> int:
    """How many 10 ms of a recording are above EDGE_DB."""
    return int((block_db(wave, rate) > EDGE_DB).sum())


def first_part(text: str, share: float) -> str:
    """The beginning of a text: a share of its bytes, cut at a mark near there, or after a word."""
    text = " ".join(text.split())
    size = len(text.encode())

    def miss(end: int) -> float:
        return abs(len(text[:end].encode()) / max(size, 1) - share)

    marks = [m.end() for m in MARKS.finditer(text)]
    words = [m.start() for m in re.finditer(r" |$", text)]
    best = min(marks, key=miss, default=None)
    if best is None or miss(best) > NEAR:
        best = min(words, key=miss, default=len(text))
    return text[:best] or text


def f5_frames(
    prompt_frames: int, prompt_bytes: int, tokens: int, text_bytes: int, speed: float = 1.0
) -> int:
    """Mel frames of new speech: the prompt's pace in bytes, very short texts slowly.

    Args:
        prompt_frames: of the prompt's mel, one more than its samples hold hops.
        prompt_bytes: of its text.
        tokens: of the prompt's and the new text together.
        text_bytes: of the new text.
    """
    hops = prompt_frames - 1
    pace = speed * (SHORT_SPEED if text_bytes < SHORT_BYTES else 1)
    total = hops + math.floor(hops / max(prompt_bytes, 1) * text_bytes / pace)
    return max(total, max(tokens, prompt_frames) + 1) - prompt_frames
