"""Card: the README.md of a release folder. Words only."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from torch import Tensor

from nanospeech.config import ModelConfig
from nanospeech.release.sharded import files_of
from nanospeech.release.tensors import FLOATS, opened

from .lazy import numbers
from .licence import is_commercial
from .writer import ENCODER, file_of


def card_rows(
    config: ModelConfig, parts: Mapping[str, Mapping[str, Tensor]], dtype: str
) -> list[str]:
    """Rows of the table of files, one for each part."""
    return [
        f"| {file_of(part)} | {numbers(tensors):,} | {stored_as(config, part, dtype)} |"
        for part, tensors in parts.items()
    ]


def stored_as(config: ModelConfig, part: str, dtype: str) -> str:
    """How a part's weights are stored: "float16", or "3 to 8 bits, float16"."""
    if part in ENCODER:
        return "float32"
    bits = sorted(getattr(config.quantization, part, {}).values())  # none of a codec's
    if not bits:
        return dtype
    span = f"{bits[0]} to {bits[-1]}" if bits[0] < bits[-1] else f"{bits[0]}"
    return f"{span} bits, {dtype}"


def float_types(path: Path) -> str:
    """Types of the floats in a safetensors file, or in its shards: "float16"."""
    kinds = set()
    for file in files_of(path):
        with opened(file) as f:
            names = list(f.keys())
            kinds |= {f.get_slice(name).get_dtype() for name in names}
    return ", ".join(sorted(FLOATS[kind] for kind in kinds & FLOATS.keys()))


def renewed_card(card: str, rows: Iterable[str], licence: str | None = None) -> str:
    """A release's model card with other rows in its table of files.

    Args:
        card: Markdown.
        rows: of card_rows; each takes the place of its file's row, or follows the one before.
        licence: takes the place of the one that the card states.
    """
    if licence:
        card = relicensed(card, licence)
    last = ""
    for row in rows:
        file = re.escape(row.split("|")[1])
        old = rf"^\|{file}\|.*$"
        if re.search(old, card, re.M):
            card = re.sub(old, lambda _, row=row: row, card, flags=re.M)
        elif last:  # a part that is new
            card = re.sub(last, lambda m, row=row: f"{m[0]}\n{row}", card, flags=re.M)
        last = old
    return card


def relicensed(card: str, licence: str) -> str:
    """A card that states a licence in its front matter and in its section, where it has them."""
    section = licence_section(licence)
    card = re.sub(r"\n## Licence\n\nThe weights are published under .*\n", lambda _: section, card)
    if not card.startswith("---\n"):
        return f"---\nlicense: {licence}\n---\n\n{card}"
    front, end, rest = card[4:].partition("\n---\n")
    front = re.sub(r"^license:.*$", f"license: {licence}", front, flags=re.M)
    return f"---\n{front}{end}{rest}"


def model_card(
    config: ModelConfig,
    parts: Mapping[str, Mapping[str, Tensor]],
    dtype: str,
    step: int | None,
    extra: str = "",
    more: Iterable[str] = (),
) -> str:
    """Markdown that says what the files are and how to speak with them.

    Args:
        config: what config.json holds.
        parts: tensors of each file.
        dtype: in which floats are stored.
        step: optimiser steps of the speech model, if known.
        extra: further Markdown: data, licences, figures, limits.
        more: rows of the table of files.
    """
    rows = [*card_rows(config, parts, dtype), *more]
    front = f"---\nlicense: {config.licence}\n---\n\n" if config.licence else ""
    trained = f", {step:,} optimiser steps" if step else ""
    readers = "PyTorch, MLX\nand ONNX Runtime" if config.echo is None else "PyTorch\nand MLX"
    return f"""{front}# {config.name}

A nanospeech text-to-speech model{trained}. {readers} read the same files.

```sh
nanospeech speak --model . --text "Hello there." --output hello.wav
```

| file | parameters | stored as |
|---|---|---|
{chr(10).join(rows)}

{network_rows(config)}
{licence_section(config.licence)}
{extra}"""


def network_rows(config: ModelConfig) -> str:
    """What the network is, what it reads and what it speaks."""
    a, d, e = config.audio, config.dit, config.echo
    if e is not None:
        other = config.text_encoder
        text = f"{e.text_vocab} ids" if other is None else f"states of a {other.kind} encoder"
        if e.text_tags:
            text += f", and the tags {', '.join(e.text_tags)}"
        return f"""- Speech: EchoDiT, {e.depth} blocks of width {e.dim}, {e.heads} heads.
- Text: {text} ({config.tokenizer}).
- Audio: {a.sample_rate} Hz, latents of {e.latent_dim}, hop {a.hop_length}."""
    return f"""- Speech: DiT, {d.depth} blocks of width {d.dim}, {d.heads} heads,
  {d.patch_size} mel frame(s) a patch, text upsampling "{d.text_upsampling}".
- Text: {d.text_num_embeds} {config.tokenizer} (vocab.txt).
- Audio: {a.sample_rate} Hz, {a.n_mels} mel bands, hop
  {a.hop_length}."""


def licence_section(licence: str | None) -> str:
    """What the card says of the weights' licence."""
    if licence is None:
        return ""
    limit = "" if is_commercial(licence) else " It allows no commercial use of them."
    return f"""
## Licence

The weights are published under {licence}, which holds for this conversion too.{limit}
"""
