"""Card: the README.md of a release folder. Words only."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from torch import Tensor

from nanospeech.config import ModelConfig
from nanospeech.release.card_facts import HEAD, network_rows, readers, stored_as, table_row
from nanospeech.release.folder import IMITATOR

from .lazy import numbers
from .licence import is_commercial
from .writer import ENCODER, PARTS, file_of


def card_rows(
    config: ModelConfig, parts: Mapping[str, Mapping[str, Tensor]], dtype: str
) -> list[str]:
    """Rows of the table of files, one for each part."""
    return [
        table_row(file_of(part), numbers(tensors), stored_as(config, part, floats_of(part, dtype)))
        for part, tensors in parts.items()
    ]


def floats_of(part: str, dtype: str) -> str:
    """The type of a part's floats: a text encoder keeps its own."""
    return "float32" if part in ENCODER else dtype


NOTE = "Changed by `nanospeech convert`: "
NOTE_END = ". Words and figures below tell of the model before."


def renewed_card(
    card: str,
    rows: Iterable[str],
    licence: str | None = None,
    names: tuple[str, str] | None = None,
    changes: Iterable[str] = (),
) -> str:
    """A release's model card with other rows in its table of files.

    Args:
        card: Markdown.
        rows: of card_rows; each takes the place of its file's row, or follows the one before. Rows
            of weights that are not among them go.
        licence: takes the place of the one that the card states.
        names: of the model before and now, for a card whose title is its name.
        changes: what was changed of the model, for a note below the title.
    """
    if licence:
        card = relicensed(card, licence)
    if names is not None:
        card = re.sub(
            rf"^# {re.escape(names[0])}$", lambda _: f"# {names[1]}", card, count=1, flags=re.M
        )
    card = noted(card, changes)
    last, files = "", set()
    for row in rows:
        files.add(row.split("|")[1].strip())
        file = re.escape(row.split("|")[1])
        old = rf"^\|{file}\|.*$"
        if found := re.search(old, card, re.M):
            cells = found[0].count("|") - row.count("|")  # of a table with more columns
            card = card.replace(found[0], row + " |" * cells, 1)
        elif last:  # a part that is new
            card = re.sub(last, lambda m, row=row: f"{m[0]}\n{row}", card, flags=re.M)
        last = old
    for file in {*PARTS.values(), *(f"{IMITATOR}/{name}" for name in PARTS.values())} - files:
        card = re.sub(rf"^\| {re.escape(file)} \|.*\n", "", card, flags=re.M)
    return card


def noted(card: str, changes: Iterable[str]) -> str:
    """A card that says below its title what was changed, now and in conversions before."""
    there = re.search(rf"^{re.escape(NOTE)}(.*){re.escape(NOTE_END)}$", card, re.M)
    before = there[1].split(", ") if there else []
    all_changes = dict.fromkeys([*before, *changes])
    if not all_changes:
        return card
    line = f"{NOTE}{', '.join(all_changes)}{NOTE_END}"
    if there:
        return card.replace(there[0], line, 1)
    return re.sub(r"^# .*$", lambda title: f"{title[0]}\n\n{line}", card, count=1, flags=re.M)


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
    return f"""{front}# {config.name}

A nanospeech text-to-speech model{trained}. {readers(config)} read the same files.

```sh
nanospeech speak --model . --text "Hello there." --output hello.wav
```

| {" | ".join(HEAD)} |
|---|---|---|
{chr(10).join(rows)}

{network_rows(config)}
{licence_section(config.licence)}
{extra}"""


def licence_section(licence: str | None) -> str:
    """What the card says of the weights' licence."""
    if licence is None:
        return ""
    limit = "" if is_commercial(licence) else " It allows no commercial use of them."
    return f"""
## Licence

The weights are published under {licence}, which holds for this conversion too.{limit}
"""
