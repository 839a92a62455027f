"""Trains a small vocoder, exports it, and compares its sound with Griffin-Lim's.

    nanospeech vocoder --set data.shards=shards/*.tar --minutes 60
    nanospeech vocoder --export folder              # vocoder.safetensors
    nanospeech vocoder --evaluate --data shards/*.tar

Training is nanospeech train with nanospeech/configs/vocoder.yaml, takes all its options, and with
`accelerate launch` in place of `python` runs on several devices. That recipe learns how phases
turn; with --config nanospeech/configs/vocoder_gan.yaml it is that of Vocos: spectral losses alone
(quick, but buzzy), then discriminators join. The same command again goes on where it stopped.

--evaluate makes held-out clips again from their mels, by the vocoder and by Griffin-Lim, and writes
results.csv and summary.json: wide-band PESQ against the recording, L1 distance of log mels, DNSMOS
(overall), and seconds of one core a second of sound. PESQ and DNSMOS need the extra "eval".
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from nanospeech.errors import NanospeechError

CONFIG = Path(__file__).parent / "configs" / "vocoder.yaml"


def build_parser() -> argparse.ArgumentParser:
    from nanospeech_torch.train.data.segments import SegmentConfig

    p = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    p.add_argument("--export", type=Path, metavar="FOLDER", help="write the weights and end")
    p.add_argument("--evaluate", action="store_true", help="resynthesise held-out clips and end")
    of_both = p.add_argument_group("of both")
    of_both.add_argument("--run", type=Path, default=Path("runs/vocoder"), help="folder of the run")
    of_both.add_argument(
        "--checkpoint", type=Path, help="instead of the newest of --run; or a release folder"
    )
    of_both.add_argument("--dtype", choices=("float16", "float32"), default="float16")
    data = p.add_argument_group("of --evaluate")
    data.add_argument(
        "--held-out", nargs="+", type=Path, default=[], help="shards or folders used whole"
    )
    data.add_argument("--data", nargs="+", type=Path, default=[], help="shards trained on")
    data.add_argument(
        "--held-out-share",
        type=float,
        default=SegmentConfig().held_out,
        help="share of --data's clips that training left out (vocoder_loss.held_out; %(default)s)",
    )
    data.add_argument("--evaluate-clips", type=int, default=40, help="at most (%(default)s)")
    data.add_argument("--iterations", type=int, default=60, help="of Griffin-Lim (%(default)s)")
    data.add_argument("--waves", type=Path, help="where the results go (RUN/evaluation)")
    return p


def main(argv: list[str] | None = None) -> int:
    given = sys.argv[1:] if argv is None else argv
    parser = build_parser()
    args, others = parser.parse_known_args(given)
    if not (args.export or args.evaluate):
        from nanospeech_torch.train.__main__ import main as train

        return train(given if "--config" in given else ["--config", str(CONFIG), *given])
    if others:
        parser.error(f"{' '.join(others)} does not go with --export or --evaluate")
    from nanospeech_torch.train.data.segments import is_held_out

    from .vocoder import evaluate, export, newest, read_clips

    try:
        checkpoint = args.checkpoint or newest(args.run)
        if args.export:
            export(checkpoint, args.export, args.dtype)
            return 0
        most = args.evaluate_clips
        clips = read_clips(args.held_out, lambda _: True, most)
        whole = {p.resolve() for p in args.held_out}
        rest = [p for p in args.data if p.resolve() not in whole]
        clips += read_clips(rest, lambda k: is_held_out(k, args.held_out_share), most - len(clips))
        evaluate(checkpoint, clips, args.waves or args.run / "evaluation", args.iterations)
        return 0
    except NanospeechError as e:
        print(f"error: {e}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    raise SystemExit(main())
