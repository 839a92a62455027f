"""Tars: how members of WebDataset shards are named, and headers whose damage is told."""

from __future__ import annotations

import posixpath
import tarfile
from typing import Any


class Header(tarfile.TarInfo):
    """A member's header; a damaged or missing one is an error, which tarfile takes for the end."""

    @classmethod
    def fromtarfile(cls, tarfile_: tarfile.TarFile) -> Any:
        try:
            return super().fromtarfile(tarfile_)
        except tarfile.HeaderError as e:
            if isinstance(e, getattr(tarfile, "EOFHeaderError", ())):
                raise
            raise tarfile.ReadError(f"{e}, at byte {tarfile_.offset}") from e


def split_name(name: str) -> tuple[str, str]:
    """Key and extension of a member: the file's name is cut at its first dot.

    Folders stay part of the key, as clips of two of them may have one name; ".." and the root do
    not, so that a key is never a way out of a folder. Hidden files have no extension and so belong
    to no sample: a Mac's tar writes ._KEY.mp3 before KEY.mp3.
    """
    folder, base = posixpath.split(name.replace("\\", "/"))
    stem, _, kind = base.partition(".")
    parts = [p for p in folder.split("/") if p not in ("", ".", "..")]
    return "/".join([*parts, stem]), kind.lower() if stem else ""
