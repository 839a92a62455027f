"""Durations: errors of predicted durations, on recordings that nothing was trained on.

    nanospeech evaluate durations --shards 'data/heldout/*.tar' --held-out 0 --out docs/durations
    nanospeech evaluate durations --shards 'shards/*.tar' --model FOLDER --whisper base

The prompt of each clip is another clip of its speaker. The length that nanospeech.generate would
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
import csv
import glob
import json
import sys
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from nanospeech.audio import wave as audio
from nanospeech.cli import Parser, command
from nanospeech.corpus.held_out import is_held_out
from nanospeech.corpus.layouts import find
from nanospeech.errors import DataError, InputError
from nanospeech.pictures import pyplot
from nanospeech.prepare.curate import CurateOptions, misheard, whisper
from nanospeech.release.voices import PACES, Voice, find_voice
from nanospeech.speech.speaker import DURATIONS
from nanospeech.text.sentences import encode

from .pages import put_between

MARKERS = "<!-- durations -->", "<!-- /durations -->"
NAMES = {
    "rule": "bytes rule",
    "tokens": "token durations",
    "model": "duration model",
    "both": "mean of the two",
}
ANYBODY = "*"
LIMIT = 0.3  # of the error of any clip
FEW = 8  # speakers with fewer clips are one group


@dataclass(frozen=True)
class Clip:
    """A recording and its words."""

    key: str
    text: str
    speaker: str
    wave: np.ndarray

    @property
    def seconds(self) -> float:
        return len(self.wave) / audio.SAMPLE_RATE

    @property
    def speech_seconds(self) -> float:
        """Seconds from the first sound on."""
        return self.seconds - audio.loud_span(self.wave)[0] / audio.SAMPLE_RATE


@dataclass(frozen=True)
class Row:
    """The true and predicted seconds of a clip; a field for each source of durations."""

    key: str
    speaker: str
    prompt: str
    text: str
    seconds: float
    rule: float
    tokens: float | None = None
    model: float | None = None
    both: float | None = None

    def error(self, how: str) -> float:
        """Relative error of a prediction; negative where it is too short."""
        return getattr(self, how) / self.seconds - 1


def read_clips(shards: Sequence[str], one_in: int) -> Iterator[Clip]:
    """The held-out clips of WebDataset tars.

    Args:
        shards: paths or globs.
        one_in: clips count whose key's CRC-32 is divisible by this; 0: all.

    Raises:
        InputError: there are no such files, or one cannot be read.
    """
    paths = sorted(Path(p) for pattern in shards for p in glob.glob(pattern))
    if not paths:
        raise InputError(f"no shards at {', '.join(shards)}")
    for sample in find(paths, "webdataset")[0]:
        if not one_in or is_held_out(sample.key, one_in):
            wave = audio.read(sample.audio.read())
            yield Clip(sample.key, sample.text, sample.speaker or "", wave)


def audible(clips: list[Clip], recogniser: str, out: Path) -> tuple[list[Clip], list[str]]:
    """The clips whose words a recogniser finds, and the keys of the others.

    What it heard is kept in out/heard.json.
    """
    kept = out / "heard.json"
    heard = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    for clip in tqdm(clips, "listening", unit="clip", leave=False):
        if clip.key not in heard:
            heard[clip.key] = whisper(recogniser)(clip.wave)
    kept.write_text(json.dumps(heard, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    limit = CurateOptions().max_wer
    bad = [c.key for c in clips if misheard(c.text, heard[c.key]) > limit]
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


def predict(speaker: Any, prompt: str, clip: Clip, ways: Sequence[str]) -> Row:
    """Predicted seconds of a clip by each of `ways`, with a Speaker whose prompt is `prompt`."""
    engine = speaker.engine
    config, predicted = engine.config, {}
    for speaker.durations in ways:
        frames = sum(
            speaker.frames(chunk, encode(chunk + config.dit.edge, engine.tokenizer))
            for chunk in speaker.chunks(clip.text)
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
    path.write_text(json.dumps({**settings, "pace": pace}) + "\n", encoding="utf-8")
    return pace


def groups(rows: list[Row]) -> dict[str, list[Row]]:
    """Rows by speaker (speakers with few clips are one group), and all rows."""
    count = Counter(r.speaker for r in rows)
    names = sorted(s for s in count if count[s] >= FEW)
    parts = {name: [r for r in rows if r.speaker == name] for name in names}
    if rest := [r for r in rows if count[r.speaker] < FEW]:
        parts[f"{len({r.speaker for r in rest})} others"] = rest
    return {**parts, "all": rows}


def summarize(rows: list[Row], ways: Sequence[str]) -> dict[str, Any]:
    """Errors of each group by each way, as shares."""
    found: dict[str, Any] = {}
    for name, part in groups(rows).items():
        found[name] = {"clips": len(part), "seconds": round(sum(r.seconds for r in part), 1)}
        for how in ways:
            errors = np.array([r.error(how) for r in part])
            size = np.abs(errors)
            found[name][how] = {
                "mean": round(float(size.mean()), 4),
                "p95": round(float(np.quantile(size, 0.95)), 4),
                "worst": round(float(size.max()), 4),
                "bias": round(float(errors.mean()), 4),
                "over_limit": int((size > LIMIT).sum()),
            }
    return found


def table(summary: dict[str, Any], ways: Sequence[str]) -> str:
    """The summary in Markdown."""
    head = [f"{NAMES[w]}: mean, 95th, worst" for w in ways]
    lines = ["| speaker | clips | " + " | ".join(head) + " |", "|---|---|" + "---|" * len(ways)]
    for name, part in summary.items():
        cells = [
            f"{100 * part[w]['mean']:.1f} %, {100 * part[w]['p95']:.0f} %,"
            f" {100 * part[w]['worst']:.0f} %"
            for w in ways
        ]
        lines.append(f"| {name} | {part['clips']} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def picture(rows: list[Row], ways: Sequence[str], path: Path) -> None:
    """Plots predicted against true seconds, a panel for each source of durations.

    Raises:
        BackendError: matplotlib is not installed.
    """
    plt = pyplot()

    figure, axes = plt.subplots(
        1, len(ways), figsize=(4.4 * len(ways), 4.4), squeeze=False, constrained_layout=True
    )
    low, high = 0.3, 1.2 * max(r.seconds for r in rows)
    for axis, how in zip(axes[0], ways):
        axis.fill_between(
            [low, high], [low * 0.7, high * 0.7], [low * 1.3, high * 1.3], color="0.93"
        )
        axis.plot([low, high], [low, high], color="0.6", linewidth=0.8)
        for name, part in groups(rows).items():
            if name != "all":
                points = [r.seconds for r in part], [getattr(r, how) for r in part]
                axis.scatter(*points, s=12, alpha=0.7, label=name)
        mean = 100 * np.mean([abs(r.error(how)) for r in rows])
        axis.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high))
        axis.set(title=f"{NAMES[how]}: mean error {mean:.1f} %", xlabel="true seconds")
        ticks = [t for t in (0.5, 1, 2, 4, 8, 16) if t < high]
        for side in (axis.xaxis, axis.yaxis):
            side.set_ticks(ticks, [f"{t:g}" for t in ticks])
            side.set_ticks([], minor=True)
    axes[0][0].set_ylabel("predicted seconds")
    axes[0][0].legend(fontsize=7, loc="upper left")
    figure.savefig(path, dpi=130)
    plt.close(figure)


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Measures, writes the results, and returns the JSON document."""
    from nanospeech.load import load_engine
    from nanospeech.speech.speaker import Speaker

    if args.set_pace and not args.own:
        raise InputError("--set-pace needs --own SPEAKER=VOICE: whose pace?")
    engine = load_engine(args.model, args.backend, args.device)
    model = engine.has_duration_model
    ways = ["rule"] + ["tokens"] * engine.aligned + ["model"] * model
    ways += ["both"] * (model and engine.aligned)
    if args.set_pace and len(ways) == 1:
        raise InputError(f"{engine.folder} predicts no durations, so there is no pace to measure")
    args.out.mkdir(parents=True, exist_ok=True)
    clips = list(tqdm(read_clips(args.shards, args.held_out), "reading", unit="clip", leave=False))
    misread: list[str] = []
    if args.whisper:
        clips, misread = audible(clips, args.whisper, args.out)
    own = {speaker: find_voice(voice, engine.folder) for speaker, voice in args.own}
    # at the speed of their speakers, as recordings have it
    voices = {
        v.name: Speaker(engine, v.name, speed=1 / v.settings.speed, seed=0) for v in own.values()
    }
    whose = {clip.key: own.get(clip.speaker, own.get(ANYBODY)) for clip in clips}
    strangers = [clip for clip in clips if whose[clip.key] is None]
    spans: list[tuple[Clip | Voice, Clip]] = [
        *((voice, clip) for clip in clips if (voice := whose[clip.key])),
        *pairs(strangers, tuple(args.prompt_seconds), args.prompts),
    ]
    rows, skipped = [], []
    for prompt, clip in tqdm(spans, "predicting", unit="clip", leave=False):
        if isinstance(prompt, Voice):
            if prompt.text != clip.text:  # else it is the prompt
                rows.append(predict(voices[prompt.name], prompt.name, clip, ways))
            continue
        try:
            speaker = Speaker(engine, ref_audio=prompt.wave, ref_text=prompt.text, seed=0)
            rows.append(predict(speaker, prompt.key, clip, ways))
        except InputError as e:  # of recordings: silent, or too short for their text
            skipped.append(f"{clip.key} after {prompt.key}: {e}")
    if not rows:
        raise DataError(
            f"no clip of {len(clips)} has another of its speaker that could be its prompt;"
            " give more shards, or a wider --prompt-seconds"
        )
    paces = {}
    if args.set_pace:
        for speaker, voice in own.items():
            if not (part := [r for r in rows if r.prompt == voice.name]):
                raise DataError(
                    f"no clip of {speaker}, from which the pace of {voice.name} would be measured"
                )
            paces[voice.name] = set_pace(voice, part, ways[-1])
    lonely = sorted({c.key for c in clips} - {clip.key for _, clip in spans})
    document = {
        "model": engine.config.name,
        "backend": engine.backend,
        "groups": summarize(rows, ways),
        "misheard": misread,
        "without_prompt": lonely,
        "unusable": skipped,
        **({"pace": paces} if args.set_pace else {}),
    }
    with (args.out / "durations.csv").open("w", newline="", encoding="utf-8") as f:
        names = [n for n in Row.__dataclass_fields__ if n not in DURATIONS or n in ways]
        writer = csv.DictWriter(f, names, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(asdict(r) for r in rows)
    (args.out / "durations.json").write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    text = table(document["groups"], ways)
    (args.out / "table.md").write_text(text, "utf-8")
    if args.doc:
        put_between(args.doc, *MARKERS, f"\n{text}")
    picture(rows, ways, args.out / "durations.png")
    print(text)
    worst = sorted(rows, key=lambda r: -abs(r.error(ways[-1])))[: args.worst]
    for r in worst:
        predicted = ", ".join(f"{how} {getattr(r, how):.2f}" for how in ways)
        error = f"{r.error(ways[-1]):+.0%} {r.speaker} {r.key}: {r.seconds:.2f} s"
        print(f"{error}, {predicted}: {r.text}")
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
    add("--backend", default="auto", metavar="NAME")
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
