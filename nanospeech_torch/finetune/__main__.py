"""Finetunes a model to a voice: recordings in, release folder with a new built-in voice out.

    nanospeech finetune --data recordings/ --voice anna --output my_voice
    nanospeech finetune --model lucasnewman/nanospeech --data shards/*.tar --lora 16 \\
        --voice anna --output my_voice

DATA is a folder of X.wav (or .mp3, .flac, .ogg, .opus) with the words of each in X.txt, or any
layout that nanospeech prepare reads: LibriTTS, LJSpeech, a manifest, WebDataset shards. Five
minutes of one voice are enough. The same command run again resumes where it stopped. The voice of a
person needs that person's consent.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import Any

from nanospeech.cli import Parser, add_fields, command, read_fields
from nanospeech.corpus.skips import examples, list_skips
from nanospeech.errors import InputError, require
from nanospeech.locks import alone
from nanospeech.machine import share_cores
from nanospeech.release.folder import Release, open_release
from nanospeech.release.user_voices import check_name
from nanospeech.text.tags import as_tag

from . import hearing
from . import recordings as data
from .export import export, licence_note
from .options import Options
from .prompts import choose_prompt, read_prompt
from .start import (
    base_of,
    check_output,
    check_steps,
    choose_start,
    described,
    is_imitator,
    same_run,
    settle,
)

SAMPLE = "This is how I sound now, after a few minutes of training."
# how an imitator learns, as in nanospeech/configs/any_voice.yaml: most clips after another one
IMITATED: dict[str, Any] = {"drop_audio": 0.1, "drop_both": 0.1, "spell": 0.05, "pair": 0.8}
PAIRED = 1.5  # times --max-seconds: at most so long are two clips together


def main_process_first() -> Any:
    """Lets the first of several processes prepare what the others then find."""
    import torch

    if int(os.environ.get("WORLD_SIZE", 1)) == 1:
        return contextlib.nullcontext()
    accelerate = require("accelerate", "train")
    from nanospeech_torch.train.scale.parallel import PATIENCE

    cpu = not torch.accelerator.is_available()
    return accelerate.PartialState(cpu=cpu, timeout=PATIENCE).main_process_first()


def gather(
    args: argparse.Namespace, longest: float, release: Release, run: Path
) -> dict[str, list]:
    """Recordings to train on, held back and to rehearse, prepared once below the run's folder.

    Args:
        longest: seconds; longer ones are left out.
    """
    jobs: list[tuple[str, Any, Any, Any]] = [("data", args.data, args.minutes, args.voice)]
    if args.rehearse:
        jobs.append(("rehearse", args.rehearse, None, None))
    settled = (run / "finetune.json").is_file()  # if not, a folder there may be of other options
    for name, inputs, minutes, speaker in jobs:
        out = run / name
        if settled and out.is_dir():
            data.warn_of_changes(inputs, out)
        else:
            samples, skips = data.find_samples(inputs)
            if name == "data":
                data.warn_of_speakers(samples)
            held = data.held_back_count(args.held_back, len(samples)) if name == "data" else 0
            settings = minutes, speaker, args.seed, held, longest
            read, unread = data.in_their_languages(samples, release.tokenizer)
            skips += unread + data.write_voice(read, out, release.config, *settings)
            list_skips(out / "skipped.csv", skips)
            data.keep_list(samples, out)
            for line in examples(skips):
                print(f"left out {line}", file=sys.stderr)
    tars = {"voice": "data/voice-*.tar", "held": "data/held-*.tar"}
    if args.rehearse:  # else the folder is of a command that was refused
        tars["others"] = "rehearse/voice-*.tar"
    return {k: data.read_recordings(sorted(run.glob(pattern))) for k, pattern in tars.items()}


def build(args: argparse.Namespace, release: Release, texts: list[str]) -> tuple[Any, Any]:
    """The model to train and the config of its adapters, None for a full finetune."""
    from nanospeech_torch.adapters import LoraConfig, add_lora
    from nanospeech_torch.train.data.batch import LossConfig
    from nanospeech_torch.train.initial import load_objective
    from nanospeech_torch.train.objectives.flow import keep_reading_

    tags = [as_tag(name) for name in args.tags or ()]
    extra = data.missing_characters(texts, release.tokenizer) if args.extend_vocab else []
    imitator = is_imitator(release.config)
    loss = LossConfig(**IMITATED) if imitator else None
    objective = load_objective(release, [*tags, *extra], loss)
    data.check_tags(texts, tags, objective.tokenizer)  # type: ignore[arg-type]
    added = len(objective.tokenizer) - len(release.tokenizer)  # type: ignore[arg-type]
    if added:
        print(f"{added} new tokens: {' '.join([*tags, *extra])}")
    elif lost := data.unknown_characters(texts, release.tokenizer):
        listed = ", ".join(f"{c!r} ({n} times)" for c, n in list(lost.items())[:8])
        print(f"the model has no {listed}; left out, unless with --extend-vocab", file=sys.stderr)
    lora = None
    if args.lora:
        lora = LoraConfig(args.lora, 2.0 * args.lora)
        lora = dataclasses.replace(lora, targets=args.targets or lora.targets, thin=args.thin)
        objective = add_lora(objective, lora, added)
    if imitator and not added:  # it reads for all speakers; of a few minutes words become unclear
        keep_reading_(objective.transformer)
    return objective, lora


def train(
    args: argparse.Namespace,
    options: Options,
    objective: Any,
    lora: Any,
    dataset: Any,
    paired: float = 1.0,
) -> Any:
    """Trains; the checkpoints lie in the run's folder.

    Args:
        paired: times --max-seconds, how long a recording is at most with the one before it.
    """
    import torch

    from nanospeech_torch.adapters import trainable
    from nanospeech_torch.finetune.trainer import FinetuneTrainer
    from nanospeech_torch.train.loop.config import TrainConfig

    parameters = trainable(objective)
    assert options.lr is not None and options.steps is not None
    optimizer = torch.optim.AdamW(parameters, options.lr, (0.9, 0.99), weight_decay=0.0, fused=True)
    config = TrainConfig(
        ema_decay=options.ema_decay, log_every=10, keep=1, seed=options.seed, schedule="linear"
    )
    kind = args.precision or fast_precision()
    warmup = min(options.warmup, options.steps // 4)
    how = warmup, {"mixed_precision": kind}, args.run
    trainer = FinetuneTrainer(objective, optimizer, *how, config=config, lora=lora)
    learned, whole = (sum(p.numel() for p in ps) for ps in (parameters, objective.parameters()))
    kind = "float32" if kind == "no" else kind
    trainer.accelerator.print(f"{learned:,} of {whole:,} weights are trained, in {kind}")
    frame_rate = objective.audio.frame_rate
    processes = trainer.parallel.data_world
    trainer.train(
        dataset,
        options.steps,
        max(1, options.batch_size // processes),
        max(1, options.batch_frames // processes),
        int(paired * options.max_seconds * frame_rate),
        save_step=options.save_step,
        cache_bytes=2**30,
    )
    return trainer


def fast_precision() -> str:
    """bf16 where the hardware computes in it, else float32."""
    import torch

    if torch.cuda.is_available():
        return "bf16" if torch.cuda.is_bf16_supported(False) else "no"
    from nanospeech_torch.engine import has_bfloat16

    return "bf16" if has_bfloat16() else "no"


def speak(args: argparse.Namespace) -> Path:
    """A sample sentence, spoken by the new voice, in the release folder."""
    from nanospeech.load import load_engine
    from nanospeech.speech.speaker import Speaker

    engine = load_engine(args.output, backend="torch")
    path = Path(args.output) / "sample.wav"
    Speaker(engine, seed=args.seed).speak(args.text).save(path)
    return path


def build_parser() -> argparse.ArgumentParser:
    p = Parser("nanospeech finetune", __doc__)
    add = p.add_argument
    add("--data", nargs="+", type=Path, required=True, help="recordings with their words")
    add("--voice", required=True, help="name of the new voice")
    add("--output", type=Path, required=True, help="release folder to write")
    add("--model", help="release folder or Hub name to start from; default: the voice that ships")
    add(
        "--from-voice",
        metavar="NAME",
        help="start from the weights of this voice of the model, none: of none of them; default:"
        " the model's imitator, which speaks after recordings; else those that fit the recordings"
        " best",
    )
    add(
        *("--run", "--run-dir"),  # torchrun takes the first for a flag of its own
        type=Path,
        dest="run",
        help="folder for data and checkpoints; default: runs/VOICE",
    )
    how = p.add_mutually_exclusive_group()
    how.add_argument("--full", action="store_true", help="train all weights (the default)")
    how.add_argument("--lora", type=int, default=0, metavar="RANK", help="train adapters, say 16")
    add(
        "--targets",
        help="with --lora: layers with adapters, by the ends of their names,"
        " with commas between; default: those of attention and feed-forward",
    )
    add("--thin", action="store_true", help="with --lora: train biases, norms and the like too")
    add(
        "--held-back",
        type=int,
        metavar="N",
        help="recordings that are kept to measure the voice with, before and after; default: an"
        " eighth, at most 6, none of fewer than 16",
    )
    add("--whisper", default="base", help="that listens then: a size or a folder (base)")
    add("--minutes", type=float, help="train on so much of the data; set the rest aside")
    add("--rehearse", nargs="+", type=Path, help="recordings to mix in, of what to keep")
    add(
        "--tags",
        nargs="+",
        metavar="TAG",
        help="sounds to learn as tokens of their own, such as breath, which the transcripts have"
        " as <breath>; see prepare tags",
    )
    add("--extend-vocab", action="store_true", help="new tokens for characters the model lacks")
    add(
        "--prompt",
        type=Path,
        help="recording to speak after, with X.txt; default: the best of DATA",
    )
    add("--license", help="of the recordings: a line for the voice's note and the model card")
    add("--text", default=SAMPLE, help="of sample.wav, spoken at the end (default: %(default)s)")
    add("--precision", choices=["no", "bf16", "fp16"], help="default: bf16 where it is fast")
    add("--threads", type=int, help="CPU threads of torch")
    add_fields(p, Options)
    return p


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Does it all; returns what was made."""
    given = read_fields(args, Options)
    check_name(args.voice)
    if args.threads is not None:
        from nanospeech_torch.training_cpu import set_threads

        set_threads(args.threads)
    args.run = args.run or Path("runs") / args.voice
    if args.minutes is not None and not args.minutes > 0:
        raise InputError(f"--minutes is {args.minutes:g}; choose more than 0")
    if (args.held_back or 0) < 0:
        raise InputError(f"--held-back is {args.held_back}; choose 0 or more")
    release = open_release(args.model)
    if release.config.echo is not None:
        raise InputError(
            f"{release.folder} holds an EchoDiT, which finetune does not train; name a model of"
            " another kind by --model, or speak after a recording of the voice (nanospeech speak"
            " --ref-audio)"
        )
    check_output(args.output, release.folder, args.run)
    release = base_of(release, args.from_voice, args.run)
    check_output(args.output, release.folder, args.run)
    options = given.filled_in(args, is_imitator(release.config))
    first = int(os.environ.get("RANK", 0)) == 0
    with alone(args.run, "--run", print) if first else contextlib.nullcontext():
        return make(args, options, release)


