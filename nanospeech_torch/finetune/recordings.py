"""Recordings of one voice, prepared for finetuning. Trains nothing.

Rumble is filtered out, silence cut off both ends, and the level set to that of the model's training
data. Recordings beyond --minutes are kept apart, to measure with. All are written to tars below the
run's folder.
"""

from __future__ import annotations

import dataclasses
import json
import os
import random
import sys
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from nanospeech.audio import wave as audio
from nanospeech.audio.mp3 import coded
from nanospeech.audio.recording import CLIPPING, above_rumble, clipping
from nanospeech.config import ModelConfig
from nanospeech.corpus.layouts import Sample, Skip, Source, find, read_text
from nanospeech.corpus.mp3 import BadAudio, decode
from nanospeech.corpus.skips import nothing_usable
from nanospeech.corpus.written_out import written_out
from nanospeech.errors import DataError, InputError
from nanospeech.files import whole_folder, write_json
from nanospeech.prepare.shards import ShardWriter
from nanospeech.release.prompt import BYTES_PER_SECOND
from nanospeech.text.sentences import byte_length, fit, prepare
from nanospeech.text.tags import unknown_tags as tags_of
from nanospeech.text.tokenizer import Tokenizer

EDGE_SILENCE = 0.08  # seconds kept at both ends
SHORTEST = 0.1  # seconds of a recording, in which nobody says anything
HELD, MOST_HELD = (1.5, 12.0), 6  # seconds and number of recordings that are held back


@dataclasses.dataclass(frozen=True)
class Recording:
    """One recording of a prepared tar."""

    key: str
    audio: Source
    text: str
    seconds: float
    speaker: str | None = None
    language: str | None = None

    def wave(self) -> np.ndarray:
        """float32 (n,) at 24 kHz."""
        return audio.read(self.audio.read())

    def as_prompt(self) -> np.ndarray:
        """The same without rumble, which a prompt that was chosen by hand may have."""
        return above_rumble(self.wave())


class Recordings:
    """The trainer's dataset: recordings in an order that the epoch decides.

    Args:
        recordings: of the voice.
        others: recordings of other voices, mixed in up to `share` of the time.
        share: of the others, 0 up to 1.
        seed: of the order.
    """

    def __init__(
        self,
        recordings: Sequence[Recording],
        others: Sequence[Recording] = (),
        share: float = 0.0,
        seed: int = 0,
    ):
        self.recordings, self.share = list(recordings), share
        # random draws and cached mels go by key: no two recordings may share one
        self.others = [dataclasses.replace(r, key=f"other_{r.key}") for r in others]
        self.seed, self.epoch = seed, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def chosen(self) -> list[Recording]:
        """This epoch's recordings, shuffled."""
        rng = random.Random(f"{self.seed} {self.epoch}")
        chosen, others = list(self.recordings), list(self.others)
        rng.shuffle(others)
        wanted = sum(r.seconds for r in chosen) * self.share / (1 - self.share)
        for other in others:
            if wanted <= 0:
                break
            chosen.append(other)
            wanted -= other.seconds
        rng.shuffle(chosen)
        return chosen

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for r in self.chosen():
            meta: dict[str, Any] = {"text": r.text, "duration": r.seconds}
            if r.speaker is not None:
                meta["speaker"] = r.speaker
            yield {"__key__": r.key, "flac": r.audio.read(), "json": meta}


def find_samples(inputs: Sequence[Path]) -> tuple[list[Sample], list[Skip]]:
    """Recordings with their words, in any layout that nanospeech prepare reads.

    Raises:
        InputError: an input is missing, or its layout is not recognised.
        DataError: there are no recordings in them.
    """
    samples, skips = find(inputs)
    if not samples:
        raise nothing_usable(skips, inputs)
    return samples, skips


def in_their_languages(
    samples: Iterable[Sample], tokenizer: Tokenizer
) -> tuple[list[Sample], list[Skip]]:
    """Recordings with their texts written out, and those that name no code of a language."""
    found, skips = [], []
    for sample in samples:
        try:
            found.append(written_out(sample, tokenizer))
        except InputError as e:
            skips.append(Skip(sample.name, "invalid language or text", str(e)))
    return found, skips


def warn_of_speakers(samples: Iterable[Sample]) -> None:
    """Warns where the recordings of one voice name several speakers."""
    speakers = Counter(s.speaker for s in samples if s.speaker is not None)
    if len(speakers) > 1:
        most = [f"{name} ({n} recordings)" for name, n in speakers.most_common(4)]
        more = ["…"] if len(speakers) > len(most) else []
        print(
            f"warning: the recordings are of {len(speakers)} speakers, {', '.join(most + more)};"
            " a voice is of one: give those of one alone, as nanospeech prepare curate"
            " --speakers NAME writes them",
            file=sys.stderr,
        )


