"""The command line of convert: python -m convert CHECKPOINT --output FOLDER."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from nanospeech.cli import Parser, command
from nanospeech.config import ModelConfig
from nanospeech.errors import require
from nanospeech.release.folder import CONFIG, PIECES
from nanospeech.release.quantization import CHOICES, PACKED_PARTS

from .kinds import KINDS

ABOUT = """Makes a release folder, which all backends read, from trained checkpoints or another
such folder.

  nanospeech convert runs/nanospeech --vocoder vocos-mel-24khz --output mine
  nanospeech convert runs/nanospeech/step_01000000.pt --duration runs/duration --vocab vocab.txt \\
      --vocoder vocos-mel-24khz --output mine
  nanospeech convert mine --quantize 4 --output mine-4bit
  nanospeech convert model_1250000.safetensors --from f5-v1 --vocab vocab.txt \\
      --vocoder vocos-mel-24khz --accept-licence --output f5"""


def build_parser() -> argparse.ArgumentParser:
    parser = Parser("nanospeech convert", ABOUT)
    parser.add_argument(
        "model",
        help="speech model: run folder, .pt, state dict, .safetensors, release folder, or Hub name",
    )
    parser.add_argument("--output", type=Path, required=True, help="release folder to write")
    parser.add_argument("--duration", help="duration model: the same forms")
    parser.add_argument(
        "--vocoder",
        help="a vocoder's run, a release folder, or Vocos: folder of config.yaml and"
        " pytorch_model.bin, or file",
    )
    parser.add_argument(
        "--like",
        metavar="RELEASE",
        help="release folder whose duration model, vocoder, postfilter and voices are taken where"
        " none are named, as for a distilled model those of its teacher",
    )
    parser.add_argument(
        "--codec",
        help="DAC-VAE's weights.pth, or a release folder: codec of a model of its latents; its"
        " watermark is left out",
    )
    parser.add_argument(
        "--vocab", help="vocab.txt, where the checkpoint carries none, or a tokenizer.json"
    )
    parser.add_argument(
        "--student",
        help="run of `nanospeech train distill` of this model for all its voices: added to the"
        " model, it speaks for it",
    )
    parser.add_argument(
        "--student-voices",
        nargs="+",
        metavar="NAME",
        help="of a student taught after recordings: it speaks for voices of these names, and after"
        " other recordings where --steps asks for one of its numbers; default: after all",
    )
    parser.add_argument(
        "--student-begins",
        type=int,
        metavar="N",
        help="of a student taught after recordings: where no --steps are asked for, it takes its"
        " first N steps, and the model itself goes on",
    )
    parser.add_argument(
        "--imitator",
        metavar="RELEASE",
        help="release folder of a model that imitates: added to this one, it speaks in the voice of"
        " recordings",
    )
    parser.add_argument(
        "--average",
        metavar="RELEASE",
        help="take the mean of the speech model's weights and another release's, as of a model"
        " before and after more training",
    )
    parser.add_argument(
        "--share",
        type=float,
        help="with --average: the model's own share in the mean, 0 to 1 (default: 0.5)",
    )
    parser.add_argument("--voices", type=Path, help="folder of built-in voices to copy in")
    parser.add_argument(
        "--weights", choices=("ema", "raw"), default="ema", help="averaged (default) or raw"
    )
    parser.add_argument(
        "--dtype",
        choices=("float16", "float32"),
        help="default: float16; float32 for releases in float32, and for other projects'"
        " checkpoints that are not float16",
    )
    parser.add_argument(
        "--quantize",
        type=int,
        choices=CHOICES,
        metavar="BITS",
        help="4 or 8: pack most layers into so many bits, for a folder of a third or a half",
    )
    parser.add_argument(
        "--quantize-only",
        nargs="+",
        choices=PACKED_PARTS,
        metavar="PART",
        help=f"with --quantize: of these parts, {', '.join(PACKED_PARTS)} (default: all)",
    )
    parser.add_argument(
        "--onnx",
        action="store_true",
        help="write the networks' ONNX graphs as well, for programs other than nanospeech, which"
        " needs none; their weights are the folder's .safetensors",
    )
    parser.add_argument("--name", help="the model's name; default: the folder's")
    parser.add_argument("--default-voice", help="voice to speak with when none is named")
    parser.add_argument(
        "--temperature",
        type=float,
        help="spread of the noise that it speaks from when none is asked for (default: 1)",
    )
    parser.add_argument(
        "--cfg",
        type=float,
        dest="cfg_strength",
        metavar="N",
        help="guidance strength when none is asked for (default: 3); a student keeps its own",
    )
    parser.add_argument(
        "--cfg-rescale",
        type=float,
        metavar="SHARE",
        help="of guidance's overshoot to take back when none is asked for: 1 keeps the spread of a"
        " mel without guidance (default: 0)",
    )
    parser.add_argument(
        "--prompt-codec",
        choices=["mp3"],
        help="the recordings of training were MP3s, as `prepare shards` makes them: recordings to "
        "imitate are encoded and decoded likewise",
    )
    parser.add_argument(
        "--prompt-widen",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="the recordings of training had the whole band: one to imitate that has not, as of a"
        " telephone or 16 kHz, gets what it lacks from what it has",
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
    add_foreign(parser)
    parser.add_argument("--card", help="Markdown file to include in the model card")
    return parser


def add_foreign(parser: argparse.ArgumentParser) -> None:
    """Flags for checkpoints of other projects."""
    kinds = "; ".join(f"{kind.name}: {kind.about}" for kind in KINDS.values())
    parser.add_argument(
        "--from",
        dest="kind",
        choices=tuple(KINDS),
        metavar="KIND",
        help=f"whose checkpoint it is, where that cannot be told from the file. {kinds}",
    )
    parser.add_argument(
        "--config",
        help="YAML or JSON file of a foreign checkpoint; default: the YAML file beside it",
    )
    parser.add_argument(
        "--licence",
        "--license",
        metavar="NAME",
        help="licence of the weights, such as apache-2.0; default: that of the model card beside"
        " them, or of the project's own weights",
    )
    parser.add_argument(
        "--accept-licence",
        "--accept-license",
        action="store_true",
        help="keep to a licence that allows no commercial use; remembered for the next time",
    )


def missing(config: ModelConfig, folder: Path) -> list[str]:
    """What a model of latents needs beside what was written."""
    if config.echo is None:
        return []
    found, encoder = [], config.text_encoder
    inner = folder / encoder.folder if encoder else folder
    if encoder is not None and not (inner / CONFIG).is_file():
        found.append(f"it reads another encoder's states: copy that encoder's folder to {inner}")
    elif config.tokenizer == "pieces" and not any((f / PIECES).is_file() for f in (folder, inner)):
        found.append(f"it reads no texts without a {PIECES}: name it by --vocab")
    if config.codec is None and config.vocoder is None:
        found.append("it makes latents, not sound: it has no codec (--codec) and no vocoder")
    return found


@command
def main(argv: list[str] | None = None) -> int:
    args = vars(build_parser().parse_args(argv))
    require("torch", "torch")
    from . import ConvertOptions, convert

    graphs, output = args.pop("onnx"), args.pop("output")
    check = None
    if graphs:
        from nanospeech_onnx.export import check_exported as check
        from nanospeech_onnx.export import export

    config = convert(args.pop("model"), output, ConvertOptions(**args), check)
    if graphs:
        export(output)
    kinds = "student", "duration", "vocoder", "codec", "imitator"
    parts = [p for p in kinds if getattr(config, p)]
    if config.licence:
        print(f"licence of the weights: {config.licence}")
    print(f"wrote model, vocab{''.join(', ' + p for p in parts)}, config and card")
    for line in missing(config, output):
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
