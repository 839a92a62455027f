"""Durations: errors of predicted durations, on recordings that nothing was trained on.

    nanospeech evaluate durations --shards 'data/heldout/*.tar' --held-out 0 --model FOLDER \\
        --out durations
    nanospeech evaluate durations --shards 'anna/*.tar' --model FOLDER --own '*=anna' \\
        --out durations

The prompt of each clip is another clip of its speaker. The length that nanospeech speak would
give the clip's text is predicted, by each choice of --duration that the model has, and compared
with the recording's: rule (the prompt's bytes a second), tokens (an aligned model's own durations),
model (the folder's duration model) and both (their geometric mean). Nothing is spoken. Silence
before a recording's first sound is not counted, as a prompt ends in silence already.

With --own jf_nezumi=nezumi a built-in voice is the prompt for that speaker's clips, with the
voice's weights and pace, at its speaker's own speed. --own '*=anna' does so for all clips.
--set-pace measures the paces of these voices and writes them to voices/NAME.json; use it on the
recordings that the voices were trained on.

Used are clips whose keys have a CRC-32 divisible by --held-out, those that nanospeech prepare
curate holds out. With --whisper, clips of which a recogniser gets more than half the words wrong
are left out, as curate does. Writes durations.csv, durations.json, durations.png and table.md to
--out, and the table into the page --doc between its two markers. The last line is the JSON
document.
"""

from __future__ import annotations

import argparse
import glob
import json
import sys
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from nanospeech.audio import wave as audio
from nanospeech.cli import Parser, command, say
from nanospeech.corpus.held_out import is_held_out
from nanospeech.corpus.layouts import find
from nanospeech.corpus.mp3 import BadAudio, decode
from nanospeech.errors import DataError, InputError
from nanospeech.files import write_json
from nanospeech.locks import alone
from nanospeech.prepare.curate_clips import CurateOptions
from nanospeech.prepare.recogniser import Heard, language_of, misheard, whisper
from nanospeech.release.folder import Release, open_release
from nanospeech.release.voices import PACES, Voice, find_voice
from nanospeech.speech.network import check_itself
from nanospeech.text.sentences import encode, prepare

from .durations_report import MARKERS, Row, like_rule, summarize, tell_worst, write_report
from .pages import around

ANYBODY = "*"


@dataclass(frozen=True)
class Clip:
    """A recording and its words."""

    key: str
    text: str
    speaker: str
    wave: np.ndarray
    language: str = "en"

    @property
    def seconds(self) -> float:
        return len(self.wave) / audio.SAMPLE_RATE

    @property
    def speech_seconds(self) -> float:
        """Seconds from the first sound on."""
        return self.seconds - audio.loud_span(self.wave)[0] / audio.SAMPLE_RATE


def read_clips(
    shards: Sequence[str], one_in: int, unusable: list[str], language: str = ""
) -> Iterator[Clip]:
    """The held-out clips of WebDataset tars.

    Args:
        shards: paths or globs.
        one_in: clips count whose key's CRC-32 is divisible by this; 0: all.
        unusable: gets a line for each clip that cannot be decoded, or in which nothing is heard.
        language: of clips that name none.

    Raises:
        InputError: there are no such files, or one cannot be read.
    """
    paths = sorted(Path(p) for pattern in shards for p in glob.glob(pattern))
    if not paths:
        raise InputError(f"no shards at {', '.join(shards)}")
    for sample in find(paths, "webdataset")[0]:
        if not one_in or is_held_out(sample.key, one_in):
            try:
                wave, _ = decode(sample.audio.read())
                spoken = language_of(sample, language)
            except (BadAudio, InputError) as e:
                unusable.append(f"{sample.key}: {e}")
                continue
            yield Clip(sample.key, sample.text, sample.speaker or "", wave, spoken)


def audible(clips: list[Clip], recogniser: str, out: Path) -> tuple[list[Clip], list[str]]:
    """The clips whose words a recogniser finds, and the keys of the others.

    What it heard is kept in out/heard.csv, by recogniser and sound, and not heard again.
    """
    found: dict[str, str] = {}
    with Heard(out / "heard.csv", recogniser, {c.key: c.language for c in clips}) as heard:
        for clip in tqdm(clips, "listening", unit="clip", leave=False):
            crc = zlib.crc32(clip.wave.tobytes())
            if (known := heard.known.get(clip.key, {}).get(crc)) is None:
                known = whisper(recogniser)(clip.wave, clip.language)
                heard.add_crc(clip.key, crc, clip.text, known)
            found[clip.key] = known
    limit = CurateOptions().max_wer
    bad = [c.key for c in clips if misheard(c.text, found[c.key], c.language) > limit]
    return [c for c in clips if c.key not in bad], bad


def pairs(clips: list[Clip], lengths: tuple[float, float], each: int) -> list[tuple[Clip, Clip]]:
    """Each clip with prompts: others of its speaker, of 2 to 6 seconds, drawn by its key."""
    found = []
    for clip in clips:
        prompts = [
            c
            for c in clips
            if c.speaker == clip.speaker
            and c.key != clip.key
            and lengths[0] <= c.seconds <= lengths[1]
        ]
        rng = np.random.default_rng(zlib.crc32(clip.key.encode()))
        order = rng.permutation(len(prompts))[:each]
        found += [(prompts[i], clip) for i in order]
    return found


