"""Steps against quality: WER, DNSMOS and RTF for solvers, evaluations and kinds of guidance.

    nanospeech evaluate steps MODEL --whisper base --out docs/steps

Speaks each sentence of nanospeech/evaluate/dev_sentences.txt (or --sentences) in every cell of the
sweep, measures WER by Whisper and DNSMOS, and writes steps.csv, steps.png and the table, which
--doc puts into a page between its markers. An evaluation is one call of the network for a velocity,
counted, not computed from the steps; with guidance it costs two forward passes. Each utterance is
kept in --raw, so an interrupted sweep (Ctrl-C, --pause-after) can be resumed. RTF includes the
vocoder; on the CPU it is processor seconds for a second of audio, which other work on the machine
hardly changes. Needs the extra "eval".
"""

from __future__ import annotations

import argparse
import csv
import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from nanospeech.audio import wave as audio
from nanospeech.cli import Parser, add_pause_after, command, say
from nanospeech.config import ModelConfig, SampleOptions
from nanospeech.errors import InputError, NanospeechError
from nanospeech.files import drop_cut_line
from nanospeech.load import pick_backend
from nanospeech.locks import alone
from nanospeech.measure import metrics
from nanospeech.measure import wer as wer_text
from nanospeech.release.folder import Release, open_release
from nanospeech.release.tensors import digest
from nanospeech.release.voices import Voice, default_voice, find_voice
from nanospeech.sample_flags import integers
from nanospeech.speech.network import check_itself
from nanospeech.text.languages import spoken_code
from nanospeech.workers import most

from . import steps_report
from .items import Prompt, Recording, read_texts
from .pages import around
from .reading import measured_in
from .steps_cells import Cell, cells

SENTENCES = Path(__file__).with_name("dev_sentences.txt")


@dataclass(frozen=True)
class Row:
    """One utterance and its measures: duration, transcript, DNSMOS and cost (see rtf above)."""

    key: str
    seed: int
    text: str
    heard: str
    edits: int
    words: int
    dnsmos: float
    seconds: float
    cost: float


_worker: dict[str, Any] = {}


def prepare(args: argparse.Namespace, taught: Sequence[int]) -> None:
    """Loads a worker's model and recogniser, once, and warms both up.

    Errors are raised by its tasks, as a pool restarts workers that end here again and again.

    Args:
        taught: the student's numbers of steps, of student_steps.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its workers
    try:
        load(args, taught)
    except (NanospeechError, OSError) as e:
        _worker["error"] = e


def load(args: argparse.Namespace, taught: Sequence[int]) -> None:
    """What a worker needs."""
    from nanospeech.load import load_engine
    from nanospeech.speech.speaker import Speaker

    engine = load_engine(args.model, args.backend, args.device, itself=True)
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)
    output = measured_in(engine.config.language)
    speaker = Speaker(engine, args.voice, args.ref_audio, args.ref_text, seed=0, output=output)
    _worker.update(speaker=speaker, whisper=metrics.load_whisper(args.whisper, 1))
    cells = [Cell("", SampleOptions())]
    if taught:
        engine = load_engine(args.model, args.backend, args.device)
        _worker["student"] = Speaker(engine, args.voice, seed=0, output=output)
        cells.append(Cell("", SampleOptions(steps=taught[0]), student=True))
    for cell in cells:
        speak_and_measure((cell, 0, "This sentence is not counted."))


def student_steps(args: argparse.Namespace, own: ModelConfig) -> tuple[int, ...]:
    """The numbers of steps in which the model's student speaks in the chosen voice; () if none."""
    voice = args.voice or own.default_voice
    if own.student is None or args.ref_audio or voice not in own.student.voices:
        return ()
    return own.student.step_counts


def voice_of(args: argparse.Namespace, release: Release) -> Voice | None:
    """The voice that is measured; None for a recording.

    Raises:
        InputError: there is none of that name, or the model's imitator speaks in it.
    """
    if args.ref_audio:
        voice = None
    elif args.voice:
        voice = find_voice(args.voice, release.folder)
    else:
        voice = default_voice(release.folder, release.config.default_voice)
    check_itself(release, voice)
    return voice


