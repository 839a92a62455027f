"""Choose bits: the effect of rounding each kind of layer on output and size.

    nanospeech evaluate bits MODEL --bits 4

Rounds the layers of one kind alone, speaks the same sentences with the same noise, and measures how
far that is from float32: the velocity at three times of the way to the reference's mel, the final
mel of the new speech, the tokens' lengths, and, for the vocoder, the mel of the wave that it makes
of the reference's mel. All are relative distances (L2, of the mel after its mean is taken away).
The last rows are whole plans of nanospeech convert --quantize. The last line is one JSON document.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nanospeech import load as backend
from nanospeech.architectures import BITS
from nanospeech.audio.mel import log_mel
from nanospeech.cli import Parser, command
from nanospeech.config import QuantizationConfig, SampleOptions
from nanospeech.engine.sampling import noise
from nanospeech.release import quantization as quantized
from nanospeech.release.folder import DURATION, MODEL, VOCODER, Release, open_release
from nanospeech.release.sharded import there
from nanospeech.speech import chunks as speech
from nanospeech.speech.speaker import Speaker
from nanospeech.text.tokenizer import pad_tokens

TEXTS = ("She had been away for a week.", "Bread is sold in the square, at half past nine.")
TIMES = (0.05, 0.3, 0.8)
FLOAT_BYTES = 2  # of a weight that is not packed: float16
FIGURES = ("velocity", "mel", "seconds", "sound")


@dataclass(frozen=True)
class Sentence:
    """A text as the reference engine speaks it."""

    chunk: Any
    mel: np.ndarray  # of the new speech, (N, M)


class Reference:
    """The sentences in float32, and how far another engine is from them."""

    def __init__(self, engine: Any, args: argparse.Namespace):
        self.engine, self.options = engine, SampleOptions(steps=args.steps)
        self.speaker = Speaker(engine, options=self.options, seed=args.seed)
        texts = [self.speaker.chunks(text)[0] for text in args.texts]
        chunks = [self.speaker.chunk(t, args.seed + i, None) for i, t in enumerate(texts)]
        self.sentences = [Sentence(c, self.mel(engine, c)) for c in chunks]
        self.own = [self.figures_of(engine, s) for s in self.sentences]

    def mel(self, engine: Any, chunk: Any) -> np.ndarray:
        """The log mel of a chunk's new speech."""
        return speech.sample(engine, self.speaker.prompt, [chunk], self.options)[0]

    def figures_of(self, engine: Any, sentence: Sentence) -> dict[str, np.ndarray]:
        """What is compared, of one sentence."""
        prompt, chunk, audio = self.speaker.prompt, sentence.chunk, engine.config.audio
        start, frames = len(prompt.mel), len(prompt.mel) + chunk.frames
        tokens = pad_tokens([np.concatenate([prompt.tokens, chunk.tokens])])
        cond = np.zeros((1, frames, audio.n_mels), np.float32)
        cond[0, :start] = prompt.mel
        whole = np.concatenate([prompt.mel, sentence.mel])
        goal = (whole[None] - audio.mel_mean) / audio.mel_std
        start_BNM = noise(frames, audio.n_mels, chunk.seed)[None]
        found = {
            "velocity": np.stack(
                [
                    engine.velocity(
                        ((1 - t) * start_BNM + t * goal).astype(np.float32), cond, tokens, [t]
                    )[0, start:]
                    for t in TIMES
                ]
            ),
            "mel": self.mel(engine, chunk),
        }
        if engine.has_duration:
            known = np.array([len(prompt.tokens)])
            found["seconds"] = engine.duration(prompt.mel[None], tokens, prompt_tokens_B=known)
        wave = engine.vocode(sentence.mel[None])[0]
        found["sound"] = log_mel(wave, audio)
        return found

    def distances(self, engine: Any) -> dict[str, float]:
        """Each figure's mean distance from float32."""
        found = [self.figures_of(engine, s) for s in self.sentences]
        return {
            name: float(np.mean([distance(a[name], b[name]) for a, b in zip(found, self.own)]))
            for name in self.own[0]
        }