def listed(samples: Iterable[Sample]) -> dict[str, list]:
    """What tells samples from others without opening them: their sizes and texts, by name."""
    found = {}
    for s in samples:
        size = s.audio.size if s.audio.size >= 0 else s.audio.path.stat().st_size
        found[s.name] = [size, s.text]
    return found


def keep_list(samples: Iterable[Sample], out: Path) -> None:
    """Writes out/found.json, for warn_of_changes."""
    write_json(out / "found.json", listed(samples))


def warn_of_changes(inputs: Sequence[Path], out: Path) -> None:
    """Warns where the inputs are others than when out was written; says nothing if they are gone.

    Args:
        inputs: folders, manifests or tars.
        out: a folder of write_voice; one of an older version has no list to compare.
    """
    path = out / "found.json"
    if not path.is_file() or int(os.environ.get("RANK", 0)):
        return
    old = json.loads(path.read_text(encoding="utf-8"))
    try:
        new = listed(find(inputs)[0])
    except (InputError, DataError, OSError):
        return
    added, gone = len(new.keys() - old.keys()), len(old.keys() - new.keys())
    changed = sum(old[name] != new[name] for name in old.keys() & new.keys())
    if added or gone or changed:
        print(
            f"warning: since this run began, of the recordings {added} came, {gone} went and"
            f" {changed} changed; it goes on with those of then. To train on those of now,"
            " choose another --run",
            file=sys.stderr,
        )


def write_voice(
    samples: Sequence[Sample],
    out: Path,
    config: ModelConfig,
    minutes: float | None,
    speaker: str | None,
    seed: int = 0,
    held_back: int = 0,
    longest: float = float("inf"),
) -> list[Skip]:
    """Writes out/voice-*.tar to train on, out/held-*.tar to measure with, and out/rest-*.tar.

    Held are recordings of a sentence or two; the rest are those beyond `minutes`.

    Args:
        samples: recordings.
        config: of the model, for the level.
        minutes: of speech to train on; None takes all.
        speaker: of all of them; None keeps the speakers of the samples.
        seed: of the order of the recordings.
        held_back: number of recordings to measure with.
        longest: seconds; longer ones would take their share of `minutes` and never be trained on.

    Returns:
        The recordings that cannot be used. Clipped ones, and those whose texts are too short or
        too long for them, are used, with a warning.

    Raises:
        DataError: nothing can be used.
    """
    samples, skips, seconds, clipped, odd = list(samples), [], 0.0, [], []
    random.Random(seed).shuffle(samples)
    left = 60 * minutes if minutes is not None else float("inf")
    with (
        whole_folder(out) as part,
        ShardWriter(part, "voice", 10_000) as voice,
        ShardWriter(part, "rest", 10_000) as rest,
        ShardWriter(part, "held", 10_000) as held,
    ):
        for sample in tqdm(samples, "recordings", unit=" files", disable=None):
            opened = open_recording(sample)
            if isinstance(opened, Skip):
                skips.append(opened)
                continue
            wave, share = opened
            if share > CLIPPING:
                clipped.append((share, sample.name))
            wave = above_rumble(audio.centred(wave))
            if audio.is_silent(wave):
                skips.append(Skip(sample.name, "silent", "nothing but rumble"))
                continue
            wave = audio.trim(wave, audio.SAMPLE_RATE, EDGE_SILENCE)
            if (spoken := len(wave) / audio.SAMPLE_RATE) > longest:
                how = f"{spoken:.1f} s: cut it into sentences, or raise --max-seconds {longest:g}"
                skips.append(Skip(sample.name, "too long", how))
                continue
            wave, _ = audio.set_level(wave, config.audio.prompt_rms)
            wave = audio.unclipped(wave)
            if config.prompt_codec is not None:  # as prompts are
                wave = coded(wave)
            duration = round(len(wave) / audio.SAMPLE_RATE, 4)
            rate = byte_length(sample.text) / duration
            if not BYTES_PER_SECOND[0] <= rate <= BYTES_PER_SECOND[1]:
                odd.append(f"{sample.name} ({len(sample.text)} characters in {duration:.1f} s)")
            meta = {"text": sample.text, "duration": duration, "speaker": speaker or sample.speaker}
            meta["language"] = sample.extra.get("language") or None
            if held_back and HELD[0] <= duration <= HELD[1] and len(sample.text.split()) > 3:
                writer, held_back = held, held_back - 1
            else:
                writer = voice if left > 0 else rest
                left, seconds = left - duration, seconds + duration
            meta_bytes = json.dumps(meta, ensure_ascii=False).encode()
            writer.add(sample.key, {"flac": audio.flac_bytes(wave), "json": meta_bytes})
        if not seconds and (held.paths or held.count):
            raise InputError("all recordings are held back; choose a smaller --held-back")
        if not seconds:
            raise nothing_usable(skips, [out])
    if clipped:
        warn_of_clipping(clipped, len(samples))
    if odd:
        print(
            f"warning: the texts of {len(odd)} of {len(samples)} recordings do not go with their"
            f" lengths, for example {', '.join(odd[:3])}: write down all that is said, and no more,"
            " or leave them out",
            file=sys.stderr,
        )
    return skips


