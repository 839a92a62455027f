"""Makes the samples of the docs: the shipped voice in each backend, and a picture of their mels.

    python scripts/samples.py --out docs/samples

Needs both backends and matplotlib: pip install 'nanospeech[torch,mlx,eval]'.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from nanospeech import SampleOptions, Speaker, audio, load_engine
from nanospeech.errors import NanospeechError, require
from nanospeech.mel import log_mel

TEXTS = {
    "scratch": "Hello! I was trained from scratch, on two CPU cores.",
    "museum": "The museum opens at 9:30, and bread is sold in the square.",
    "question": "Have you ever seen the stars from the top of a mountain?",
}
SEED = 1


def draw(mels: dict[str, object], path: Path) -> None:
    """A picture of one log mel above the other."""
    matplotlib = require("matplotlib", "eval")
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(len(mels), 1, figsize=(8, 5), constrained_layout=True, sharex=True)
    for axis, (name, mel) in zip(axes, mels.items()):
        axis.imshow(mel.T, origin="lower", aspect="auto", vmin=-9, vmax=2)  # type: ignore
        axis.set(title=name, ylabel="mel band")
    axes[-1].set(xlabel="frame (93.75 a second)")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("docs/samples"), help="folder to write")
    parser.add_argument("--model", help="release folder; default: the voice that ships")
    args = parser.parse_args(argv)
    try:
        args.out.mkdir(parents=True, exist_ok=True)
        waves: dict[str, dict] = {name: {} for name in TEXTS}
        for backend in ("torch", "mlx"):
            engine = load_engine(args.model, backend=backend)
            speaker = Speaker(engine, options=SampleOptions(), seed=SEED)
            for name, text in TEXTS.items():
                spoken = speaker.speak(text)
                waves[name][backend] = spoken.wave
                audio.write(args.out / f"{name}-{backend}.mp3", spoken.wave, spoken.sample_rate)
        for name, pair in waves.items():
            far = abs(pair["torch"] - pair["mlx"]).max()
            print(f"{name}: torch and mlx differ by {far:.1e} at most")
        draw(
            {f"{k}: {TEXTS['museum']}": log_mel(v) for k, v in waves["museum"].items()},
            args.out / "museum.png",
        )
    except NanospeechError as e:
        print(f"error: {e}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
