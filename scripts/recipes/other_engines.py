r"""Makes speech with text-to-speech programs that are installed: shards of more people to train on.

    apt-get install flite festival festvox-kdlpc16k
    apt-get install rhvoice rhvoice-english libttspico-utils   # Debian's non-free
    python -m scripts.recipes.other_engines texts.txt --out shards --each 110

Their voices were made of recordings of people, so they are vocal tracts that no other synthetic
voice here has; that they buzz is a part of the prompt as much as of what follows it. The table
below has those whose terms let their speech be used for anything. --engine NAME="program -o {out}
{text}" adds one of your own, and with --only NAME it speaks alone; a program whose command has no
{text} reads it from its standard input. No shell sees the command.

One shard a voice, so that prompts and what follows them are found beside one another. A voice says
sentences of its own, a function of --seed and its name; shards that are there are not made again.
Each has MP3s and `{key}.json` with text, duration in seconds, speaker, source, license. Let a
recogniser hear the result (`nanospeech prepare hear`): these programs misread more than others.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tqdm import tqdm

from nanospeech.audio import wave as audio
from nanospeech.cli import Parser, command
from nanospeech.errors import InputError
from scripts.recipes.clip_shard import Clip, write_clips
from scripts.recipes.synthesize import finish, sentences

ARCTIC = "CMU ARCTIC: free for any use"
CHARACTERS = 25, 110  # of a sentence: of some two to eight seconds
SECONDS = 60  # that a program may take for a sentence


@dataclass(frozen=True)
class Engine:
    """A voice of a program.

    Attributes:
        command: words of the command line; {out} is the WAV to write, {text} what to say.
        source: of its speech, for the shards.
        license: the same.
    """

    command: tuple[str, ...]
    source: str = "own"
    license: str = "unknown"


def words(line: str) -> tuple[str, ...]:
    return tuple(shlex.split(line))


ENGINES = {
    **{
        f"rhvoice-{who}": Engine(words(f"RHVoice-test -p {who} -o {{out}}"), "RHVoice", ARCTIC)
        for who in ("bdl", "clb", "slt")
    },
    **{
        f"flite-{who}": Engine(words(f"flite -voice {who} -t {{text}} -o {{out}}"), "Flite", ARCTIC)
        for who in ("awb", "rms")
    },
    "flite-kal16": Engine(words("flite -voice kal16 -t {text} -o {out}"), "Flite", "BSD (CMU)"),
    "festival-ked": Engine(
        words("text2wave -eval (voice_ked_diphone) -o {out}"), "Festival", "BSD (CMU)"
    ),
    **{
        f"pico-{language}": Engine(
            words(f"pico2wave -l {language} -w {{out}} {{text}}"), "SVOX Pico", "Apache-2.0"
        )
        for language in ("en-GB", "en-US")
    },
}


def speak(engine: Engine, text: str, out: Path) -> np.ndarray | None:
    """What a program says, trimmed and levelled: float32 (n,) at SAMPLE_RATE; None if nothing.

    Raises:
        InputError: the program failed, or wrote nothing.
    """
    out.unlink(missing_ok=True)
    places = {"{text}": text, "{out}": str(out)}
    given = [places.get(word, word) for word in engine.command]
    said = None if "{text}" in engine.command else text
    try:
        done = subprocess.run(given, input=said, capture_output=True, text=True, timeout=SECONDS)
    except (OSError, subprocess.TimeoutExpired) as e:
        raise InputError(f"{engine.command[0]} could not say {text!r}: {e}") from None
    if done.returncode or not out.exists():
        told = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["no WAV was written"]
        raise InputError(f"{engine.command[0]} could not say {text!r}: {told[0]}")
    return finish(audio.read(out))


def share(name: str, texts: Sequence[str], each: int, seed: int) -> list[str]:
    """Those that a voice says: a function of its name and the seed, each once."""
    order = np.random.default_rng([seed, zlib.crc32(name.encode())]).permutation(len(texts))
    return [texts[int(i)] for i in order[:each]]


def spoken(name: str, engine: Engine, said: Sequence[str]) -> Iterator[Clip]:
    """Texts as a voice speaks them; what it cannot say is left out."""
    with tempfile.TemporaryDirectory() as folder:
        for n, text in enumerate(tqdm(said, name, unit="clip", disable=None)):
            wave = speak(engine, text, Path(folder) / "said.wav")
            if wave is not None:
                yield Clip(f"{name}_{n:05d}", wave, text, name, engine.source, engine.license)


def own_engine(value: str) -> tuple[str, Engine]:
    """Reads NAME=COMMAND."""
    name, _, line = value.partition("=")
    if not name or "/" in name or "{out}" not in words(line):
        raise argparse.ArgumentTypeError(f"{value!r} is not NAME='program -o {{out}} {{text}}'")
    return name, Engine(words(line))


@command
def main(argv: list[str] | None = None) -> int:
    parser = Parser("python -m scripts.recipes.other_engines", __doc__)
    parser.add_argument("texts", type=Path, help="a sentence a line")
    parser.add_argument("--out", type=Path, required=True, help="folder of shards")
    parser.add_argument("--each", type=int, default=110, help="sentences of a voice")
    parser.add_argument(
        "--exclude", type=Path, nargs="*", default=[], help="texts not to be spoken"
    )
    parser.add_argument("--engine", type=own_engine, action="append", default=[], help="see above")
    parser.add_argument("--only", nargs="*", help="voices; default: of the programs that are there")
    parser.add_argument("--seed", type=int, default=0)
    a = parser.parse_args(argv)
    if a.each < 1:
        raise InputError(f"--each is {a.each}; 1 or more")
    engines = ENGINES | dict(a.engine)
    if unknown := set(a.only or ()) - engines.keys():
        raise InputError(f"no voice {', '.join(sorted(unknown))}; there are: {', '.join(engines)}")
    there = {n: e for n, e in engines.items() if shutil.which(e.command[0])}
    if missing := sorted(set(a.only or ()) - there.keys()):
        raise InputError(f"not installed: {engines[missing[0]].command[0]}, for {missing[0]}")
    chosen = a.only or list(there)
    if not chosen:
        raise InputError(
            f"none is installed of: {', '.join(sorted({e.command[0] for e in engines.values()}))}"
        )
    shortest, longest = CHARACTERS
    texts = [t for t in sentences(a.texts, a.exclude) if shortest <= len(t) <= longest]
    if not texts:
        raise InputError(
            f"{a.texts} has no sentences of {shortest} to {longest} characters but those of"
            " --exclude; name more of them"
        )
    a.out.mkdir(parents=True, exist_ok=True)
    for name in chosen:
        path = a.out / f"{name}-{a.seed}.tar"
        if path.exists():
            continue
        seconds = write_clips(path, spoken(name, engines[name], share(name, texts, a.each, a.seed)))
        print(f"{path.name}: {seconds / 60:.1f} minutes", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