def open_recording(sample: Sample) -> tuple[np.ndarray, float] | Skip:
    """A recording's wave, float32 (n,) at SAMPLE_RATE, and the share of its samples that clip."""
    try:
        content = sample.audio.read()
        return decode(content, SHORTEST)[0], clipping(content)
    except BadAudio as e:
        return Skip(sample.name, *e.args)


def warn_of_clipping(clipped: Sequence[tuple[float, str]], count: int) -> None:
    """Warns of recordings that clip: their shares and names, of so many recordings."""
    share, name = max(clipped)
    print(
        f"warning: {len(clipped)} of {count} recordings are clipped, which will be heard"
        f" in the voice; {100 * share:.2f} % of the samples of {name}: record them again at a"
        " lower level, or leave them out",
        file=sys.stderr,
    )


def held_back_count(asked: int | None, count: int) -> int:
    """The number of recordings, of `count`, that are held back to measure with.

    Args:
        asked: number that the user wants; None takes an eighth, at most 6, and none below 16.
    """
    if asked is not None:
        return asked
    return min(MOST_HELD, count // 8) if count >= 2 * 8 else 0


def read_recordings(tars: Iterable[Path]) -> list[Recording]:
    """The recordings of prepared tars, without reading any audio."""
    found: dict[str, dict[str, Any]] = {}
    for path in tars:
        with tarfile.open(path, "r:") as tar:
            for member in tar:
                key, _, suffix = member.name.partition(".")
                source = Source(path, member.offset_data, member.size)
                found.setdefault(key, {})[suffix] = source
    recordings = []
    for key, parts in found.items():
        meta = json.loads(parts["json"].read())
        about = meta["text"], meta["duration"], meta["speaker"], meta.get("language")
        recordings.append(Recording(key, parts["flac"], *about))
    return recordings


def unknown_characters(texts: Iterable[str], tokenizer: Tokenizer) -> dict[str, int]:
    """Letters and digits that a model has no token for, not even a near one, with their counts."""
    counts: Counter = Counter()
    for text in texts:
        prepared = prepare(text, tokenizer)
        lost = fit(prepared, tokenizer)[1]
        counts.update(c for c in prepared if c in lost)
    return dict(counts.most_common())


def missing_characters(texts: Iterable[str], tokenizer: Tokenizer) -> list[str]:
    """Letters, marks and digits that a vocabulary lacks, and can be extended by."""
    texts = [prepare(text, tokenizer) for text in texts]
    found = {c for text in texts for c in tokenizer.unknown(text) if len(c) == 1}
    return sorted(c for c in found if c.isalnum() or not c.isascii())


def check_tags(texts: Sequence[str], tags: Sequence[str], tokenizer: Tokenizer) -> None:
    """
    Raises:
        InputError: a tag to learn is in no transcript, or one in the transcripts is not learned.
    """
    for tag in tags:
        if not any(tag in text for text in texts):
            raise InputError(
                f"no transcript has {tag}; write it where the sound is, see prepare tags"
            )
    if unknown := tags_of(" ".join(texts), tokenizer.ids):
        names = " ".join(tag.strip("<>") for tag in unknown)
        raise InputError(
            f"the transcripts have {', '.join(unknown)}, which the model does not know; teach it by"
            f" --tags {names}, or leave it out of them"
        )


def utf8(path: Path) -> str:
    """The text of a file.

    Raises:
        InputError: it cannot be read, or is not UTF-8.
    """
    if isinstance(text := read_text(path, str(path)), Skip):
        raise InputError(f"cannot read {path}: {text.detail}")
    return text
