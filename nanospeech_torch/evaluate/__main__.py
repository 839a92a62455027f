"""Compares a trained vocoder's sound with Griffin-Lim's.

    nanospeech train vocoder --set data.shards=shards/*.tar
    nanospeech evaluate vocoder --data shards/*.tar
    nanospeech convert runs/nanospeech --vocoder runs/vocoder --output my_voice

Evaluation resynthesises held-out clips from their mels by the vocoder and by Griffin-Lim, and
writes results.csv and summary.json: wide-band PESQ against the recording, L1 distance of log mels,
DNSMOS (overall), and seconds of one core a second of sound. PESQ and DNSMOS need the extra "eval".
"""

from __future__ import annotations

import argparse
from pathlib import Path

from nanospeech.cli import Parser, command
from nanospeech.corpus.held_out import is_held_out
from nanospeech.errors import require


def build_parser() -> argparse.ArgumentParser:
    require("torch", "train")
    from nanospeech_torch.train.data.segments import SegmentConfig

    p = Parser("nanospeech evaluate vocoder", __doc__)
    add = p.add_argument
    add("--run", type=Path, default=Path("runs/vocoder"), help="folder of the run (%(default)s)")
    add("--checkpoint", type=Path, help="instead of the newest of --run; or a release folder")
    add("--held-out", nargs="+", type=Path, default=[], help="shards or folders used whole")
    add("--data", nargs="+", type=Path, default=[], help="shards trained on")
    add(
        "--held-out-share",
        type=float,
        default=SegmentConfig().held_out,
        help="share of --data's clips that training left out (vocoder_loss.held_out; %(default)s)",
    )
    add("--evaluate-clips", type=int, default=40, help="at most (%(default)s)")
    add("--iterations", type=int, default=60, help="of Griffin-Lim (%(default)s)")
    add("--waves", type=Path, help="where the results go (RUN/evaluation)")
    return p


@command
def main(argv: list[str] | None = None) -> int:
    args = build_parser().parse_args(argv)
    from .vocoder import evaluate, read_clips

    checkpoint = args.checkpoint or args.run
    most = args.evaluate_clips
    clips = read_clips(args.held_out, lambda _: True, most)
    whole = {p.resolve() for p in args.held_out}
    rest = [p for p in args.data if p.resolve() not in whole]
    clips += read_clips(
        rest, lambda k: is_held_out(k, share=args.held_out_share), most - len(clips)
    )
    evaluate(checkpoint, clips, args.waves or args.run / "evaluation", args.iterations)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
