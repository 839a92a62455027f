"""`nanospeech publish`: what goes with a model when others get it."""

from __future__ import annotations

from collections.abc import Sequence

from nanospeech.commands.group import run_group

ABOUT = """What goes with a model when others get it.

  nanospeech publish card my_voice --data data/curate.json --evaluation evaluation
  nanospeech publish listen --model my_voice --out page
  nanospeech publish my_voice --push anna/my-voice --license cc-by-4.0"""
TOOLS = {
    "card": ("nanospeech.publish.model_card:main", "README.md of a model: data, licences, figures"),
    "listen": ("nanospeech.publish.listen:main", "a page with players and pictures"),
    "push": ("nanospeech.publish.push:main", "a model to the Hugging Face Hub"),
    "voice": ("nanospeech.publish.add_voice:main", "a finetuned voice into its base's folder"),
}


def main(argv: Sequence[str] | None = None) -> int:
    return run_group("publish", ABOUT, TOOLS, argv, default="push")
