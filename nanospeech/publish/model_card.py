"""Model card: writes README.md of a release folder from recorded files. Measures nothing.

    nanospeech publish card my_voice --data data/curate.json --record runs/record.json \\
        --run runs/speech --evaluation eval --notes notes.md

MODEL        release folder; sizes, voices and their licences are read off its files
--data       curate.json of nanospeech prepare curate: hours, sources and licences of each speaker
--record     record.json of scripts/recipes/run_stage.py: the time of each stage, the hardware
--run        folder of the speech model's run: steps, time, settings
--evaluation folders of nanospeech evaluate: the tables, and how they were measured
--notes      Markdown that goes below: what only a person can say

Every figure comes from one of these files; without a file its section is left out. The data,
licences and attributions of the card that is there stay where neither --data nor --vocoder-data
name others.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from nanospeech.cli import Parser, command
from nanospeech.config import ModelConfig
from nanospeech.errors import InputError, reason
from nanospeech.evaluate.pages import cell, literal
from nanospeech.files import read_text, whole
from nanospeech.measure.machine import clock
from nanospeech.prepare.choose_prompts import ATTRIBUTIONS, addresses, read_attributions
from nanospeech.release.card_facts import HEAD, file_rows, network_rows, readers
from nanospeech.release.folder import Release, open_release
from nanospeech.release.voices import own_voices

PRECISIONS = {"bf16": "bfloat16", "fp16": "float16"}
DATA = "Data, licences, attributions"
FIGURES = """ The figures above were made by other models (a speech recogniser,
a speaker encoder, a quality estimator) and not by a panel of listeners."""
LIMITS = """## Limits and intended use

Made for reading text aloud on one's own machine, and as an example to train from. It speaks as the
recordings that it learned from do: read-aloud speech, in their language, style and sound. It may
drop, repeat or mispronounce words, rare names and abbreviations above all, so what matters should
be listened to before it is used.{figures}

## Consent

A voice is a person's. Do not imitate anyone without their consent, do not pass synthetic speech off
as a recording, and say that it is synthetic where a listener could be misled. The licences above
let the recordings be used; they do not make a speaker a party to what the model is made to say.
"""


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object of a file.

    Raises:
        InputError: it is missing or something else.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as e:
        raise InputError(f"cannot read {path}: {reason(e)}") from e
    if not isinstance(values, dict):
        raise InputError(f"{path} should hold a JSON object")
    return values


def grid(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A Markdown table."""
    cells = [[cell(str(c)) for c in row] for row in rows]
    lines = [head, ["---"] * len(head), *cells]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def metadata(old: str, config: ModelConfig) -> str:
    """The Hub's metadata that the old card has; else the weights' licence, where it is known."""
    if there := re.match(r"---\n.*?\n---\n", old, re.S):
        return there.group()
    return f"---\nlicense: {config.licence}\n---\n" if config.licence else ""


def section(old: str, title: str) -> str:
    """A section of the old card, whole: attributions that a licence asks for are not lost."""
    there = re.search(rf"^## {re.escape(title)}\n.*?(?=^## |\Z)", old, re.M | re.S)
    return there[0].rstrip() + "\n" if there else ""


def licence(old: str, config: ModelConfig) -> str:
    """What the old card says of the weights' licence; else its name, where it is known."""
    if there := section(old, "Licence"):
        return there
    if config.licence is None:
        return ""
    return f"## Licence\n\nThe weights are published under {config.licence}.\n"


def about(release: Release) -> str:
    """What the model is: its files, their parameters and the size of all."""
    folder, config = release.folder, release.config
    size = sum(p.stat().st_size for p in folder.rglob("*") if p.is_file()) / 1e6
    rows = "\n".join(file_rows(release))
    return f"""# {config.name}

A nanospeech text-to-speech model, {size:.1f} MB with its voices.
{readers(config)} read the same files.

```sh
nanospeech speak --model . --text "Hello there." --output hello.wav
```

| {" | ".join(HEAD)} |
|---|---|---|
{rows}

{network_rows(config)}
"""


