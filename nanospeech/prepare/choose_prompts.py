"""Prompts: chooses a clean recording of each speaker as a built-in voice. Records nothing.

    nanospeech prepare prompts data/heldout data/train --out model/voices

For each speaker of the INPUTs (as of nanospeech prepare shards) the best clip of 2 to 6 seconds:
its transcript matches, its pace and loudness are usual for the speaker, its pauses are quiet and,
with --dnsmos, its DNSMOS is high. A later INPUT is used only for speakers that earlier ones lack,
so name held-out clips first. Writes NAME.flac, NAME.txt and NAME.license.txt; sources and licences
are those of the clips' JSON, in the words of --attributions.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nanospeech.audio import wave as audio
from nanospeech.audio.recording import above_rumble, depth
from nanospeech.cli import Parser, command
from nanospeech.corpus.layouts import Sample, Skip, find
from nanospeech.corpus.mp3 import BadAudio, decode
from nanospeech.corpus.skips import nothing_usable
from nanospeech.errors import DataError, InputError, reason

LICENCES = {
    "CC BY 3.0": "https://creativecommons.org/licenses/by/3.0/",
    "CC BY 4.0": "https://creativecommons.org/licenses/by/4.0/",
    "CC0 1.0": "https://creativecommons.org/publicdomain/zero/1.0/",
}
ATTRIBUTIONS = Path(__file__).parents[1] / "corpus" / "attributions.json"
SECONDS = (2.0, 6.0)
EDGE_SILENCE = 0.08  # seconds
STOPS = (".", "。", "।", "۔", "։")  # full stops
LISTENED = 6  # candidates that are rated by DNSMOS


@dataclass(frozen=True)
class Candidate:
    """A recording considered as a prompt.

    Attributes:
        wave: float32 (n,) at 24 kHz, its ends trimmed and rumble filtered out.
        seconds: of it.
        pace: characters a second.
        level: root mean square, dB.
        depth: dB between loud and quiet parts, see depth(); noise and echo make it small.
    """

    sample: Sample
    wave: np.ndarray
    seconds: float
    pace: float
    level: float
    depth: float


def measure(sample: Sample) -> Candidate | None:
    """A candidate of a sample, or None if it cannot be one."""
    try:
        wave, _ = decode(sample.audio.read(), min_seconds=0.5, max_seconds=30)
    except BadAudio:
        return None
    wave = audio.trim(above_rumble(wave), audio.SAMPLE_RATE, EDGE_SILENCE)
    seconds = len(wave) / audio.SAMPLE_RATE
    level = float(20 * np.log10(audio.rms(wave) + 1e-6))
    return Candidate(sample, wave, seconds, len(sample.text) / seconds, level, depth(wave))


def plain(text: str) -> bool:
    """Whether a text is letters of any script, few marks and a full stop: what no reader doubts."""
    letters = (c in "' ,.-’" or unicodedata.category(c)[0] in "LM" for c in text[:-1])
    return text[-1:] in STOPS and all(letters)


def unfit(sample: Sample) -> float:
    """Penalty of a text, in dB as the others: misheard, odd, short or open-ended."""
    words = sample.text.split()
    penalty = 100.0 * float(sample.extra.get("wer") or 0)
    penalty += 20.0 * (not plain(sample.text))
    penalty += 5.0 * max(0, 5 - len(words))
    return penalty + 3.0 * sample.text.count(",")


def choose(candidates: Sequence[Candidate], dnsmos: Any = None) -> Candidate:
    """The best candidate.

    Args:
        dnsmos: metrics.dnsmos, or None to go by level, pace and noise alone.
    """
    pace = float(np.median([c.pace for c in candidates]))
    level = float(np.median([c.level for c in candidates]))
    low, high = SECONDS

    def penalty(c: Candidate) -> float:
        outside = max(low - c.seconds, c.seconds - high, 0.0)
        return (
            1000 * outside  # only where there is no other
            + unfit(c.sample)
            + 20 * abs(np.log(c.pace / pace))
            + abs(c.level - level)
            - min(c.depth, 50)
            + 2 * abs(c.seconds - 4)
        )

    ranked = sorted(candidates, key=penalty)
    if dnsmos is None:
        return ranked[0]
    best = ranked[:LISTENED]
    return min(best, key=lambda c: penalty(c) - 20 * dnsmos(c.wave)["ovrl"])


def of_each(samples: Iterable[Sample], unnamed: str) -> dict[str, list[Sample]]:
    """Samples of each speaker, without curate's copies at another speed: they are no real voice."""
    found: dict[str, list[Sample]] = {}
    for sample in samples:
        if "pace" not in sample.extra:
            found.setdefault(sample.speaker or unnamed, []).append(sample)
    return found


