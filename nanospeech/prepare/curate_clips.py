"""Curate's clips: opened, evened, heard and written to their side, or why they are left out."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from nanospeech.audio import wave as audio
from nanospeech.audio.mp3 import encode
from nanospeech.audio.recording import RUMBLES, above_rumble
from nanospeech.corpus.held_out import is_held_out
from nanospeech.corpus.layouts import Sample, Skip
from nanospeech.corpus.mp3 import BadAudio, decode
from nanospeech.errors import InputError, require

from .curate_copies import Copy, make_copies
from .curate_report import SIDES, Speakers
from .portions import Known, Row
from .recogniser import Recogniser, language_of, misheard
from .shards import ShardOptions, ShardWriter, describe

EDGE_SILENCE = 0.08  # seconds of silence left at trimmed ends
NEAR = 1.5  # dB of error in level, and
SLACK = 0.1  # seconds of extra silence, up to which an MP3 is not encoded again


@dataclass(frozen=True)
class CurateOptions:
    """What is kept, and what is held out."""

    held_out: int = field(default=25, metadata={"help": "hold out one clip in so many; 0: none"})
    max_wer: float = field(
        default=0.5, metadata={"help": "drop clips with a higher word error rate"}
    )
    min_seconds: float = field(default=0.5, metadata={"help": "drop shorter clips"})
    max_seconds: float = field(default=20.0, metadata={"help": "drop longer clips"})
    max_hours: float | None = field(default=None, metadata={"help": "of each speaker to train on"})
    level: float | None = field(
        default=None, metadata={"help": "bring clips to this RMS and trim their ends; try 0.07"}
    )
    denoise: float | None = field(
        default=None, metadata={"help": "remove this share of steady noise; try 0.7"}
    )
    rumble: float = field(
        default=RUMBLES,
        metadata={
            "help": "filter out what is below all voices where it is louder than so many dB, "
            "relative to the clip; 0 keeps it"
        },
    )
    vary: tuple[float, ...] = field(
        default=(),
        metadata={"help": "add copies of each clip at speeds that differ by these shares"},
    )
    without: tuple[str, ...] = field(
        default=(), metadata={"help": "never these speakers: those that it is to be measured on"}
    )
    speaker: str | None = field(default=None, metadata={"help": "name of clips without one"})
    language: str | None = field(
        default=None,
        metadata={
            "help": "of clips that name none, such as de: what Whisper listens for (English), and "
            "written beside text"
        },
    )
    size: int = field(default=1000, metadata={"help": "clips a shard"})
    seed: int = field(default=0, metadata={"help": "of the order of the clips"})

    def __post_init__(self):
        if self.held_out < 0:
            raise InputError(f"--held-out is {self.held_out}; choose 0 (none) or more")
        if not self.max_wer >= 0:
            raise InputError(f"--max-wer is {self.max_wer}; 0.5 is half of the words")
        if self.max_hours is not None and not self.max_hours > 0:
            raise InputError(f"--max-hours is {self.max_hours}; choose more than 0")
        if self.level is not None and not 0 < self.level < 0.5:
            raise InputError(f"--level is {self.level}; speech is around 0.07")
        if self.denoise is not None and not 0 < self.denoise <= 1:
            raise InputError(f"--denoise is {self.denoise}; choose up to 1, best 0.7")
        if not self.rumble <= 0:
            raise InputError(f"--rumble is {self.rumble}; choose 0 (keep it) or less")
        if wrong := [v for v in self.vary if not 0 < v <= 0.5]:
            raise InputError(f"--vary is {wrong[0]}; choose up to 0.5, best 0.1")
        if len(set(self.vary)) < len(self.vary):
            raise InputError(f"--vary names a share twice: {', '.join(map(str, self.vary))}")
        self.shards()  # checks the rest

    def shards(self) -> ShardOptions:
        """The options of shards.py that do the same."""
        low, high = self.min_seconds, self.max_seconds
        options = ShardOptions(self.size, self.seed, low, high, self.speaker)
        return replace(options, language=self.language)


@dataclass(frozen=True)
class Clip:
    """A sample that was opened: its MP3, and its transcript, if there is one."""

    sample: Sample
    data: bytes
    seconds: float
    heard: str | None
    fresh: bool  # heard just now
    copies: tuple[Copy, ...] = ()  # to train on


def examine(
    item: tuple[Sample, dict[int, str]],
    options: CurateOptions,
    load: Callable[[], Recogniser] | None = None,
) -> Clip | Skip:
    """Opens a sample, and transcribes it unless that was done.

    Args:
        item: the sample, and earlier transcripts under its key, by the CRC-32 of the MP3 that was
            made of it, or of its file as it was (prepare hear).
        load: returns the recogniser; None: no transcripts.
    """
    sample, known = item
    try:
        data = raw = sample.audio.read()
        wave, ready = decode(data, options.min_seconds, options.max_seconds)
    except BadAudio as e:
        return Skip(sample.name, *e.args)
    if options.denoise is not None:
        ready, wave = False, denoise(wave, options.denoise)
    if (clear := above_rumble(wave, options.rumble)) is not wave:
        if audio.is_silent(clear):
            return Skip(sample.name, "silent", "nothing but rumble")
        ready, wave = False, audio.unclipped(clear)
    if options.level is not None:
        evened = even(wave, options.level)
        ready, wave = ready and evened is None, wave if evened is None else evened
    data = data if ready else encode(wave)
    heard = known.get(zlib.crc32(data))
    if heard is None and data is not raw and options.denoise is None and options.level is None:
        heard = known.get(zlib.crc32(raw))
    fresh = False
    if heard is None and load is not None:
        heard, fresh = load()(audio.read(data), language_of(sample, options.language)), True
    clip = Clip(sample, data, len(wave) / audio.SAMPLE_RATE, heard, fresh)
    if is_held_out(sample.key, options.held_out):
        return clip
    return replace(clip, copies=make_copies(sample.key, wave, options.vary))


def denoise(wave: np.ndarray, share: float) -> np.ndarray:
    """Removes steady noise from a wave by spectral gating (Sainburg: noisereduce).

    Args:
        wave: float32 (n,) at 24 kHz.
        share: of the noise that is removed. Removing all damages speech: kathleen's hiss costs 0.2
            of DNSMOS OVRL, 0.7 restores that, 0.95 loses more than it gains.
    """
    reduce = require("noisereduce", "denoise").reduce_noise
    return reduce(wave, audio.SAMPLE_RATE, stationary=True, prop_decrease=share).astype(np.float32)


def even(wave: np.ndarray, level: float) -> np.ndarray | None:
    """A wave with its ends trimmed and its loudness brought to a level; None if it is so already.

    Args:
        wave: float32 (n,) at 24 kHz.
        level: its root mean square.
    """
    trimmed = audio.trim(wave, audio.SAMPLE_RATE, EDGE_SILENCE)
    changed, gain = audio.set_level(trimmed, level)
    over = audio.overshoot(changed)
    changed, gain = changed / over, gain / over  # softer, rather than clipped
    off = abs(20 * np.log10(gain))
    longer = (len(wave) - len(trimmed)) / audio.SAMPLE_RATE
    return changed if off > NEAR or longer > 2 * SLACK else None


def check_words(clip: Clip, options: CurateOptions) -> Skip | dict[str, float]:
    """Fields to add to the clip's JSON, or why it is dropped."""
    if clip.heard is None:
        return {}
    language = language_of(clip.sample, options.language)
    share = misheard(clip.sample.text, clip.heard, language)
    if share > options.max_wer:
        detail = f"{share:.2f}: said {clip.sample.text!r}, heard {clip.heard!r}"
        return Skip(clip.sample.name, "misheard", detail)
    return {"wer": round(share, 4)}


