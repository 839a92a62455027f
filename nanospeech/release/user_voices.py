"""User voices: recordings that a user keeps as voices for every model, in their data folder."""

from __future__ import annotations

import json
import logging
import os
import re
import unicodedata
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from nanospeech.audio import wave as audio
from nanospeech.errors import InputError, reason
from nanospeech.files import is_device, whole
from nanospeech.locks import alone

from .voice_facts import ABOUT, one_line

log = logging.getLogger("nanospeech")
HOME = "NANOSPEECH_HOME"  # an environment variable that names another data folder
USER = "user/"  # before a voice's name: the user's, whatever the folder's voices are
NAME = re.compile(r"\w[\w-]{0,63}")  # without its marks: no dots, no separators
NAME_BYTES = 200  # of a name in UTF-8: with a suffix, and a copy's, it is one of a file
SUFFIX = ".flac"
WAIT = 5.0  # seconds for another process that writes a voice of the same name


def data_folder() -> Path:
    """The user's data folder of nanospeech, which need not be there.

    Raises:
        InputError: it is named as in the home folder of a user who has none.
    """
    if named := os.environ.get(HOME):
        try:
            return Path(named).expanduser()
        except RuntimeError as e:
            raise InputError(f"{HOME} is {named}: {e} Name a whole path") from e
    import platformdirs

    return platformdirs.user_data_path("nanospeech", appauthor=False)


def voices_folder() -> Path:
    """Where the user's voices are, or will be."""
    return data_folder() / "voices"


def check_name(name: str, new: bool = True) -> None:
    """
    Args:
        name: of a voice.
        new: whether it is to be made; one that is there may have a name that Windows cannot write.

    Raises:
        InputError: a voice cannot be called so.
    """
    # vowels of Hindi and Thai, and accents as macOS may write them, are marks
    letters = "".join(c for c in name if unicodedata.category(c)[0] != "M")
    if not NAME.fullmatch(letters) or len(name.encode()) > NAME_BYTES:
        raise InputError(
            f"voice {name[:40]!r} should be named by letters, digits, - and _, at most 64 of them"
            f" and {NAME_BYTES} bytes, the first no -"
        )
    if new and is_device(name):
        raise InputError(f"voice {name!r} is a device's name on Windows; choose another")


def folded(name: str) -> str:
    """What spellings of one name have in common: capitals or not, accents apart or not."""
    return unicodedata.normalize("NFC", name).casefold()


def files_of(name: str) -> list[Path]:
    """The files of the user's voice of this name, in any spelling of it."""
    folder = voices_folder()
    if not folder.is_dir():
        return []
    known = folded(name)
    return sorted(p for p in folder.iterdir() if folded(p.name.split(".")[0]) == known)


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
    told = {k: one_line(v) if isinstance(v, str) else v for k, v in about.items()}
    folder = voices_folder()
    path = folder / f"{unicodedata.normalize('NFC', name)}{SUFFIX}"
    contents = {
        path: audio.flac_bytes(wave),
        path.with_suffix(".json"): (json.dumps({ABOUT: told}, ensure_ascii=False) + "\n").encode(),
        path.with_suffix(".txt"): (text + "\n").encode(),
    }
    try:
        # a person's voice is private; a folder that HOME names may be one of several users
        folder.mkdir(0o777 if os.environ.get(HOME) else 0o700, parents=True, exist_ok=True)
        # files of two recordings under one name would be a voice with another's words
        with alone(folder, "name", log.warning, f".{folded(name)}.lock", WAIT):
            old = files_of(name)
            if old and not overwrite:
                raise InputError(f"you have a voice {name!r}; pass --overwrite to replace it")
            with ExitStack() as parts:  # all are written before the first is renamed
                for file, content in contents.items():
                    parts.enter_context(whole(file)).write_bytes(content)
            for file in old:  # of a name in other letters, which may be the same files
                if file.exists() and not any(file.samefile(new) for new in contents):
                    file.unlink()
    except OSError as e:
        raise cannot_keep(reason(e)) from e
    return path


def check_writable() -> None:
    """Makes sure that save_voice could write to the folder of voices; makes nothing there.

    Raises:
        InputError: it, or the nearest folder above it that is there, cannot be written to.
    """
    folder = voices_folder()
    there = next(path for path in (folder, *folder.parents) if os.path.lexists(path))
    if not there.is_dir():
        raise cannot_keep(f"{there} is no folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise cannot_keep(f"{there} cannot be written to")


def cannot_keep(why: str) -> InputError:
    return InputError(
        f"cannot keep voices in {voices_folder()}: {why}; name another folder by the environment"
        f" variable {HOME}"
    )


def remove_voice(name: str) -> list[Path]:
    """Deletes a voice of the user's, NAME or "user/NAME"; returns the files that are gone.

    Raises:
        InputError: there is none of that name, or it cannot be deleted.
    """
    name = name.removeprefix(USER)
    check_name(name, new=False)
    files = files_of(name)
    if not files:
        raise InputError(
            f"you have no voice {name!r} in {voices_folder()}; nanospeech voices list has"
            " yours, and those of a model, which stay in its folder"
        )
    try:
        for file in files:
            file.unlink()
    except OSError as e:
        raise InputError(f"cannot remove the voice {name!r}: {e.strerror or e}") from e
    return files