def voices(folder: Path, config: ModelConfig) -> str:
    """The built-in voices with their licences."""
    rows = []
    for _, path in sorted(own_voices(folder).items()):
        beside = path.with_name(f"{path.stem}.license.txt")
        license = read_text(beside) if beside.is_file() else "not stated"
        text = read_text(path.with_suffix(".txt")).strip()
        mark = " (default)" if path.stem == config.default_voice else ""
        rows.append((literal(path.stem) + mark, " ".join(license.split()), literal(text)))
    if not rows:
        return ""
    return f"## Voices\n\n{grid(('voice', 'source and licence', 'words of its prompt'), rows)}\n"


def data(paths: Sequence[Path], vocoder: Sequence[str], known: dict[str, dict[str, Any]]) -> str:
    """The speakers of the training data: hours, clips, sources and licences.

    Args:
        vocoder: sources that the vocoder was trained on.
    """
    if not paths and not vocoder:
        return ""
    rows, hours = [], {"train": 0.0, "heldout": 0.0}
    sources: dict[str, set[str]] = {}
    for path in paths:
        for name, s in read_json(path)["speakers"].items():
            if not s["train_clips"] + s["heldout_clips"]:
                continue
            for side in hours:
                hours[side] += s[f"{side}_hours"]
            licences = ", ".join(s.get("license", {}))
            row = (name, f"{s['train_hours']:.2f}", s["train_clips"], f"{s['heldout_hours']:.2f}")
            rows.append((*row, ", ".join(s.get("source", {})), licences))
            for source in s.get("source", {}):
                sources.setdefault(source, set()).update(s.get("license", {}))
    head = ("speaker", "hours trained on", "clips", "hours held out", "source", "licence")
    credit = []
    for source in sorted({*sources, *vocoder}):
        uses = ["speech"] * (source in sources) + ["vocoder"] * (source in vocoder)
        words, license = attribution(source, sources.get(source, ()), known)
        credit.append((source, ", ".join(uses), words, license))
    varied = sorted({v for path in paths for v in shares(read_json(path).get("vary"))})
    several = " and ".join(f"{100 * v:g} %" for v in varied)
    copies = f" Each clip was also heard {several} slower or faster." if varied else ""
    total = (
        f"The speech model: {hours['train']:.2f} hours trained on, {hours['heldout']:.2f} held "
        f"out.{copies}\n\n{grid(head, rows)}\n\n"
    )
    table = grid(("source", "used for", "attribution", "licence"), credit)
    told = f"## {DATA}\n\n{total if rows else ''}{table}\n"
    where = ", ".join(addresses(told))
    return f"{told}\n{where}\n" if where else told


def sources_of(paths: Sequence[Path]) -> list[str]:
    """The sources that curate.json files name."""
    speakers = [s for path in paths for s in read_json(path)["speakers"].values()]
    return sorted({source for s in speakers for source in s.get("source", {})})


def shares(vary: float | list[float] | None) -> list[float]:
    """The field of curate.json, which was one number once."""
    return vary if isinstance(vary, list) else [vary] if vary else []


def attribution(
    source: str, licences: Iterable[str], known: dict[str, dict[str, Any]]
) -> tuple[str, str]:
    """The credit for a source, and its licence."""
    a = known.get(source, {})
    words = [str(a[k]) for k in ("title", "by", "kind") if a.get(k)]
    credit = ", ".join(words) or source
    if a.get("note"):
        credit += f". {a['note']}"
    return credit, a.get("license") or ", ".join(sorted(licences)) or "not stated"


def training(run: Path | None, records: Sequence[Path]) -> str:
    """Steps, hours, settings and hardware."""
    lines = []
    if run is not None:
        lines += settings(run)
    for path in records:
        record = read_json(path)
        h = record.get("hardware", {})
        gpus = f", {len(h['gpus'])} x {h['gpus'][0]}" if h.get("gpus") else ""
        machine = f"{h.get('cpu', 'unknown processor')}, {h.get('cores', '?')} cores"
        lines.append(f"- Hardware: {machine}, {h.get('memory_gb', '?')} GB of memory{gpus}.")
        stages = record.get("stages", {})
        rows = [(name, clock(s["seconds"])) for name, s in stages.items()]
        rows.append(("all", clock(sum(s["seconds"] for s in stages.values()))))
        lines += ["", grid(("stage", "time"), rows), ""]
    return "## Training\n\n" + "\n".join(lines).rstrip() + "\n" if lines else ""


