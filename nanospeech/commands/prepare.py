"""`nanospeech prepare`: recordings with their texts become clips and shards to train on."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from nanospeech.commands.group import run_group

ABOUT = """Recordings with their texts become what a model is trained on. LibriTTS's, LJ Speech's,
Common Voice's and other published layouts (prepare shards --help lists them), CSV and JSON-lines
manifests, folders of X.wav with X.txt and WebDataset shards are read.

  nanospeech prepare cut interview.mp3 --out recordings
  nanospeech prepare shards recordings/ --out shards
  nanospeech prepare curate recordings/ --out data --whisper base
  nanospeech prepare --features dacvae shards/*.tar --codec weights.pth --out latents"""
TOOLS = {
    "shards": ("nanospeech.prepare.shards:main", "WebDataset shards of MP3 and JSON"),
    "vocab": ("nanospeech.prepare.vocab:main", "vocab.txt: the characters of the texts"),
    "mp3": ("nanospeech.prepare.mp3s:main", "an MP3 of each recording, in its folder"),
    "cut": ("nanospeech.prepare.cut:main", "clips of long recordings, with what is said in them"),
    "curate": ("nanospeech.prepare.curate:main", "hold clips out, drop what is not what it says"),
    "hear": ("nanospeech.prepare.hear:main", "what a recogniser hears, many clips at once"),
    "levels": ("nanospeech.prepare.levels:main", "audio settings of a run, measured on its clips"),
    "tags": ("nanospeech.prepare.tags:main", "breaths and pauses as tags in the texts"),
    "prompts": ("nanospeech.prepare.choose_prompts:main", "a prompt of each speaker, for voices/"),
    "features": (
        "nanospeech_torch.prepare.features:main",
        "mels or latents, computed once and stored",
    ),
    "spoken": ("nanospeech.prepare.spoken:main", "mels that a model makes of texts, to distil it"),
    "mels": (
        "nanospeech_torch.prepare.synthetic_mels:main",
        "mels made by a model, for its vocoder",
    ),
}


def main(argv: Sequence[str] | None = None) -> int:
    if argv is None:
        argv = sys.argv[1:]
    if argv[:1] == ["--features"]:  # prepare --features dacvae …
        argv = ["features", "--encoder", *argv[1:]]
    return run_group("prepare", ABOUT, TOOLS, argv)