def speak_and_measure(task: tuple[Cell, int, str]) -> Row:
    """Speaks one text in one cell, and measures the result."""
    if error := _worker.get("error"):
        raise error
    cell, seed, text = task
    speaker = _worker["student" if cell.student else "speaker"]
    speaker.options, speaker.seed = cell.options, seed
    clock = time.process_time if speaker.engine.device == "cpu" else time.perf_counter
    began = clock()
    spoken = speaker.speak(text)
    cost = clock() - began
    wave = audio.resample(spoken.wave, spoken.sample_rate, audio.SAMPLE_RATE)
    language = spoken_code(speaker.engine.config.language)
    heard = metrics.transcribe(_worker["whisper"], wave, language=language)
    edits, words = wer_text.word_edits(text, heard, language)
    quality = metrics.dnsmos(wave)["ovrl"]
    return Row(cell.key, seed, text, heard, edits, words, quality, spoken.seconds, cost)


def about(args: argparse.Namespace, release: Release, voice: Voice | None) -> dict[str, Any]:
    """Settings that all utterances of a file share.

    Args:
        voice: of voice_of.
    """
    recording, words = (
        (args.ref_audio, args.ref_text) if voice is None else (voice.audio, voice.text)
    )
    prompt = Prompt(Recording(Path(recording)), words or "")
    settings = {name: str(getattr(args, name)) for name in ("device", "whisper")}
    settings |= {"backend": pick_backend(args.backend, release.config, args.device)}
    settings |= {"voice": str(args.voice or args.ref_audio or release.config.default_voice)}
    settings |= {"prompt": prompt.digest}
    return {"model": release.config.name, "weights": digest(release.folder), **settings}


def read_rows(path: Path, wanted: dict[str, Any]) -> list[Row]:
    """The utterances of an earlier sweep; a new file is begun if there is none.

    A last line that was cut off when a sweep was killed is removed.

    Raises:
        InputError: they are of another model, voice or recogniser, or the file is damaged.
    """
    beside = path.with_suffix(".json")
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(json.dumps(wanted, indent=2) + "\n", encoding="utf-8")
        with path.open("w", newline="", encoding="utf-8") as f:
            csv.writer(f).writerow([x.name for x in fields(Row)])
        return []
    try:
        found = json.loads(beside.read_text(encoding="utf-8"))
        drop_cut_line(path, [x.name for x in fields(Row)])
        kinds = {"int": int, "float": float, "str": str}
        with path.open(newline="", encoding="utf-8") as f:
            rows = [
                Row(**{x.name: kinds[str(x.type)](row[x.name]) for x in fields(Row)})
                for row in csv.DictReader(f)
            ]
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise InputError(f"cannot read {path} and {beside.name} beside it: {e}; delete both") from e
    if found != wanted:
        differ = [k for k in wanted if found.get(k) != wanted[k]]
        raise InputError(
            f"{path} was measured with another {', '.join(differ)}; name another --raw or delete it"
        )
    return rows


def measure(
    tasks: Sequence[tuple[Cell, int, str]], args: argparse.Namespace, taught: Sequence[int]
) -> Iterator[tuple[int, Row]]:
    """Runs the tasks in worker processes, in order; ends early after --pause-after."""
    context = multiprocessing.get_context("spawn")
    began = time.monotonic()
    with context.Pool(most(args.workers), prepare, (args, taught)) as pool:
        for done, row in enumerate(pool.imap(speak_and_measure, tasks), 1):
            yield done, row
            if args.minutes is not None and time.monotonic() - began > 60 * args.minutes:
                break
        else:  # the workers end by themselves, and tidy up
            pool.close()
            pool.join()


def sweep(args: argparse.Namespace) -> None:
    """Measures what is missing, then writes the table and the picture."""
    for name in ("whisper", "dnsmos", "pictures"):
        metrics.check(name)
    if args.doc:  # found wrong now, not hours later
        around(args.doc, steps_report.BEGIN, steps_report.END)
    texts = read_texts(args.sentences, args.limit)
    release = open_release(args.model)
    own, lines = release.config, args.lines or steps_report.LINES
    taught, voice = student_steps(args, own), voice_of(args, release)
    strength = voice and voice.settings.cfg_strength
    strength = own.cfg_strength if strength is None else strength
    wanted = cells(strength, own.temperature, lines, taught, own.cfg_rescale)
    if not wanted:
        raise InputError(f"the model has nothing to sweep for --lines {' '.join(lines)} here")
    with alone(args.out, "--out", say):
        fill(args, wanted, texts, taught, about(args, release, voice))