def written(clip: Clip, engine: Any) -> str:
    """A clip's text, with numbers and signs written out in the clip's language."""
    return prepare(clip.text, engine.tokenizer.with_language(clip.language))


def predict(speaker: Any, prompt: str, clip: Clip, ways: Sequence[str]) -> Row:
    """Predicted seconds of a clip by each of `ways`, with a Speaker whose prompt is `prompt`."""
    engine = speaker.engine
    config, text, predicted = engine.config, written(clip, engine), {}
    for speaker.durations in ways:
        frames = sum(
            speaker.frames(chunk, encode(chunk + config.dit.edge, engine.tokenizer))
            for chunk in speaker.chunks(text)
        )
        predicted[speaker.durations] = round(frames / config.audio.frame_rate, 4)
    seconds = round(clip.speech_seconds, 4)
    return Row(clip.key, clip.speaker, prompt, clip.text, seconds, **predicted)


def least_error(pairs: Sequence[tuple[float, float]]) -> float:
    """The factor on predictions that minimises their mean relative error.

    It is the median of true / predicted, weighted by predicted / true.

    Args:
        pairs: predicted and true seconds.
    """
    ratios = sorted(true / predicted for predicted, true in pairs)
    weights = np.cumsum([1 / r for r in ratios])
    return ratios[int(np.searchsorted(weights, weights[-1] / 2))]


def set_pace(voice: Voice, rows: Sequence[Row], how: str) -> float:
    """Computes a voice's pace from predictions for its speaker's clips, and writes it.

    Args:
        voice: with the pace that the predictions were made at.
        rows: the predictions.
        how: the source of durations.

    Raises:
        InputError: the pace is out of bounds, so the recordings cannot be of this voice.
    """
    pace = round(voice.settings.pace * least_error([(getattr(r, how), r.seconds) for r in rows]), 3)
    if not PACES[0] <= pace <= PACES[1]:
        raise InputError(
            f"the clips last {pace} times as long as predicted, so they cannot be {voice.name}'s"
        )
    path = voice.audio.with_suffix(".json")
    settings = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    write_json(path, {**settings, "pace": pace}, indent=None)
    return pace


def sources_of(engine: Any, set_pace: bool) -> list[str]:
    """The sources of durations that a model has, the best last.

    Raises:
        InputError: a pace is to be measured, and the model predicts nothing.
    """
    model = engine.has_duration_model
    ways = ["rule"] + ["tokens"] * engine.aligned + ["model"] * model
    ways += ["both"] * (model and engine.aligned)
    if set_pace and len(ways) == 1:
        raise InputError(f"{engine.folder} predicts no durations, so there is no pace to measure")
    return ways


def at_recorded_speed(speaker: Any) -> Any:
    """The same without its voice's speed: recordings are at the speed of their speakers."""
    settings = replace(speaker.prompt.settings, speed=1.0)
    speaker.prompt = replace(speaker.prompt, settings=settings)
    return speaker


def predict_all(
    engine: Any, spans: Sequence[tuple[Clip | Voice, Clip]], ways: Sequence[str]
) -> tuple[list[Row], list[str]]:
    """Predictions for clips, and which could not be made.

    Args:
        spans: each clip with its prompt, another clip or a built-in voice.
    """
    from nanospeech.speech.speaker import Speaker

    names = {p.full_name for p, _ in spans if isinstance(p, Voice)}
    voices = {name: at_recorded_speed(Speaker(engine, name, seed=0)) for name in names}
    rows, skipped = [], []
    for prompt, clip in tqdm(spans, "predicting", unit="clip", leave=False):
        name = prompt.full_name if isinstance(prompt, Voice) else prompt.key
        if isinstance(prompt, Voice) and prompt.text == clip.text:  # it is the prompt
            continue
        try:
            if isinstance(prompt, Voice):
                speaker = voices[name]
            else:
                said = written(prompt, engine)
                speaker = Speaker(engine, ref_audio=prompt.wave, ref_text=said, seed=0)
            rows.append(predict(speaker, name, clip, ways))
        except InputError as e:  # too short for their text, or nothing to say
            skipped.append(f"{clip.key} after {name}: {e}")
    return rows, skipped


def set_paces(own: dict[str, Voice], rows: Sequence[Row], how: str) -> dict[str, float]:
    """Measures and writes the pace of each speaker's voice.

    Raises:
        DataError: there is no clip of one.
    """
    paces = {}
    for speaker, voice in own.items():
        if not (part := [r for r in rows if r.prompt == voice.full_name]):
            raise DataError(
                f"no clip of {speaker}, from which the pace of {voice.name} would be measured"
            )
        paces[voice.full_name] = set_pace(voice, part, how)
    return paces


