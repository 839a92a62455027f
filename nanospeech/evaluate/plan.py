"""Plan: the utterances of an evaluation, and which of them are not yet measured.

Makes tasks of evaluate's arguments; runs none of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from nanospeech.config import SampleOptions
from nanospeech.errors import InputError
from nanospeech.release.folder import load_config, open_release, resolve
from nanospeech.release.voices import default_voice, find_voice, list_voices
from nanospeech.speech.network import network_for

from .items import Prompt, Recording, named, read_items, read_recordings
from .results import Results
from .worker import Settings, Task


def names(text: str) -> list[str]:
    """A,B,C as a list without repetitions."""
    return list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def voices(args: argparse.Namespace) -> list[tuple[str, str | None, Prompt]]:
    """Names of the rows, the built-in voices that they are, and their prompts."""
    if args.ref_audio is not None:
        prompt = Prompt(Recording(args.ref_audio), args.ref_text or "")
        return [(args.ref_audio.stem, None, prompt)]
    folder = resolve(args.model)
    wanted = names(args.voice or "")
    if wanted == ["all"]:
        wanted = list_voices(folder)
    if wanted:
        found = [find_voice(name, folder) for name in wanted]
    else:
        found = [default_voice(folder, load_config(folder).default_voice)]
        wanted = [found[0].name]
    short = [v.name for v in found]
    rows = [v.name if short.count(v.name) == 1 else v.full_name for v in found]
    prompts = [Prompt(Recording(v.audio), v.text) for v in found]
    return list(zip(rows, wanted, prompts))


def sampling(args: argparse.Namespace) -> dict[str, Any]:
    """The fields of SampleOptions but for the steps, of which there may be several."""
    return {f.name: getattr(args, f.name) for f in fields(SampleOptions) if f.name != "steps"}


def spoken_tasks(args: argparse.Namespace) -> Iterator[Task]:
    """The utterances of the model: voice by voice, steps by steps, seed by seed."""
    items = read_items(args.sentences, args.limit)
    if items[0].prompt is None:
        speakers = voices(args)
    elif args.voice or args.ref_audio:
        raise InputError(
            f"{args.sentences} names a prompt for each text; leave out --voice and --ref-audio"
        )
    else:
        speakers = [(args.sentences.stem, None, None)]
    digests: dict[Prompt, str] = {}
    for name, voice, prompt in speakers:
        for steps in args.steps or [usual_steps(args, voice)]:
            for seed in args.seeds:
                for item in items:
                    own = item.prompt or prompt
                    assert own is not None
                    code = digests.get(own) or own.digest
                    digests[own] = code
                    yield Task(name, item, steps, seed, voice, own, code)


def usual_steps(args: argparse.Namespace, voice: str | None) -> int:
    """The solver's steps where none are asked for: in its voices those of the model's student."""
    release = open_release(args.model)
    found = None if voice is None else find_voice(voice, release.folder)
    network = network_for(release, found, SampleOptions(**sampling(args)))
    return release.of_network(network).config.steps


def recorded_tasks(args: argparse.Namespace) -> Iterator[Task]:
    """Recordings to measure; with similarity to the prompt where one voice is named."""
    rows: dict[str, list[Path]] = {}
    for given in args.recordings:
        name, path = named(given)
        rows.setdefault(path.stem if name is None else name, []).append(path)
    one = args.ref_audio or (args.voice and args.voice != "all" and "," not in args.voice)
    prompt = voices(args)[0][2] if one else None
    for name, paths in rows.items():
        for item in read_recordings(paths, args.limit, args.sentences):
            yield Task(name, item, prompt=prompt, digest=prompt.digest if prompt else None)


def plan(args: argparse.Namespace) -> list[Task]:
    """Every utterance that is asked for."""
    tasks = list(recorded_tasks(args))
    if args.model is not None or not args.recordings:
        tasks = list(spoken_tasks(args)) + tasks
    twice = len(tasks) - len({t.id for t in tasks})
    if twice:
        raise InputError(f"{twice} recordings have the key of another; give them other NAMEs")
    return tasks


def missing(tasks: Sequence[Task], results: Results, settings: Settings) -> list[Task]:
    """The unfinished tasks, with their finished measures.

    Raises:
        InputError: results.csv has another text or prompt for one.
    """
    left = []
    for task in tasks:
        before = results.rows.get(task.id)
        if before is None:
            left.append(task)
            continue
        pairs = ((before.text, task.item.text), (before.prompt, task.digest))
        for what, (was, now) in zip(("text", "prompt"), pairs):
            if was != now:
                raise InputError(
                    f"the {what} of {task.name}, {task.item.key} was {was!r} and is {now!r};"
                    " choose another --out"
                )
        if set(settings.metrics) - set(before.done.split()):
            left.append(replace(task, before=before))
    return left
