"""Passages: a chapter's text cut into what is spoken, kept and found again one by one."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nanospeech.text.headings import LONGEST
from nanospeech.text.markup import voice_spans
from nanospeech.text.pauses import pause_after
from nanospeech.text.sentences import byte_length, is_speakable, pack

LAYOUT = 1  # of the files that are kept; a change here makes all passages anew
BUDGET = 600  # bytes of a passage: about 40 seconds of English
MOST = 900  # bytes of a paragraph that is not cut
BLANK = re.compile(r"\n[^\S\n]*\n\s*")
EDGE = 1 << 20  # bytes at both ends of a file of weights that stand for it


@dataclass(frozen=True)
class Passage:
    """A few paragraphs, or a part of a long one.

    Attributes:
        text: what to say.
        after: kind of the pause behind it, of output.PAUSES; "" within a clause.
        voice: its name; "" for the book's.
    """

    text: str
    after: str
    voice: str = ""


def cut_passages(text: str, budget: int = BUDGET, most: int = MOST) -> list[Passage]:
    """Cuts a chapter between paragraphs; a paragraph of more than `most` bytes between sentences.

    A heading stays with what follows it. Passages without a letter or a digit are left out. What
    stands between [voice: NAME] and [/voice] is a passage of that voice.

    Raises:
        InputError: a voice that is opened is not closed, or the other way round.
    """
    found: list[Passage] = []
    for span in voice_spans(text):
        said = span.written.text
        last = pause_after(BLANK.sub("\n\n", said))
        own = own_passages(said, last, budget, most)
        found += [dataclasses.replace(passage, voice=span.style.voice or "") for passage in own]
    if found:  # the chapter ends
        found[-1] = dataclasses.replace(found[-1], after="paragraph")
    return found


def own_passages(text: str, last: str, budget: int, most: int) -> list[Passage]:
    """cut_passages of a text of one voice, with the pause that is due behind it."""
    found: list[Passage] = []
    held: list[str] = []
    for block in filter(None, (b.strip() for b in BLANK.split(text))):
        if held and byte_length(between(held)) + byte_length(block) > budget:
            count = len(held)  # of paragraphs before the headings that this block is under
            while count and is_heading(held[count - 1]):
                count -= 1
            if count:
                found.append(Passage(between(held[:count]), "paragraph"))
            held = held[count:]
        parts = pack(block, budget) if byte_length(block) > most else [block]
        for part in parts[:-1]:
            found.append(Passage(between([*held, part.strip()]), "sentence"))
            held = []
        held.append(parts[-1].strip())
    if held:
        found.append(Passage(between(held), last))
    return [passage for passage in found if is_speakable(passage.text)]


def between(paragraphs: list[str]) -> str:
    """Paragraphs with blank lines between them."""
    return "\n\n".join(paragraphs)


def is_heading(block: str) -> bool:
    """Whether a paragraph is a heading, or as short as one and without a mark at its end."""
    return block.startswith("#") or (
        "\n" not in block and len(block) <= LONGEST and block[-1:].isalnum()
    )


def speaker_facts(speaker: Any) -> dict[str, Any]:
    """What speech depends on beside its text: the voice, the model, words and all settings.

    Args:
        speaker: a nanospeech.Speaker.
    """
    lexicon = speaker.tokenizer.lexicon
    prompt = hashlib.sha256(speaker.prompt.mel.tobytes() + speaker.prompt.tokens.tobytes())
    return {
        "layout": LAYOUT,
        "model": model_digest(speaker.engine.folder),
        "prompt": prompt.hexdigest(),
        "voice": dataclasses.asdict(speaker.prompt.settings),
        "options": dataclasses.asdict(speaker.options),
        "output": dataclasses.asdict(speaker.output),
        "speed": speaker.speed,
        "durations": speaker.durations,
        "chunk_seconds": speaker.chunk_seconds,
        "seed": speaker.seed,
        "language": speaker.tokenizer.language,
        "lexicon": {word: e.tokens for word, e in lexicon.entries.items()} if lexicon else {},
    }


def model_digest(folder: str | Path | None) -> str:
    """A digest of a release folder: its configs and words whole, the ends of its weights."""
    digest = hashlib.sha256()
    files = sorted(Path(folder).rglob("*")) if folder is not None else []
    for path in files:
        if path.suffix not in (".json", ".txt", ".safetensors") or not path.is_file():
            continue
        size = path.stat().st_size
        digest.update(f"{path.name} {size}\n".encode())
        with path.open("rb") as f:
            digest.update(f.read(EDGE))
            if size > EDGE:
                f.seek(max(EDGE, size - EDGE))
                digest.update(f.read(EDGE))
    return digest.hexdigest()


def key(text: str, facts: dict[str, Any]) -> str:
    """The name under which a passage is kept: the same for the same words, voice and settings."""
    said = json.dumps([text, facts], sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()[:32]
