"""User voices: recordings that a user keeps as voices for every model, in their data folder."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np

from nanospeech.audio import wave as audio
from nanospeech.errors import InputError
from nanospeech.files import whole

from .voice_facts import ABOUT, one_line

HOME = "NANOSPEECH_HOME"  # an environment variable that names another data folder
USER = "user/"  # before a voice's name: the user's, whatever the folder's voices are
NAME = re.compile(r"\w[\w-]{0,63}")  # no dots, no separators
NAME_BYTES = 200  # of a name in UTF-8: with a suffix, and a copy's, it is one of a file
SUFFIX = ".flac"


def data_folder() -> Path:
    """The user's data folder of nanospeech, which need not be there."""
    if named := os.environ.get(HOME):
        return Path(named).expanduser()
    import platformdirs

    return platformdirs.user_data_path("nanospeech", appauthor=False)


def voices_folder() -> Path:
    """Where the user's voices are, or will be."""
    return data_folder() / "voices"


def check_name(name: str) -> None:
    """
    Raises:
        InputError: a voice cannot be called so.
    """
    if not NAME.fullmatch(name) or len(name.encode()) > NAME_BYTES:
        raise InputError(
            f"voice {name[:40]!r} should be named by letters, digits, - and _, at most 64 of them"
            f" and {NAME_BYTES} bytes, the first no -"
        )


def files_of(name: str) -> list[Path]:
    """The files of the user's voice of this name, in capitals or small letters."""
    folder = voices_folder()
    if not folder.is_dir():
        return []
    known = name.casefold()
    return sorted(p for p in folder.iterdir() if p.name.split(".")[0].casefold() == known)


def save_voice(
    name: str, wave: np.ndarray, text: str, about: dict[str, Any], overwrite: bool = False
) -> Path:
    """Keeps a recording as a voice.

    Args:
        name: of the voice.
        wave: float32 (n,) at audio.SAMPLE_RATE.
        text: what is said in it.
        about: facts for its NAME.json.
        overwrite: a voice of that name that is there.

    Returns:
        The recording's file.

    Raises:
        InputError: the name cannot be, is taken, or nothing can be written there.
    """
    check_name(name)
    old = files_of(name)
    if old and not overwrite:
        raise InputError(f"you have a voice {name!r}; pass --overwrite to replace it")
    path = voices_folder() / f"{name}{SUFFIX}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        told = {k: one_line(v) if isinstance(v, str) else v for k, v in about.items()}
        settings = json.dumps({ABOUT: told}, ensure_ascii=False)
        made = [path, path.with_suffix(".json"), path.with_suffix(".txt")]
        with whole(made[1]) as facts, whole(made[2]) as words:
            facts.write_text(settings + "\n", encoding="utf-8")
            words.write_text(text + "\n", encoding="utf-8")
            audio.write(path, wave)
        for file in old:  # of a name in other letters, which may be the same files
            if file.exists() and not any(file.samefile(new) for new in made):
                file.unlink()
    except OSError as e:
        raise InputError(
            f"cannot keep voices in {path.parent}: {e.strerror or e}; name another folder by the"
            f" environment variable {HOME}"
        ) from e
    return path


def remove_voice(name: str) -> list[Path]:
    """Deletes a voice of the user's; returns the files that are gone.

    Raises:
        InputError: there is none of that name, or it cannot be deleted.
    """
    check_name(name)
    files = files_of(name)
    if not files:
        raise InputError(f"you have no voice {name!r} in {voices_folder()}")
    try:
        for file in files:
            file.unlink()
    except OSError as e:
        raise InputError(f"cannot remove the voice {name!r}: {e.strerror or e}") from e
    return files
