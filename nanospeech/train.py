"""`accelerate launch -m nanospeech.train RECIPE`, and torchrun: the command `nanospeech train`."""

import sys

from nanospeech.commands import run

if __name__ == "__main__":
    sys.exit(run("train", sys.argv[1:]))
