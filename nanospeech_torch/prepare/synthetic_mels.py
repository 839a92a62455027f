"""Synthetic mels: those of recordings as a speech model makes them, to train its vocoder on.

    nanospeech prepare mels FOLDER runs/kathleen/finetune/data/voice-*.tar --voice kathleen \\
        --out runs/made
    nanospeech train vocoder_made \\
        --set initial=FOLDER "data.shards=[runs/made/*.tar]"
    nanospeech prepare mels FOLDER/imitator shards/*.tar --each-speaker --poor-prompts 0.4 \\
        --out runs/made
    nanospeech prepare mels FOLDER shards/*.tar --voice paula --as-heard --out runs/made

A small model's mels are slightly blurred, and a vocoder that was trained on those of recordings
alone makes the blur audible. The mel of each clip is noised part of the way, and the model's
sampler denoises it, with the voice's prompt before it and its tokens aligned to the recording. The
result has the model's blur and still fits the recording frame by frame (noising as in SDEdit, arXiv
2108.01073; vocoders trained on a model's own mels: Tacotron 2, arXiv 1712.05884). After a noisy or
narrow prompt the mel is worse and the recording is not, which a vocoder can learn to make good:
--poor-prompts. --as-heard has whoever speaks for users make the mels, students too, which begin at
their last step, and sharpens them as they will be: what the vocoder will hear. Writes tars of the
recording, its JSON, and the mel as float16 in X.npy. After an interruption the same command goes on
after the last whole shard, unless it is to --overwrite. The last line is one JSON document.
"""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from nanospeech.audio import wave as audio
from nanospeech.audio.mel import log_mel
from nanospeech.audio.postfilter import postfilter
from nanospeech.cli import Parser, command
from nanospeech.config import SampleOptions
from nanospeech.corpus.layouts import Sample, Skip
from nanospeech.corpus.mp3 import BadAudio, decode
from nanospeech.corpus.skips import by_reason, find_some
from nanospeech.corpus.written_out import written_out
from nanospeech.engine.sampling import integrate, noise, time_grid
from nanospeech.errors import InputError
from nanospeech.load import load_engine
from nanospeech.prepare.made import made_shards
from nanospeech.prepare.shards import OVERWRITE, npy, plain_key
from nanospeech.release.tensors import digest
from nanospeech.speech.speaker import Speaker
from nanospeech.text.sentences import encode
from nanospeech_torch.train.data.heard import spoiled

SIZE = 500  # clips of a shard
PROMPT = 2.5, 9.0  # seconds of a recording that the others of its speaker are made after