def store(
    clip: Clip, writers: Mapping[str, ShardWriter], people: Speakers, options: CurateOptions
) -> Skip | None:
    """Writes a clip to its side, with its copies to train on, or returns why it is dropped."""
    sample = clip.sample
    side = "heldout" if is_held_out(sample.key, options.held_out) else "train"
    if side == "train" and people.full(sample):
        return Skip(sample.name, "enough of this speaker")
    more = check_words(clip, options)
    if isinstance(more, Skip):
        return more
    labelled = replace(sample, extra=sample.extra | more)
    meta = describe(labelled, clip.seconds, options.shards())
    writers[side].add(sample.key, {"mp3": clip.data, "json": meta})
    people.keep(sample, clip.seconds, side)
    for copy in clip.copies:
        other = copy.sample(labelled, people.name(sample))
        meta = describe(other, clip.seconds / copy.pace, options.shards())
        writers[side].add(f"{sample.key}-{copy.name}", {"mp3": copy.data, "json": meta})
    return None


def curate_portion(
    samples: list[Sample],
    known: Known,
    folder: Path,
    stem: str,
    options: CurateOptions,
    load: Callable[[], Recogniser] | None,
) -> tuple[dict[str, list[str]], list[Row]]:
    """A portion (portions.py) as a shard of each side. --max-hours is left to who joins them.

    Args:
        load: returns the recogniser; None: no transcripts.

    Returns:
        The shards' names by side. Rows with "side" and "seconds", or "reason" and "detail" of what
        was left out; and "heard", the CRC-32 and the transcript of what was heard just now.
    """
    people, rows = Speakers(unnamed=options.speaker), []
    with ExitStack() as stack:
        writers = {
            side: stack.enter_context(ShardWriter(folder, f"{stem}-{side}", sys.maxsize))
            for side in SIDES
        }
        for sample in samples:
            row: Row = {}
            result = examine((sample, dict(known.get(sample.key, {}))), options, load)
            if isinstance(result, Clip):
                if result.fresh:
                    row["heard"] = [zlib.crc32(result.data), result.heard]
                row["side"] = "heldout" if is_held_out(sample.key, options.held_out) else "train"
                row["seconds"] = result.seconds
                row["copies"] = [f"{sample.key}-{copy.name}" for copy in result.copies]
                result = store(result, writers, people, options)
            if result is not None:
                row |= {"reason": result.reason, "detail": result.detail}
            rows.append(row)
    return {side: [p.name for p in writer.paths] for side, writer in writers.items()}, rows
