r"""Makes shards of people whose words nobody wrote down: recordings to learn voices from.

    mkdir debs root && cd debs
    apt-get download fillets-ng-data-cs fillets-ng-data-nl klettres-data ktuberling-data \
      qabcs-data kajongg hedgewars-data tuxpaint-stamps-default
    for file in *.deb; do dpkg -x "$file" ../root; done; cd ..
    python -m scripts.recipes.untranscribed --debian root --out shards
    python -m scripts.recipes.untranscribed anna=recordings/anna --out shards

Free games and programs for children speak many languages: some eighty people, of whom few have
minutes and most some words. What is said does not matter to a voice, so such clips have no text,
and `loss.untranscribed=true` learns from them how a voice goes on after its prompt. Recordings of a
person are joined, in an order drawn by --seed, to clips of two to six seconds; --minutes is the
most of one person. What has no sound above 7 kHz, as by telephone, is left out, for it would be
learned too.

NAME=FOLDER is a person with all recordings below a folder. --debian is where the packages above
were unpacked; the terms are in usr/share/doc/PACKAGE/copyright of each: most are under the GPL.

One shard a person: MP3s and `{key}.json` with an empty text, duration in seconds, speaker, source.
Shards that are there are not made again.
"""

from __future__ import annotations

import argparse
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import soundfile
from tqdm import tqdm

from nanospeech.audio import wave as audio
from nanospeech.audio.recording import bandwidth
from nanospeech.audio.wave import SAMPLE_RATE
from nanospeech.cli import Parser, command
from nanospeech.corpus.layouts import AUDIO
from nanospeech.errors import InputError
from scripts.recipes.clip_shard import Clip, write_clips
from scripts.recipes.synthesize import finish

RATE = 20_000  # Hz, that a recording has at least
TOP = 7_000  # Hz, to where its sound reaches
SECONDS = 0.2, 12.0  # of a recording
CLIP = 2.2, 6.5  # seconds from which a clip is full, drawn between these
LONGEST = 10.0  # seconds of a clip

SHARE, GAMES = "usr/share", "usr/share/games"
FISH = f"{GAMES}/fillets-ng/sound"
STAMPS = f"{SHARE}/tuxpaint/stamps"
ABCS = f"{SHARE}/qabcs/abcs"
SYLLABLES = "ar cs da de en en_GB es fr he hu it lt ml nb nds nl pt_BR ru tn uk"
POTATOES = "ca da de el en fr ga gl lt ro ru sl sr uk wa"
LETTERS = "be de en en_gb fr pl ru uk"
ANIMALS = "be bg ca da el es fr lt nl ro ru"
VOICES = f"{GAMES}/hedgewars/Data/Sounds/voices"
HOGS = (
    "British Classic Default Default_es Default_pl Default_ru Default_uk HillBilly Mobster Pirate"
    " Russian Russian_pl Surfer"
)
# of each person the patterns of the recordings, below the folder where packages were unpacked
DEBIAN: dict[str, tuple[str, ...]] = {
    **{
        f"fillets-{language}-{who}": (f"{FISH}/**/{language}/*-{who}-*.ogg",)
        for language, people in (("cs", "m v hs c r"), ("nl", "m v"))
        for who in people.split()
    },
    **{f"klettres-{n}": (f"{SHARE}/klettres/{n}/**/*.ogg",) for n in SYLLABLES.split()},
    **{f"ktuberling-{n}": (f"{SHARE}/ktuberling/sounds/{n}/*.*",) for n in POTATOES.split()},
    **{
        f"qabcs-{n}": (f"{ABCS}/{n}/sounds/alpha/*.ogg", f"{ABCS}/{n}/sounds/words/*.ogg")
        for n in LETTERS.split()
    },
    **{
        f"kajongg-{who}": (f"{SHARE}/kajongg/voices/{who}/*.ogg",)
        for who in ("female2", "male2", "de/female2", "de/male1", "de/male2")
    },
    **{f"hedgewars-{n}": (f"{VOICES}/{n}/*.ogg",) for n in HOGS.split()},
    **{f"tuxpaint-{n}": (f"{STAMPS}/**/*_desc_{n}.ogg",) for n in ANIMALS.split()},
}