def make(args: argparse.Namespace, options: Options, release: Release) -> dict[str, Any]:
    """Trains, exports and listens, in a folder that no other run writes to."""
    with main_process_first():
        same_run(described(args), args.run)
        found = gather(args, options.max_seconds, release, args.run)
        voice = found["voice"]
        start = choose_start(args.from_voice, release, voice, args.run)
        release = dataclasses.replace(release, voice=start.weights)
        check_steps(options.steps or 0, args.run)
        seconds = sum(r.seconds for r in voice)
        print(f"{len(voice)} recordings, {seconds / 60:.1f} minutes, to train on")
        print(start.describe(release.beside is not None))
        objective, lora = build(args, release, [r.text for r in voice])
        if args.prompt:
            prompt = read_prompt(args.prompt, release.config, objective.tokenizer)
        else:
            prompt = choose_prompt(voice, release.config, objective.tokenizer)
        licence_note(args)  # what cannot be read is told before the training, not after it
        # what was refused until here may be put right: recordings and options are free until then
        settle(args, release, start, args.run)
    others = found.get("others", [])
    share = options.rehearse_share if others else 0.0
    dataset = data.Recordings(voice, others, share, options.seed)
    paired = PAIRED if is_imitator(release.config) else 1.0
    trainer = train(args, options, objective, lora, dataset, paired)
    if not trainer.accelerator.is_main_process:
        return {}
    if trainer.step < (options.steps or 0):
        print(f"stopped at step {trainer.step} of {options.steps}; the same command goes on")
        return {}
    assert options.strength is not None
    export(args, options.strength, release, objective, prompt, seconds)
    print(f"prompt: {prompt.key}, {prompt.seconds:.1f} s: {prompt.text}")
    hearing.compare(found["held"], release, start.voice, prompt, args, options.strength)
    sample = speak(args)
    return {"output": str(args.output), "sample": str(sample), "steps": trainer.step}


@command
def main(argv: list[str] | None = None) -> int:
    args = build_parser().parse_args(argv)
    share_cores()
    for package in ("torch", "accelerate", *(["peft"] if args.lora else [])):
        require(package, "finetune" if package == "peft" else "train")
    made = run(args)
    if made:
        print(json.dumps(made))
    return 0


if __name__ == "__main__":
    sys.exit(main())