def fill(
    args: argparse.Namespace,
    wanted: Sequence[Cell],
    texts: Sequence[str],
    taught: Sequence[int],
    described: dict[str, Any],
) -> None:
    """Speaks what cells still lack of the texts, and writes the results."""
    from tqdm import tqdm

    unique = list({cell.key: cell for cell in wanted}.values())
    rows = read_rows(args.raw, described)
    there = {(r.key, r.seed, r.text) for r in rows}
    # sentence by sentence: whenever it ends, every cell has spoken the same ones
    tasks = [(c, s, t) for s in args.seeds for t in texts for c in unique]
    tasks = [task for task in tasks if (task[0].key, *task[1:]) not in there]
    if tasks:
        os.environ["OMP_NUM_THREADS"] = "1"
        with args.raw.open("a", newline="", encoding="utf-8") as f, tqdm(total=len(tasks)) as bar:
            for done, row in measure(tasks, args, taught):
                csv.writer(f).writerow(asdict(row).values())
                f.flush()
                rows.append(row)
                bar.update(done - bar.n)
    units = {(s, t) for s in args.seeds for t in texts}
    results = steps_report.summarize(wanted, [r for r in rows if (r.seed, r.text) in units])
    if not results:
        raise InputError(
            "no sentence has been spoken in every cell yet; give it more time by --pause-after"
        )
    args.out.mkdir(parents=True, exist_ok=True)
    steps_report.write_csv(results, args.out / "steps.csv")
    steps_report.draw(results, args.out / "steps.png")
    table = steps_report.table(results)
    print(table)
    if args.doc:
        steps_report.insert(table, args.doc, args.out)


def build_parser() -> argparse.ArgumentParser:
    p = Parser("nanospeech evaluate steps", __doc__)
    add = p.add_argument
    add("model", nargs="?", help="release folder or Hub repository; the packaged one if not given")
    add("--voice", help="built-in voice (default: the model's own)")
    add("--ref-audio", help="instead of a voice, a recording to imitate")
    add("--ref-text", help="what is said in it, if you like")
    add("--backend", default="auto", help="auto (default), torch, mlx or onnx")
    add("--device", default="cpu", help="for example cpu, cuda or gpu (default: %(default)s)")
    add(
        "--sentences",
        type=Path,
        default=SENTENCES,
        help="one a line, no test sentences (default: 30 that ship)",
    )
    add("--limit", type=int, help="only the first so many of them")
    add("--seeds", type=integers, default=[0], metavar="0,1", help="of the noise (default: 0)")
    add(
        "--lines",
        nargs="+",
        choices=steps_report.LINES,
        metavar="LINE",
        help=f"parts of the sweep: {', '.join(steps_report.LINES)} (default: all)",
    )
    add("--whisper", default="base", help="faster-whisper size or folder (base)")
    add("--workers", type=int, default=2, help="processes of one thread each (default: 2)")
    add_pause_after(p, "stop then; the same command resumes")
    add("--out", type=Path, default=Path("runs/steps"), help="folder of results (%(default)s)")
    add("--raw", type=Path, help="file of all utterances (default: OUT/utterances.csv)")
    add("--doc", type=Path, help="Markdown page whose picture and table are replaced")
    return p


@command(interrupted="interrupted; the same command goes on from here")
def main(argv: list[str] | None = None) -> int:
    args = build_parser().parse_args(argv)
    args.raw = args.raw or args.out / "utterances.csv"
    if args.limit is not None and args.limit < 1:
        raise InputError(f"--limit is {args.limit}; choose at least 1")
    if args.workers < 1:
        raise InputError(f"--workers is {args.workers}; choose at least 1")
    if min(args.seeds) < 0:
        raise InputError(f"--seeds holds {min(args.seeds)}; choose 0 or more")
    sweep(args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