def usable(path: Path) -> np.ndarray | None:
    """A recording at SAMPLE_RATE, trimmed and levelled: float32 (n,); None if it is of no use."""
    try:
        about = soundfile.info(path)
        if about.samplerate < RATE or not SECONDS[0] <= about.duration <= SECONDS[1]:
            return None
        wave = audio.read(path)
    except (soundfile.LibsndfileError, InputError):
        return None
    if about.duration > 1 and bandwidth(wave, SAMPLE_RATE) < TOP:
        return None
    return finish(wave)


def clips_of(recordings: Iterable[np.ndarray], rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Recordings joined to clips; what is left at the end is no clip."""
    parts: list[np.ndarray] = []
    wanted = rng.uniform(*CLIP)
    for wave in recordings:
        parts.append(wave)
        length = sum(map(len, parts)) / SAMPLE_RATE
        if length < wanted:
            continue
        if length <= LONGEST:
            yield np.concatenate(parts)
        parts, wanted = [], rng.uniform(*CLIP)


def heard(name: str, files: Sequence[Path], most: float, seed: int) -> Iterator[Clip]:
    """A person's clips.

    Args:
        files: of the person.
        most: seconds.
        seed: of their order, with the name.
    """
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    order = tqdm([files[int(i)] for i in rng.permutation(len(files))], name, disable=None)
    waves = (wave for file in order if (wave := usable(file)) is not None)
    for n, wave in enumerate(clips_of(waves, rng)):
        most -= len(wave) / SAMPLE_RATE
        if most < 0:
            return
        yield Clip(f"{name}-{seed}_{n:05d}", wave, "", name, name.split("-")[0])


def person(value: str) -> tuple[str, list[Path]]:
    """Reads NAME=FOLDER."""
    name, _, folder = value.partition("=")
    if not name or not folder or "/" in name:
        raise argparse.ArgumentTypeError(f"{value!r} is not NAME=FOLDER")
    return name, below(Path(folder), ("**/*.*",))


def below(folder: Path, patterns: Sequence[str]) -> list[Path]:
    """Recordings of some patterns, sorted.

    Raises:
        InputError: there is no such folder.
    """
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder}")
    found = {p for pattern in patterns for p in folder.glob(pattern)}
    return sorted(p for p in found if p.suffix.lower() in AUDIO)


@command
def main(argv: list[str] | None = None) -> int:
    parser = Parser("python -m scripts.recipes.untranscribed", __doc__)
    parser.add_argument("people", type=person, nargs="*", help="NAME=FOLDER of each")
    parser.add_argument("--debian", type=Path, help="folder into which packages were unpacked")
    parser.add_argument("--out", type=Path, required=True, help="folder of shards")
    parser.add_argument("--minutes", type=float, default=10.0, help="the most of one person")
    parser.add_argument("--seed", type=int, default=0)
    a = parser.parse_args(argv)
    if a.minutes <= 0:
        raise InputError(f"--minutes is {a.minutes:g}; more than 0")
    people = dict(a.people)
    if a.debian is not None:
        found = {name: below(a.debian, patterns) for name, patterns in DEBIAN.items()}
        people |= {name.replace("/", "-"): files for name, files in found.items() if files}
        if not any(found.values()):
            raise InputError(f"none of the packages named above is unpacked in {a.debian}")
    if not people:
        raise InputError("no people: give NAME=FOLDER of some, or --debian")
    a.out.mkdir(parents=True, exist_ok=True)
    total = 0.0
    for name, files in people.items():
        path = a.out / f"{name}-{a.seed}.tar"
        if path.exists():
            continue
        seconds = write_clips(path, heard(name, files, 60 * a.minutes, a.seed))
        if not seconds:
            path.unlink()  # an empty shard is a broken one to those that read it
        total += seconds
        print(f"{path.name}: {seconds / 60:.1f} minutes", flush=True)
    print(f"{total / 3600:.2f} hours more")
    return 0


if __name__ == "__main__":
    sys.exit(main())