def check_speakers(own: dict[str, Voice], clips: Sequence[Clip]) -> None:
    """Refuses --own of a speaker without clips, as who is misspelt gets another prompt.

    Raises:
        InputError: there are clips, and none of that speaker.
    """
    there = {clip.speaker for clip in clips}
    if clips and (strangers := sorted(own.keys() - there - {ANYBODY})):
        named = ", ".join(map(repr, sorted(there - {""})[:10])) or "none by name"
        raise InputError(
            f"--own names {', '.join(map(repr, strangers))}, of whom there is no clip; the speakers"
            f" of the clips are: {named}. Name one of them, {ANYBODY}=VOICE for all clips, or use"
            " more of the clips (--held-out 0: all)"
        )


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Measures, writes the results, and returns the JSON document."""
    from nanospeech.load import load_engine

    if args.set_pace and not args.own:
        raise InputError("--set-pace needs --own SPEAKER=VOICE: whose pace?")
    if args.prompts < 1:
        raise InputError(f"--prompts is {args.prompts}; choose at least 1")
    if args.held_out < 0:
        raise InputError(f"--held-out is {args.held_out}; choose 0, for all clips, or more")
    if args.doc:
        around(args.doc, *MARKERS)
    release = open_release(args.model)
    engine = load_engine(args.model, args.backend, args.device, itself=True)
    with alone(args.out, "--out", say):
        return measured(args, release, engine)


def measured(args: argparse.Namespace, release: Release, engine: Any) -> dict[str, Any]:
    """The same with what it needs, in a folder that is this run's alone."""
    ways = sources_of(engine, args.set_pace)
    unusable: list[str] = []
    found = read_clips(args.shards, args.held_out, unusable, engine.config.language)
    clips = list(tqdm(found, "reading", unit="clip", leave=False))
    misread: list[str] = []
    if args.whisper:
        clips, misread = audible(clips, args.whisper, args.out)
    own = {speaker: find_voice(voice, engine.folder) for speaker, voice in args.own}
    for voice in own.values():
        check_itself(release, voice)
        if args.set_pace and voice.borrowed:
            raise InputError(
                f"{engine.folder} has no voice {voice.name!r} of its own, whose pace could be set"
            )
    check_speakers(own, clips)
    whose = {clip.key: own.get(clip.speaker, own.get(ANYBODY)) for clip in clips}
    strangers = [clip for clip in clips if whose[clip.key] is None]
    if strangers:
        check_itself(release, None)
    if nameless := sum(not clip.speaker for clip in strangers):
        say(f"warning: {nameless} clips name no speaker: they are taken for one person's")
    spans: list[tuple[Clip | Voice, Clip]] = [
        *((voice, clip) for clip in clips if (voice := whose[clip.key])),
        *pairs(strangers, tuple(args.prompt_seconds), args.prompts),
    ]
    rows, skipped = predict_all(engine, spans, ways)
    if not rows:
        raise DataError(
            f"no clip of {len(clips)} has another of its speaker that could be its prompt;"
            " give more shards, or a wider --prompt-seconds"
        )
    document = {
        "model": engine.config.name,
        "backend": engine.backend,
        "groups": summarize(rows, ways),
        "misheard": misread,
        "without_prompt": sorted({c.key for c in clips} - {clip.key for _, clip in spans}),
        "unusable": [*unusable, *skipped],
        **({"pace": set_paces(own, rows, ways[-1])} if args.set_pace else {}),
    }
    write_report(args.out, document, rows, ways, args.doc)
    tell_worst(rows, ways, args.worst)
    for warning in like_rule(rows, ways):
        say(warning)
    return document


def speaker_voice(text: str) -> tuple[str, str]:
    """The argument SPEAKER=VOICE."""
    speaker, found, voice = text.partition("=")
    if not (speaker and found and voice):
        raise argparse.ArgumentTypeError(f"{text!r} should be SPEAKER=VOICE")
    return speaker, voice


def build_parser() -> argparse.ArgumentParser:
    parser = Parser("nanospeech evaluate durations", __doc__)
    add = parser.add_argument
    add("--shards", nargs="+", required=True, help="tars of recordings with texts and speakers")
    add("--model", help="release folder or repository; the default voice if not given")
    add(
        "--own",
        type=speaker_voice,
        nargs="+",
        default=[],
        metavar="SPEAKER=VOICE",
        help="built-in voice for a speaker's clips, see above",
    )
    add("--set-pace", action="store_true", help="measure the paces of these voices, and write them")
    add("--backend", default="auto", metavar="NAME", help="auto (default), torch, mlx or onnx")
    add("--device", help="for example cpu or cuda")
    add("--held-out", "--hold-out", type=int, default=25, help="use one clip in N; 0: all (25)")
    add("--whisper", metavar="NAME", help="leave out clips that this recogniser mishears")
    add("--prompts", type=int, default=1, help="prompts for each clip (1)")
    add("--prompt-seconds", type=float, nargs=2, default=(2.0, 6.0), metavar="N", help="(2 6)")
    add("--worst", type=int, default=10, help="clips to list (10)")
    add("--out", type=Path, required=True, help="folder to write to")
    add("--doc", type=Path, help="page to put the table into")
    return parser


@command
def main(argv: list[str] | None = None) -> int:
    args = build_parser().parse_args(argv)
    print(json.dumps(measure(args)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
