"""Evaluate: measures a model's word errors, speaker similarity, quality, speed and durations.

    nanospeech evaluate MODEL --out eval                     # its default voice
    nanospeech evaluate MODEL --voice all --seeds 0,1,2 --out eval
    nanospeech evaluate MODEL --steps 4,8,16 --out eval      # quality against work
    nanospeech evaluate MODEL --sentences LIST --out eval    # a Seed-TTS-eval list
    nanospeech evaluate --recordings human=shard-000000.tar --out human

Speaks each sentence and measures it: word and character errors by Whisper, similarity to the
prompt, DNSMOS, duration against the true one, time of synthesis, and words of the prompt that leak
into the speech. Run again with the same --out, it measures only what is missing. OUT gets
results.csv (a row an utterance), summary.md, summary.json, pictures and wavs/. The last line of the
output is the summary. Needs the extra "eval"; a measure whose package is missing is named and left
out. docs/evaluation.md explains the figures.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from nanospeech.cli import Parser, command, say
from nanospeech.config import SampleOptions
from nanospeech.errors import BackendError, DataError, InputError
from nanospeech.load import pick_backend
from nanospeech.locks import alone
from nanospeech.machine import THREADS, cores
from nanospeech.measure import metrics
from nanospeech.release.folder import load_config, resolve
from nanospeech.release.prompt import check_reference
from nanospeech.release.tensors import digest
from nanospeech.sample_flags import add_sampling, integers
from nanospeech.speech.speaker import DURATIONS, check_speech
from nanospeech.text.languages import spoken_code
from nanospeech.workers import most

from . import report as evaluate_report
from .items import SENTENCES, waves
from .plan import missing, names, plan, sampling
from .reading import read_in
from .results import METRICS, Result, Results, check_settings
from .worker import Recogniser, Settings, Task, Worker, start, work


def build_parser() -> argparse.ArgumentParser:
    p = Parser("nanospeech evaluate", __doc__)
    p.add_argument(
        "model", nargs="?", help="release folder or Hub repository; the packaged one if not given"
    )
    p.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="for all results")
    p.add_argument(
        "--voice", help='built-in voice, several as A,B,C, or "all" (default: the model\'s own)'
    )
    p.add_argument("--ref-audio", type=Path, help="instead of a voice, a recording to imitate")
    p.add_argument("--ref-text", help="what is said in it, if you like")
    p.add_argument(
        "--sentences",
        type=Path,
        default=SENTENCES,
        help="one a line; or a Seed-TTS-eval list; or a tar or folder of recordings, whose texts "
        "are spoken and whose lengths are the true ones (default: 100 that come along)",
    )
    p.add_argument("--limit", type=int, metavar="N", help="only the first N")
    p.add_argument(
        "--seeds", type=integers, default=[0], help="of the noise, as 0,1,2 (default: 0)"
    )
    p.add_argument(
        "--recordings",
        nargs="+",
        default=[],
        metavar="NAME=PATH",
        help="measure tars or folders of recordings with texts; alone if no model is named. Those "
        "of one NAME are a row of the table",
    )
    p.add_argument(
        "--target",
        nargs="+",
        type=Path,
        default=[],
        help="recordings of a person, for similarity to that person",
    )
    p.add_argument("--compare", nargs="+", type=Path, default=[], metavar="SUMMARY",
                   help="add the rows of earlier summary.json files to the table")  # fmt: skip
    p.add_argument(
        "--metrics",
        type=names,
        default=list(METRICS),
        help="some of " + ",".join(METRICS) + " (default: all)",
    )
    p.add_argument("--whisper", default="base", help="faster-whisper size or folder (base)")
    p.add_argument("--language", help="that is spoken (default: the model's own, else en)")
    p.add_argument("--beam", type=int, default=5, help="of Whisper (default: 5)")
    p.add_argument(
        "--speaker-model",
        default="resemblyzer",
        help="resemblyzer (default), or an x-vector model of transformers: a folder or Hub"
        " repository",
    )
    p.add_argument("--jobs", type=int, help="processes at work (default: one a core)")
    p.add_argument("--threads", type=int, default=1, help="threads of each (default: 1)")
    p.add_argument("--backend", default="auto", help="auto (default), torch, mlx or onnx")
    p.add_argument("--device", help="for example cpu, cuda or mps")
    p.add_argument("--dtype", help="float32, float16 or bfloat16; onnx: float32 or int8")
    add_sampling(p.add_argument_group("sampling, as in nanospeech speak"), measures=True)
    return p


def check_arguments(args: argparse.Namespace) -> None:
    """What can be said before anything is read.

    Raises:
        InputError: a flag's value cannot be.
    """
    if args.limit is not None and args.limit < 1:
        raise InputError(f"--limit is {args.limit}; choose at least 1")
    for flag, value in {
        "--jobs": args.jobs or 1,
        "--threads": args.threads,
        "--beam": args.beam,
    }.items():
        if value < 1:
            raise InputError(f"{flag} is {value}; choose at least 1")
    if min(args.seeds) < 0:
        raise InputError(f"--seeds holds {min(args.seeds)}; choose 0 or more")
    if not args.metrics:
        raise InputError(f"--metrics names none; choose from {', '.join(METRICS)}")
    if unknown := [m for m in args.metrics if m not in METRICS]:
        raise InputError(f"metric {unknown[0]!r} not known; choose from {', '.join(METRICS)}")
    if isinstance(args.duration, str) and args.duration not in DURATIONS:
        choices = ", ".join(DURATIONS)
        raise InputError(f"--duration is {args.duration!r}; choose from {choices}, or give seconds")
    seconds = None if isinstance(args.duration, str) else args.duration
    check_speech(None, args.speed, None, seconds)
    check_reference(args.ref_audio, args.ref_text, args.voice)
    for steps in args.steps or ():
        SampleOptions(**sampling(args) | {"steps": steps})


def available(wanted: Sequence[str], speaker_model: str, has_recogniser: bool) -> list[str]:
    """The metrics whose packages are installed; the others are listed on stderr."""
    needs = {
        "wer": "whisper",
        "leak": "whisper",
        "similarity": metrics.speaker_package(speaker_model),
        "dnsmos": "dnsmos",
    }
    found: list[str] = []
    lacking: dict[str, list[str]] = {}
    for name in wanted:
        package = "normalizer" if has_recogniser and name in ("wer", "leak") else needs.get(name)
        try:
            if package:
                metrics.check(package)
            found.append(name)
        except BackendError as e:
            lacking.setdefault(str(e), []).append(name)
    for reason, without in lacking.items():
        print(f"left out: {', '.join(without)}: {reason}", file=sys.stderr)
    return found


def comparable(wanted: Sequence[str], tasks: Sequence[Task], asked: bool) -> list[str]:
    """The metrics that the utterances can have; the others are listed on stderr.

    Args:
        asked: whether metrics were named: else it goes without saying that lengths are unknown.

    Raises:
        InputError: that is none.
    """
    spoken, lacking = [t for t in tasks if t.steps is not None], {}
    if asked and not any(t.item.truth for t in spoken):
        lacking["duration"] = (
            "no text has a recording that its length is the true one of; --sentences takes those"
        )
    if spoken and not any(t.prompt and t.prompt.text for t in spoken):
        lacking["leak"] = "what is said in the recording is not known; --ref-text tells it"
    for name in lacking.keys() & set(wanted):
        print(f"left out: {name}: {lacking[name]}", file=sys.stderr)
    found = [name for name in wanted if name not in lacking]
    if wanted and not found:
        raise InputError("no metric is left")
    return found


def do(
    tasks: Sequence[Task], settings: Settings, jobs: int, recogniser: Recogniser | None
) -> Iterator[Result]:
    """Runs the tasks, in this process or in several, in any order."""
    jobs = most(min(jobs, len(tasks)))
    if jobs <= 1 or recogniser is not None:
        yield from map(Worker(settings, recogniser), tasks)
        return
    pool = ProcessPoolExecutor(
        jobs, multiprocessing.get_context("spawn"), initializer=start, initargs=(settings,)
    )
    kept = {name: os.environ.get(name) for name in THREADS}
    # numpy and torch read these when they are loaded
    os.environ.update(dict.fromkeys(THREADS, str(settings.threads)))
    try:
        for future in as_completed([pool.submit(work, task) for task in tasks]):
            yield future.result()
    except BrokenProcessPool as e:
        raise DataError(f"a process ended before its work (memory?); try --jobs {jobs // 2}") from e
    finally:
        pool.shutdown(cancel_futures=True)
        for name, value in kept.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def load_target(args: argparse.Namespace) -> tuple[np.ndarray | None, dict[str, Any]]:
    """The mean embedding of --target, and the similarity of its recordings to each other."""
    if not args.target:
        return None, {}
    embed = metrics.load_encoder(args.speaker_model)
    theirs = np.array([embed(w) for w in waves(args.target, 100, metrics.MIN_SECONDS)])
    if len(theirs) < 2:
        raise DataError(
            f"--target has {len(theirs)} recordings of at least {metrics.MIN_SECONDS:g} s; name two"
            " or more of the person, as files, folders or shards"
        )
    own = round(float(metrics.to_others(theirs).mean()), 4)
    return theirs.mean(0), {"target_recordings": len(theirs), "target_self": own}


def run(args: argparse.Namespace, recogniser: Recogniser | None = None) -> dict[str, Any]:
    """Measures what the arguments ask for, writes the report, returns the summary."""
    check_arguments(args)
    tasks = plan(args)
    compared = evaluate_report.read_compared(args.compare)
    wanted = available(args.metrics, args.speaker_model, recogniser is not None)
    wanted = comparable(wanted, tasks, args.metrics != list(METRICS))
    with alone(args.out, "--out", say):
        return measured(args, tasks, wanted, compared, recogniser)


def measured(
    args: argparse.Namespace,
    tasks: Sequence[Task],
    wanted: Sequence[str],
    compared: Sequence[dict],
    recogniser: Recogniser | None,
) -> dict[str, Any]:
    """Does what is missing of the tasks, in --out, where no other run is; see run."""
    target, about_target = load_target(args) if "similarity" in wanted else (None, {})
    shared = ("model", "backend", "device", "dtype", "speed", "duration", "whisper", "language",
              "beam", "speaker_model")  # fmt: skip
    common = {name: getattr(args, name) for name in shared}
    common["language"] = spoken_code(args.language)
    spoken = any(t.steps is not None for t in tasks)
    identity: dict[str, Any] = {"weights": None}
    reads = None
    if spoken:
        folder = resolve(args.model)
        identity["weights"] = digest(folder)
        # by its name, so that figures are not another's where "auto" comes to choose another
        where = load_config(folder), args.device, args.dtype
        common["backend"] = pick_backend(args.backend, *where)
        common["language"] = spoken_code(args.language, own := where[0].language)
        reads = read_in(args.language, own)
    check_settings(args.out, common | sampling(args) | identity | {"target": args.target})
    settings = Settings(
        args.out / "wavs", tuple(wanted), options=sampling(args), threads=args.threads,
        target=target, reads=reads, **common,
    )  # fmt: skip
    results = Results(args.out)
    left = missing(tasks, results, settings)
    jobs = args.jobs or cores()
    with tqdm(
        total=len(tasks), initial=len(tasks) - len(left), unit="utterance", disable=None
    ) as bar:
        for result in do(left, settings, jobs, recogniser):
            results.add(result)
            bar.update()
    results.save(t.id for t in tasks)
    about = common | sampling(args) | identity | about_target
    about |= {"seeds": args.seeds if spoken else [], "metrics": wanted}
    about |= {"sentences": args.sentences.name if spoken else None}
    about |= {"jobs": min(jobs, len(tasks)), "threads": args.threads}
    return report(args, about, [results.rows[t.id] for t in tasks], compared)


def report(
    args: argparse.Namespace, about: dict, results: Sequence[Result], compared: Sequence[dict]
) -> dict[str, Any]:
    """Writes summary.json, summary.md and the pictures."""
    rows = evaluate_report.summarize(results, about["metrics"], args.method, args.zero_init)
    summary: dict[str, Any] = {**about, "rows": rows}
    voiced = [r for r in rows if r["steps"] is not None and "wer" in r]
    if len(voiced) > 1:
        summary["best"] = min(voiced, key=lambda r: r["wer"])["name"]
        summary["average_wer"] = round(sum(r["wer"] for r in voiced) / len(voiced), 4)
    summary["compared"] = list(compared)
    text = json.dumps(summary, default=str)
    (args.out / "summary.json").write_text(json.dumps(json.loads(text), indent=1) + "\n", "utf-8")
    table = evaluate_report.table([*rows, *compared])
    (args.out / "summary.md").write_text(table + "\n", encoding="utf-8")
    print(table)
    try:
        evaluate_report.draw(args.out, results, rows)
    except BackendError as e:
        print(f"left out: pictures: {e}", file=sys.stderr)
    return json.loads(text)


@command(interrupted="interrupted; the same command goes on from here")
def main(argv: list[str] | None = None) -> int:
    summary = run(build_parser().parse_args(argv))
    print(json.dumps(summary))
    return 0


if __name__ == "__main__":
    sys.exit(main())
