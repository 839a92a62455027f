"""The command line of convert: python -m convert CHECKPOINT --output FOLDER."""

from __future__ import annotations

import argparse
import sys

from nanospeech.errors import NanospeechError


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m convert",
        description="Makes a release folder, which both backends read, from trained checkpoints.",
        epilog="Example: python -m convert runs/nanospeech/step_01000000.pt --duration "
        "runs/duration/step_00250000.pt --vocoder vocos-mel-24khz --vocab vocab.txt --output mine",
    )
    parser.add_argument("model", help="speech model: run folder, .pt, state dict or .safetensors")
    parser.add_argument("--output", required=True, help="release folder to write")
    parser.add_argument("--duration", help="duration model: the same forms")
    parser.add_argument(
        "--vocoder", help="Vocos: folder of config.yaml and pytorch_model.bin, or file"
    )
    parser.add_argument("--vocab", help="vocab.txt, where the checkpoint carries none")
    parser.add_argument("--voices", help="folder of built-in voices to copy in")
    parser.add_argument(
        "--weights", choices=("ema", "raw"), default="ema", help="averaged (default) or raw"
    )
    parser.add_argument(
        "--dtype", choices=("float16", "float32"), default="float16", help="default: float16"
    )
    parser.add_argument("--name", help="the model's name; default: the folder's")
    parser.add_argument("--default-voice", help="voice to speak with when none is named")
    parser.add_argument(
        "--temperature",
        type=float,
        default=1.0,
        help="spread of the noise that it speaks from when none is asked for (default: 1)",
    )
    parser.add_argument("--card", help="Markdown file to include in the model card")
    args = vars(parser.parse_args(argv))
    try:
        from . import convert

        config = convert(args.pop("model"), args.pop("output"), **args)
    except NanospeechError as e:
        print(f"error: {e}", file=sys.stderr)
        return 2
    parts = [p for p in ("duration", "vocoder") if getattr(config, p)]
    print(f"wrote model, vocab{''.join(', ' + p for p in parts)}, config and card")
    return 0


if __name__ == "__main__":
    sys.exit(main())