def by_speaker(inputs: Sequence[Path], unnamed: str) -> dict[str, list[Sample]]:
    """Samples of each speaker, all from the first input that has some."""
    found: dict[str, list[Sample]] = {}
    skips: list[Skip] = []
    for path in inputs:
        if path.is_dir() and not any(path.iterdir()):
            continue  # nothing was held out
        samples, bad = find([path])
        skips += bad
        here = of_each(samples, unnamed)
        found |= {name: samples for name, samples in here.items() if name not in found}
    if not found:
        raise nothing_usable(skips, inputs)
    return found


def read_attributions(path: Path) -> dict[str, dict[str, Any]]:
    """What is said of each source: a mapping of names to "title", "by", "license" and so on.

    Raises:
        InputError: it cannot be read.
    """
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as e:
        raise InputError(f"cannot read the attributions in {path}: {reason(e)}") from e
    if not isinstance(known, dict) or not all(isinstance(v, dict) for v in known.values()):
        raise InputError(f"{path} should map names of sources to what is said of them")
    return known


def addresses(text: str) -> list[str]:
    """Of the Creative Commons licences that a text names: these ask for it."""
    return [f"{name}: {address}" for name, address in LICENCES.items() if name in text]


def license_text(name: str, sample: Sample, known: dict[str, dict[str, Any]]) -> str:
    """The words of NAME.license.txt."""
    source = str(sample.extra.get("source") or "unknown")
    about = known.get(source, {})
    license = about.get("license") or sample.extra.get("license") or "not stated"
    lines = [f'Voice "{name}": {about.get("kind", "recording")}.']
    lines.append(
        f"Source: {about.get('title', source)}{', ' if about.get('by') else ''}"
        f"{about.get('by', '')}."
    )
    lines.append(f"Licence: {license}.")
    lines += [str(about["note"])] if about.get("note") else []
    lines.append(f"Clip: {sample.key}.")
    return "\n".join([*lines, *addresses("\n".join(lines))]) + "\n"


def file_name(speaker: str) -> str:
    """The name of a speaker's voice, of letters, digits, _ and -: Anna_Blum for Anna Blum."""
    return re.sub(r"[^\w-]+", "_", speaker)


def write_voice(
    out: Path, name: str, chosen: Candidate, known: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    """Writes the three files of a voice; returns what they are."""
    out.mkdir(parents=True, exist_ok=True)
    audio.write(out / f"{name}.flac", chosen.wave)
    (out / f"{name}.txt").write_text(chosen.sample.text + "\n", encoding="utf-8")
    words = license_text(name, chosen.sample, known)
    (out / f"{name}.license.txt").write_text(words, encoding="utf-8")
    return {"text": chosen.sample.text, "seconds": round(chosen.seconds, 2)}


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Writes the voices; returns what they are, by name."""
    known = read_attributions(args.attributions)
    dnsmos = None
    if args.dnsmos:
        from nanospeech.measure.metrics import dnsmos
    voices: dict[str, dict[str, Any]] = {}
    found = by_speaker(args.inputs, args.speaker)
    if missing := set(args.speakers) - found.keys():
        raise InputError(f"no clips of {', '.join(sorted(missing))}")
    for speaker, samples in sorted(found.items()):
        if args.speakers and speaker not in args.speakers:
            continue
        if (name := file_name(speaker)) in voices:
            raise InputError(f"two speakers would be the voice {name}; rename {speaker!r}")
        likely = sorted(samples, key=unfit)[: args.clips]
        candidates = [c for s in likely if (c := measure(s)) is not None]
        if not candidates:
            raise DataError(f"no clip of {name} can be a prompt: all {len(likely)} are unreadable")
        chosen = choose(candidates, dnsmos)
        if not SECONDS[0] <= chosen.seconds <= SECONDS[1]:
            print(f"{name}: no clip of 2 to 6 s, took {chosen.seconds:.1f} s", file=sys.stderr)
        voices[name] = write_voice(args.out, name, chosen, known)
        print(f"{name}: {chosen.seconds:.1f} s, {chosen.sample.text}")
    return voices


def build_parser() -> argparse.ArgumentParser:
    p = Parser("nanospeech prepare prompts", __doc__)
    p.add_argument("inputs", nargs="+", type=Path, metavar="INPUT", help="see prepare shards")
    p.add_argument("--out", type=Path, required=True, help="folder of voices to write")
    p.add_argument("--speakers", nargs="+", default=[], metavar="NAME", help="only these")
    p.add_argument("--speaker", default="voice", help="name of clips without one (voice)")
    p.add_argument("--clips", type=int, default=100, help="of a speaker to look at (100)")
    p.add_argument(
        "--dnsmos", action="store_true", help="rate candidates by DNSMOS too; needs speechmos"
    )
    p.add_argument(
        "--attributions",
        type=Path,
        default=ATTRIBUTIONS,
        help="JSON: of each source title, by, kind, license, note",
    )
    return p


@command
def main(argv: list[str] | None = None) -> int:
    args = build_parser().parse_args(argv)
    if args.clips < 1:
        raise InputError(f"--clips is {args.clips}; choose at least 1")
    voices = run(args)
    print(json.dumps(voices, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
