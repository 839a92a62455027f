"""Export: what a run has trained as a release folder, with its voice, licence and card."""

from __future__ import annotations

import argparse
from typing import Any

from nanospeech.audio import wave as audio
from nanospeech.config import PostfilterConfig
from nanospeech.release.folder import IMITATOR, MODEL, VOCODER, Release

from . import recordings as data

KEPT = "temperature", "leading_pause", "prompt_codec", "prompt_widen", "licence"  # of the base


def export(
    args: argparse.Namespace,
    strength: float,
    release: Release,
    objective: Any,
    prompt: Any,
    seconds: float,
) -> None:
    """Writes the release folder: the newest checkpoint, the base's other parts, the new voice."""
    from convert import convert, read_source
    from nanospeech.publish.model_card import DATA  # a section that later cards keep
    from nanospeech_torch.adapters import blend
    from nanospeech_torch.finetune.trainer import save
    from nanospeech_torch.train.initial import duration_state, float_weights

    source = read_source(args.run)
    tensors = blend(float_weights(release, MODEL), source.tensors, strength)
    base, filters = release.config, release.config.postfilter or PostfilterConfig()
    sampling = {name: getattr(base, name) for name in ("steps", "cfg_strength", "cfg_rescale")}
    carried = {**source.config, "imitates": base.imitates, "sampling": sampling}
    carried["rules"] = base.rules
    state = {"model_state_dict": tensors, "config": carried, "vocab": source.vocab}
    save(state | {"step": source.step}, args.run / "finetuned.pt")
    duration = None
    if state := duration_state(release, objective):
        duration = args.run / "duration.pt"
        save(state, duration)
    voices = args.run / "voices"
    voices.mkdir(exist_ok=True)
    audio.write(voices / f"{args.voice}.flac", prompt.as_prompt())
    (voices / f"{args.voice}.txt").write_text(prompt.text + "\n", encoding="utf-8")
    (voices / f"{args.voice}.license.txt").write_text(licence_note(args), encoding="utf-8")
    how = f"LoRA of rank {args.lora}" if args.lora else "all weights"
    how += f", blended by {strength:g} with it" if strength < 1 else ""
    licence = f" {args.license}" if args.license else ""
    card = args.run / "card.md"
    name = f"{release.beside.config.name}/{IMITATOR}" if release.beside else base.name
    card.write_text(
        f'## {DATA}\n\nFinetuned from "{name}" ({how}) on {seconds / 60:.1f} minutes of the voice'
        f' "{args.voice}".{licence}\n\nWhat the licences of "{name}" and'
        " of its data ask for holds for this model too.\n",
        encoding="utf-8",
    )
    convert(
        args.run / "finetuned.pt",
        args.output,
        duration=duration,
        vocoder=release.path(VOCODER) if release.has(VOCODER) else None,
        voices=voices,
        default_voice=args.voice,
        smooth=filters.smooth,
        sharpen=filters.sharpen,
        card=card,
        **{name: getattr(base, name) for name in KEPT},
    )


def licence_note(args: argparse.Namespace) -> str:
    """The terms of the voice: those beside its prompt, or those of --license."""
    beside = args.prompt and args.prompt.with_suffix(".license.txt")
    if beside and beside.is_file():
        return data.utf8(beside)
    terms = args.license or "No licence was given; ask the speaker before you pass it on."
    return f'Voice "{args.voice}": a recording that the model was finetuned on.\n{terms}\n'
