"""`accelerate launch scripts/train.py --config FILE` in a clone: the command nanospeech train."""

import sys

from nanospeech.commands import run

if __name__ == "__main__":
    sys.exit(run("train", sys.argv[1:]))