def distance(x: np.ndarray, wanted: np.ndarray) -> float:
    """Relative L2 distance, to a series without its mean."""
    size = wanted - wanted.mean() if wanted.size > 1 else wanted
    return float(np.linalg.norm(x - wanted) / max(np.linalg.norm(size), 1e-9))


def shapes_of(release: Release) -> dict[str, dict[str, tuple[int, ...]]]:
    """Shapes of the tensors of a folder's own parts, by part."""
    files = [n for n in (MODEL, DURATION, VOCODER) if there(release.folder / n)]
    return {Path(n).stem: release.shapes(n) for n in files}


def plans(shapes: Mapping[str, Mapping[str, tuple[int, ...]]], bits: int) -> Iterator[tuple]:
    """A name and a plan for each kind of layer alone, then for all of them."""
    size = QuantizationConfig().group_size
    everything: dict[str, dict[str, int]] = {}
    for part, tensors in shapes.items():
        everything[part] = dict.fromkeys(quantized.packable(tensors, size), bits)
        for layer in everything[part]:
            yield f"{part}: {layer}", QuantizationConfig(size, **{part: {layer: bits}})
    yield f"all, {bits} bits", QuantizationConfig(size, **everything)
    for few in quantized.CHOICES:
        yield f"--quantize {few}", quantized.plan(shapes, few)


def saved(plan: QuantizationConfig, shapes: Mapping[str, Mapping[str, tuple[int, ...]]]) -> int:
    """Bytes that a plan takes off a folder of float16 weights."""
    total = 0.0
    for part, tensors in shapes.items():
        for name, shape in tensors.items():
            if bits := getattr(plan, part).get(quantized.layer_of(name)) if len(shape) == 2 else 0:
                # a scale and a bias of two bytes each
                total += shape[0] * shape[1] * (FLOAT_BYTES - bits / 8 - 4 / plan.group_size)
    return round(total)


def measure(args: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each plan."""
    release, name = open_release(args.model).itself(), backend.pick_backend(args.backend)
    reference = Reference(backend.start(release, name, "cpu", "float32"), args)
    shapes, rows = shapes_of(release), []
    for title, plan in plans(shapes, args.bits):
        config = dataclasses.replace(release.config, quantization=plan)
        held = release.config.quantization
        packed = dataclasses.replace(release, config=config, packs=True, held=held)
        found = reference.distances(backend.start(packed, name, "cpu", "float32"))
        rows.append({"layers": title, "saved": saved(plan, shapes), **found})
        cells = [f"{found[f]:.4f}" if f in found else "" for f in FIGURES]
        print(f"| {title} | {rows[-1]['saved'] / 1e6:.3f} | {' | '.join(cells)} |", flush=True)
    return rows


def build_parser() -> argparse.ArgumentParser:
    p = Parser("nanospeech evaluate bits", __doc__)
    add = p.add_argument
    add("model", nargs="?", help="release folder or Hub repository; the packaged one if not given")
    add("--bits", type=int, default=4, choices=BITS, help="of each kind alone (default: 4)")
    add("--backend", default="auto", help="auto (default), torch or mlx, which round alike")
    add("--texts", nargs="+", default=TEXTS, help="sentences, not longer than 10 s (default: two)")
    add("--steps", type=int, help="solver steps (default: the model's own)")
    add("--seed", type=int, default=0, help="of the noise of the first sentence (default: 0)")
    return p


@command
def main(argv: list[str] | None = None) -> int:
    args = build_parser().parse_args(argv)
    print(f"| layers | MB saved | {' | '.join(FIGURES)} |\n|---|---|---|---|---|---|")
    rows = measure(args)
    about = {"model": str(args.model or "default"), "bits": args.bits, "texts": list(args.texts)}
    print(json.dumps({**about, "rows": rows}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
