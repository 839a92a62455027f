"""Licence: under which licence a checkpoint is published, and whether the user has accepted it."""

from __future__ import annotations

import json
import re
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from nanospeech.errors import InputError
from nanospeech.files import write_json
from nanospeech.release.user_voices import data_folder

from .source import located

if TYPE_CHECKING:
    from .kinds import Kind
    from .options import ConvertOptions

ACCEPTED = "accepted_licences.json"  # in the user's data folder
MAX_CARD_BYTES = 1_000_000
HUB = "https://huggingface.co/docs/hub/repositories-licenses"


def licence_of(path: Path, kind: Kind, stated: str | None) -> str | None:
    """Identifier of a checkpoint's licence: as stated, by the card beside it, or its kind's.

    Finetunes inherit the licence of what they were trained from, unless their card says another.
    """
    return stated or card_licence(path) or kind.licence


def card_licence(path: Path) -> str | None:
    """What the Hub's metadata in the README.md beside a checkpoint says."""
    card = (path if path.is_dir() else path.parent) / "README.md"
    if not card.is_file() or card.stat().st_size > MAX_CARD_BYTES:
        return None
    lines = card.read_text(encoding="utf-8", errors="replace").splitlines()
    if not lines or lines[0].strip() != "---":
        return None
    for line in lines[1:]:
        key, _, value = line.partition(":")
        if line.strip() == "---":
            break
        if key == "license":
            return value.strip().strip("'\"").lower() or None
    return None


def is_commercial(licence: str) -> bool:
    """Whether a licence allows commercial use, as far as its identifier tells."""
    return not re.search("-nc|non-?commercial", licence.lower())


def check_accepted(path: Path, kind: Kind, licence: str | None, o: ConvertOptions) -> None:
    """Refuses non-commercial weights until their licence is accepted, which is remembered.

    Raises:
        InputError: it was not accepted yet.
    """
    own = kind.licence is None and o.licence is not None  # terms that the user sets, or keeps
    if licence is None or is_commercial(licence) or own:
        return
    ask(path, kind.project or kind.name, licence, o)


def with_parts(licence: str | None, o: ConvertOptions) -> str | None:
    """Identifier of a model's licence with the parts that options add.

    A part without commercial use, as the card beside it says, makes the whole one without. The
    licence that the user states holds for the whole.

    Raises:
        InputError: such a part's was not accepted yet.
    """
    if o.licence is not None:
        return o.licence
    named = (o.average, o.vocoder, o.duration, o.student, o.codec, o.like)
    for part in (Path(located(part)) for part in named if part is not None):
        theirs = card_licence(part)
        if theirs is None or is_commercial(theirs):
            continue
        ask(part, part.resolve().name, theirs, o)
        if licence is None or is_commercial(licence):
            licence = theirs
    return licence


def ask(path: Path, name: str, licence: str, o: ConvertOptions) -> None:
    """Refuses weights without commercial use until that is accepted, which is remembered."""
    what, file = f"{name}: {licence}", data_folder() / ACCEPTED
    accepted = accepted_in(file)
    if what in accepted:
        return
    if not o.accept_licence:
        raise InputError(
            f"the weights in {path} are published under {licence}, which allows no commercial use"
            f" ({HUB}); convert with --accept-licence if you keep to it, or with --licence NAME if"
            " these weights have another one"
        )
    file.parent.mkdir(parents=True, exist_ok=True)
    write_json(file, accepted | {what: date.today().isoformat()}, indent=2)


def accepted_in(file: Path) -> dict[str, str]:
    """The licences that were accepted, and when; none where the file cannot be read."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