def synthetic_mel(
    speaker: Speaker,
    wave: np.ndarray,
    text: str,
    since: float,
    seed: int,
    poorer: np.random.Generator | None = None,
) -> np.ndarray:
    """The log mel of a recording, denoised by the model from a noised version of it.

    Args:
        speaker: the voice; its prompt goes before. A student makes its last step.
        wave: float32 (n,) at the model's rate, as loud as the model's data.
        since: time of the ODE that the recording is noised to: near 0 little of it is left. A
            student's last step begins at its own time.
        seed: of the noise.
        poorer: draws the noise and band of a poor recording, as which the prompt is heard; None: as
            it is.

    Returns:
        float32 (N, M), frame by frame that of the recording; whole patches.

    Raises:
        InputError: fewer frames than tokens, or nothing to say.
    """
    engine, prompt = speaker.engine, speaker.prompt
    options = SampleOptions(cfg_strength=prompt.settings.cfg_strength)
    c, patch = engine.config, engine.config.dit.patch_size
    mel = log_mel(wave, c.audio)
    mel = mel[: len(mel) // patch * patch]
    said = " ".join(speaker.chunks(text))
    tokens = np.concatenate([prompt.tokens, encode(said + c.dit.edge, engine.tokenizer)])
    before = prompt.mel if poorer is None else spoiled(prompt.mel, c.audio, poorer)
    start, whole = len(before), np.concatenate([before, mel])[None]
    if len(tokens) * patch > whole.shape[1]:
        raise InputError(f"{len(mel)} frames are too few for {said!r}")
    lens, cond = np.array([whole.shape[1]]), whole.copy()
    cond[:, start:] = 0
    fresh = np.arange(whole.shape[1])[None] >= start
    with engine.context():
        # aligned as a prompt is, so that each token lies where it does in the recording
        made = engine.text_states(tokens[None], whole, lens, lens, np.array([len(tokens)]))
        states, filler = (engine.to_weights(s) for s in made)
        normal = engine.to_weights(engine.array(engine.normalised(cond)))
        velocity = engine.guided(options, (normal, states, None), filler, fresh)
        if engine.distilled:
            since, *rest = engine.grid(options)[-2:]
        else:
            grid = time_grid(
                int(c.chosen(options, "steps")), options.schedule, options.sway_sampling_coef
            )
            rest = [t for t in grid if t > since + 0.01]
        spread = c.chosen(options, "temperature") * (1 - since)
        state = spread * noise(lens[0], c.audio.n_mels, seed)[None]
        state = engine.array((state + since * engine.normalised(whole)).astype(np.float32))
        *_, last = integrate(velocity, state, [since, *rest], options.method)
        found = engine.numpy(last)[0, start:]
    return found * c.audio.mel_std + c.audio.mel_mean


class Cast:
    """Who speaks: one voice, or each recording's own speaker.

    Args:
        engine: the model.
        one: the voice; None: each speaker's, after the first of its recordings that can be a prompt
            (PROMPT).

    Attributes:
        speakers: those that have a prompt, by name; none of one voice.
    """

    def __init__(self, engine: Any, one: Speaker | None):
        self.engine, self.one = engine, one
        self.speakers: dict[str, Speaker] = {}

    def speaker(self, sample: Sample, wave: np.ndarray) -> Speaker | None:
        """Who speaks a sample; None where it becomes its speaker's prompt, or comes before it."""
        if self.one is not None:
            return self.one
        name = named(sample)
        if (found := self.speakers.get(name)) is None:
            shortest, longest = PROMPT
            if shortest <= len(wave) / self.engine.config.audio.sample_rate <= longest:
                self.speakers[name] = Speaker(self.engine, None, wave, sample.text, seed=0)
        return found


def named(sample: Sample) -> str:
    """The speaker's name; recordings without one are of one person."""
    return sample.speaker or "one"


def load_maker(model: Path, as_heard: bool) -> Any:
    """The engine of a model that aligns recordings.

    Args:
        as_heard: voices are spoken as for users; else by the model itself, which can begin at any
            time of the ODE.

    Raises:
        InputError: it does not align, or cannot begin at any time.
    """
    engine = load_engine(model, backend="torch", itself=not as_heard)
    if not engine.aligned:
        raise InputError(f"{engine.folder} is no aligned model: it cannot align texts")
    if engine.distilled and not as_heard:
        raise InputError(
            f"{engine.folder} is distilled: it cannot begin between its steps; name its teacher,"
            " or --as-heard for its last step"
        )
    return engine


def made_again(
    sample: Sample,
    cast: Cast,
    since: tuple[float, float],
    max_seconds: float,
    poor: float,
    rng: np.random.Generator,
    as_heard: bool = False,
) -> tuple[np.ndarray, np.ndarray] | Skip:
    """A sample's wave, as loud as the model's data, and its mel by the model; or why there is none.

    Args:
        since: between which times of the ODE the sampler starts.
        max_seconds: of a clip.
        poor: probability that the prompt is heard as a poor recording.
        rng: draws that time, the noise, and how poor the prompt is.
        as_heard: the mel has the model's postfilter.
    """
    try:
        sample = written_out(sample, cast.engine.tokenizer)
        wave, _ = decode(sample.audio.read(), 0.5, max_seconds)
        wave, _ = audio.set_level(wave, cast.engine.config.audio.prompt_rms)
        wave = audio.unclipped(wave)
        if (speaker := cast.speaker(sample, wave)) is None:
            return Skip(sample.name, "its speaker's prompt, or before it")
        start = float(rng.uniform(*since))
        seed = int(rng.integers(2**31))
        poorer = rng if rng.random() < poor else None
        mel = synthetic_mel(speaker, wave, sample.text, start, seed, poorer)
        if as_heard:
            mel = postfilter(mel, speaker.engine.config.postfilter)
    except (BadAudio, InputError) as e:
        return Skip(sample.name, *e.args)
    return wave, mel


def seconds_of(wave: np.ndarray) -> float:
    """How long a wave at the rate of recordings lasts."""
    return len(wave) / audio.SAMPLE_RATE


def files_of(text: str, speaker: str, wave: np.ndarray, mel: np.ndarray) -> dict[str, bytes]:
    """The files of a clip, by their extensions."""
    metadata = {"text": text, "duration": seconds_of(wave), "speaker": speaker}
    json_bytes = json.dumps(metadata).encode()
    return {"flac": audio.flac_bytes(wave), "npy": npy(mel), "json": json_bytes}


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Writes the shards; returns counts, and why clips were left out."""
    low, high = args.since
    if not 0 <= low <= high < 1:
        raise InputError(f"--since is {low:g} to {high:g}; choose 0 up to 1, the lower one first")
    if not 0 <= args.poor_prompts <= 1:
        raise InputError(f"--poor-prompts is {args.poor_prompts:g}; choose a share, 0 to 1")
    engine = load_maker(args.model, args.as_heard)
    if args.each_speaker and args.voice:
        raise InputError("--each-speaker takes the recordings' own voices: leave out --voice")
    cast = Cast(engine, None if args.each_speaker else Speaker(engine, args.voice, seed=0))
    name = args.voice or engine.config.default_voice or "voice"
    seconds, left = 0.0, 3600 * args.hours
    samples, skips = find_some(args.shards)
    bar = tqdm(samples, name, unit=" clips", disable=None)
    free = "hours", "out", "overwrite"  # a clip is the same whatever these are
    settings = {k: v for k, v in vars(args).items() if k not in free}
    settings |= {"weights": digest(engine.folder)}
    again = partial(
        made_again,
        cast=cast,
        since=(low, high),
        max_seconds=args.max_seconds,
        poor=args.poor_prompts,
        as_heard=args.as_heard,
    )
    with made_shards(args.out, name, SIZE, settings, args.overwrite, samples) as (writer, done):
        for number, sample in enumerate(bar):
            rng = np.random.default_rng((args.seed, number))
            if before := done.get(plain_key(sample.key)):
                seconds += before["duration"]
            elif isinstance(made := again(sample, rng=rng), Skip):
                skips.append(made)
            else:
                who = named(sample) if args.each_speaker else name
                writer.add(sample.key, files_of(sample.text, who, *made))
                seconds += seconds_of(made[0])
            if seconds > left:
                break
    if not seconds:
        raise InputError(f"no clip could be made again: {by_reason(skips)}")
    voice = f"{len(cast.speakers)} speakers" if args.each_speaker else name
    return {"voice": voice, "hours": round(seconds / 3600, 3), "left_out": by_reason(skips)}


def build_parser() -> argparse.ArgumentParser:
    p = Parser("nanospeech prepare mels", __doc__)
    p.add_argument("model", type=Path, help="release folder")
    p.add_argument("shards", nargs="+", type=Path, help="recordings of the voice with their texts")
    p.add_argument("--voice", help="a built-in one; default: the folder's")
    p.add_argument(
        "--each-speaker",
        action="store_true",
        help=(
            "instead of one voice, that of each recording's speaker: the first of each of "
            f"{PROMPT[0]:g} to {PROMPT[1]:g} s is the prompt, and is left out"
        ),
    )
    p.add_argument(
        "--as-heard",
        action="store_true",
        help="by the network that speaks for users, maybe a student, and with the postfilter",
    )
    p.add_argument("--out", type=Path, required=True, help="folder for the shards")
    p.add_argument("--overwrite", action="store_true", help=OVERWRITE)
    p.add_argument("--hours", type=float, default=1e9, help="of speech at most (default: all)")
    p.add_argument(
        "--since",
        type=float,
        nargs=2,
        default=(0.2, 0.5),
        metavar="TIME",
        help="between which times of the ODE the sampler starts (%(default)s)",
    )
    p.add_argument(
        "--poor-prompts",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="of the clips that are made after a noisy or narrow copy of the prompt (%(default)g)",
    )
    p.add_argument("--max-seconds", type=float, default=12.0, help="of a clip (%(default)g)")
    p.add_argument("--seed", type=int, default=0, help="of the times and the noise (%(default)s)")
    return p


@command(interrupted="stopped; without --overwrite the same command goes on")
def main(argv: list[str] | None = None) -> int:
    args = build_parser().parse_args(argv)
    print(json.dumps(run(args)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
