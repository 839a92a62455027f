"""The command line of convert: python -m convert CHECKPOINT --output FOLDER."""

from __future__ import annotations

import argparse
import sys

from nanospeech.cli import Parser, command
from nanospeech.release.quantization import CHOICES

ABOUT = """Makes a release folder, which both backends read, from trained checkpoints or another
such folder.

  nanospeech convert runs/nanospeech --vocoder vocos-mel-24khz --output mine
  nanospeech convert runs/nanospeech/step_01000000.pt --duration runs/duration --vocab vocab.txt \\
      --vocoder vocos-mel-24khz --output mine
  nanospeech convert mine --quantize 4 --output mine-4bit"""


def build_parser() -> argparse.ArgumentParser:
    parser = Parser("nanospeech convert", ABOUT)
    parser.add_argument(
        "model", help="speech model: run folder, .pt, state dict, .safetensors, or release folder"
    )
    parser.add_argument("--output", required=True, help="release folder to write")
    parser.add_argument("--duration", help="duration model: the same forms")
    parser.add_argument(
        "--vocoder",
        help="a vocoder's run, a release folder, or Vocos: folder of config.yaml and"
        " pytorch_model.bin, or file",
    )
    parser.add_argument("--vocab", help="vocab.txt, where the checkpoint carries none")
    parser.add_argument("--voices", help="folder of built-in voices to copy in")
    parser.add_argument(
        "--weights", choices=("ema", "raw"), default="ema", help="averaged (default) or raw"
    )
    parser.add_argument(
        "--dtype", choices=("float16", "float32"), default="float16", help="default: float16"
    )
    parser.add_argument(
        "--quantize",
        type=int,
        choices=CHOICES,
        metavar="BITS",
        help="4 or 8: pack most layers into so many bits, for a folder of a third or a half",
    )
    parser.add_argument("--name", help="the model's name; default: the folder's")
    parser.add_argument("--default-voice", help="voice to speak with when none is named")
    parser.add_argument(
        "--temperature",
        type=float,
        help="spread of the noise that it speaks from when none is asked for (default: 1)",
    )
    parser.add_argument(
        "--leading-pause",
        "--lead",  # its name in older versions
        type=float,
        metavar="SECONDS",
        help="of a pause before texts of a word or two; try 0.13",
    )
    parser.add_argument(
        "--smooth", type=float, help="mel frames into either neighbour, against flicker; try 0.25"
    )
    parser.add_argument(
        "--sharpen", type=float, help="mel bands away from their blur, against dullness; try 0.5"
    )
    parser.add_argument(
        "--imitates",
        action=argparse.BooleanOptionalAction,
        help="whether it speaks in the voice of any recording; with --no-imitates a recording"
        " (--ref-audio) gets a warning",
    )
    parser.add_argument("--card", help="Markdown file to include in the model card")
    return parser


@command
def main(argv: list[str] | None = None) -> int:
    args = vars(build_parser().parse_args(argv))
    from . import ConvertOptions, convert

    config = convert(args.pop("model"), args.pop("output"), ConvertOptions(**args))
    parts = [p for p in ("duration", "vocoder") if getattr(config, p)]
    print(f"wrote model, vocab{''.join(', ' + p for p in parts)}, config and card")
    return 0


if __name__ == "__main__":
    sys.exit(main())