def settings(run: Path) -> list[str]:
    """Steps, time and settings of a run, from its newest checkpoint."""
    try:
        latest = (run / "latest").read_text(encoding="utf-8").strip()
    except OSError as e:
        raise InputError(f"{run} holds no checkpoint of a run: {reason(e)}") from e
    meta = read_json(run / latest / "meta.json")
    r = meta["run"]
    lines = [f"- {meta['step']:,} optimiser steps on {meta['processes']} process(es)"]
    if meta.get("seconds"):
        lines[0] += f", {meta['seconds'] / 3600:.2f} hours"
    lines[0] += f", {PRECISIONS.get(r.get('mixed_precision'), 'float32')} precision."
    if isinstance(r.get("optimizer"), dict):
        o, t = r["optimizer"], r["train"]
        frames = r["data"]["max_batch_frames"] * meta["processes"] * t["accumulate"]
        lines.append(
            f"- {o['name']} at a peak rate of {o['lr']:g}, schedule {t['schedule']}, up to "
            f"{frames:,} mel frames a step."
        )
    if r.get("initial"):
        lines.append(f"- Started from the weights of {Path(r['initial']).name}, not from nothing.")
    return lines


def evaluation(folders: Sequence[Path]) -> str:
    """The tables of evaluations, and how they were made."""
    parts = []
    for folder in folders:
        s = read_json(folder / "summary.json")
        table = read_text(folder / "summary.md").strip()
        seeds = ", ".join(map(str, s.get("seeds", []))) or "none"
        how = "Recordings"
        if sentences := s.get("sentences"):
            how = f"Sentences: {sentences}; seeds: {seeds}; backend: {s.get('backend')}"
        if set(s.get("metrics", [])) & {"wer", "leak"}:
            how += f"; recogniser: Whisper {Path(str(s.get('whisper'))).name}, beam {s.get('beam')}"
        if "similarity" in s.get("metrics", []):
            how += f"; similarity by {Path(str(s.get('speaker_model'))).name}"
        parts.append(f"{table}\n\n{how}.")
    if not parts:
        return ""
    again = "`nanospeech evaluate MODEL --out FOLDER` measures it again."
    return "## Figures\n\n" + "\n\n".join(parts) + f"\n\n{again}\n"


def card(args: argparse.Namespace) -> str:
    """The whole card."""
    if not args.model.is_dir():
        raise InputError(f"there is no folder {args.model}; nanospeech convert makes a release")
    release = open_release(args.model)
    config = release.config
    notes = read_text(args.notes).strip() + "\n" if args.notes else ""
    known = read_attributions(args.attributions)
    there = args.model / "README.md"
    old = read_text(there) if there.is_file() else ""
    parts = [
        metadata(old, config),
        about(release),
        notes,
        voices(args.model, config),
        evaluation(args.evaluation),
        training(args.run, args.record),
        data(args.data, [*args.vocoder_sources, *sources_of(args.vocoder_data)], known)
        or section(old, DATA),
        licence(old, config),
        LIMITS.format(figures=FIGURES if args.evaluation else ""),
    ]
    return "\n".join(part for part in parts if part)


def build_parser() -> argparse.ArgumentParser:
    p = Parser("nanospeech publish card", __doc__)
    several: dict[str, Any] = {"nargs": "+", "type": Path, "default": []}
    p.add_argument("model", type=Path, help="release folder")
    p.add_argument("--data", **several, metavar="JSON", help="curate.json")
    p.add_argument(
        "--vocoder-sources", nargs="+", default=[], metavar="SOURCE", help="what it learned from"
    )
    p.add_argument("--vocoder-data", **several, metavar="JSON", help="curate.json, of the vocoder")
    p.add_argument("--record", **several, metavar="JSON", help="record.json")
    p.add_argument("--run", type=Path, help="folder of the speech model's run")
    p.add_argument("--evaluation", **several, metavar="FOLDER", help="of nanospeech evaluate")
    p.add_argument("--notes", type=Path, help="Markdown to include")
    p.add_argument("--attributions", type=Path, default=ATTRIBUTIONS, help="JSON by source")
    return p


@command
def main(argv: list[str] | None = None) -> int:
    args = build_parser().parse_args(argv)
    try:
        text = card(args)
    except (KeyError, TypeError) as e:
        raise InputError(f"one of the files is of another kind or version: {e!r}") from e
    with whole(args.model / "README.md") as part:
        part.write_text(text, encoding="utf-8")
    print(f"wrote {args.model / 'README.md'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
